// A reduction or normalisation as loops: how it walks its operand is told in reduce.cpp. Who walks
// a row, and where that is kept, is a matter of the machine: GPUs have their own (gpu_reduce.cpp).
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "compiler/kernels/group.h"
#include "compiler/kernels/templates/fold_columns.h"
#include "compiler/kernels/templates/frame.h"
#include "compiler/kernels/templates/loops.h"
#include "compiler/kernels/templates/reduce_plan.h"

namespace nimble::kernels {

class ReduceLowering {
 public:
  // `lanes` at most, and as many accumulators as `unroll`.
  ReduceLowering(const Workload& w, ReducePlan plan, Frame frame, int unroll, int lanes);
  virtual ~ReduceLowering() = default;

  virtual kir::Function run(const std::string& name);

 protected:
  using Dim = kir::Dim;
  using Dims = std::vector<Dim>;
  using StmtRef = kir::StmtRef;
  using ValueRef = kir::ValueRef;

  // One element or vector of the row: its coordinates, and how many lanes along it exist.
  struct Step {
    Dims at;
    std::optional<Dim> valid;    // lanes that may be read
    std::optional<Dim> counted;  // lanes that take part in the reduction (along only)
    Dim place;                   // in the thread's row buffer
    int slot = 0;
  };
  using Element = std::function<ValueRef(const Step&, std::vector<StmtRef>&)>;

  // ---- rows (reduce_rows.cpp)

  // Bools have no order in kernels: they are compared as integers.
  static DType element_type(DType t) { return t == DType::kBool ? DType::kI32 : compute_type(t); }
  ir::Atom stripped(const ir::Atom& a) const { return strip_reshapes(group_, a); }
  std::string fresh(const char* kind);
  Dim row_length() const;
  kir::BufferRef registers(const char* name, DType t);
  // Loops over the reduced axes; the innermost one by vectors (along) or single steps (across).
  virtual StmtRef walk(const std::optional<Dim>& columns,
                       const std::function<std::vector<StmtRef>(const Step&)>& body);
  StmtRef fill(const kir::BufferRef& b, const ValueRef& v);
  static ValueRef is_nan(const ValueRef& v);
  // Folds `value` of every step by `op`; the result stands in local `name`: a scalar (along) or a
  // vector of one result a lane (across).
  ValueRef fold(std::vector<StmtRef>& out, const std::optional<Dim>& columns, kir::BinaryOp op,
                const char* name, const Element& value, bool keep_nan = false);
  // What accumulators have come to, `v`, in one: a scalar (along) or a vector of one result a lane
  // (across). `name` is a local's, if one is needed.
  virtual ValueRef together(std::vector<StmtRef>& out, const char* name, const ValueRef& v,
                            const Fold& f);
  // The maximum or minimum of a vector's lanes; NaN if one of them is.
  ValueRef extreme_of_lanes(std::vector<StmtRef>& out, const ValueRef& v, kir::BinaryOp op);
  ValueRef let(std::vector<StmtRef>& out, const char* name, ValueRef v);
  // The operand at a step, from the parameters; statements go to `out`.
  ValueRef pull(const Step& s, std::vector<StmtRef>& out);
  StmtRef store(size_t r, const ir::Atom& a, const Dims& at, int lanes,
                const std::optional<Dim>& valid, std::vector<StmtRef>& out);
  // A store of a result by whoever does it.
  virtual StmtRef by_its_thread(StmtRef store) { return store; }
  // One item: a row (along) or a block of columns, of which `columns` exist (across).
  StmtRef item(const std::optional<Dim>& columns);

  // ---- plain reductions (reduce.cpp)

  // How a plain reduction folds.
  Fold plain_fold() const;
  void reduce(const std::optional<Dim>& columns, std::vector<StmtRef>& out);
  // The reductions behind the first, and what follows all of them.
  void reduce_more(const std::optional<Dim>& columns, std::vector<StmtRef>& out);
  // The reduction at work of one item.
  void fold_row(const std::optional<Dim>& columns, std::vector<StmtRef>& out);
  // Gives `total` as its result at the item's coordinates.
  void give(ValueRef total, std::vector<StmtRef>& out);
  // What follows when each reduction has given its result.
  void finish(const std::optional<Dim>& columns, std::vector<StmtRef>& out);
  // A plain reduction across.
  kir::Function run_columns(const std::string& name);
  ValueRef arg_max(const std::optional<Dim>& columns, std::vector<StmtRef>& out);

  // ---- normalisations (reduce_normalise.cpp)

  kir::BufferRef row_buffer();
  // Whether the elements of a row are kept between the passes; `plain`: those of a parameter.
  virtual bool keeps_row(bool plain) const { return !plain; }
  virtual StmtRef keep(const Step& s, const ValueRef& v);
  virtual ValueRef kept(const Step& s);
  // What was kept last, by the coordinates of the step at work.
  virtual GroupEvaluator::Given kept_row();
  void normalise(const std::optional<Dim>& columns, std::vector<StmtRef>& out);
  // The reductions of the row that lies in the scratch by now: their one axis is the last.
  void reduce_again(const std::optional<Dim>& columns, std::vector<StmtRef>& out);

  const Workload& w_;
  ReducePlan plan_;
  Frame frame_;
  GroupEvaluator group_;
  int unroll_;
  // The reduction at work: the anchor, then each of the others.
  const ir::Binding* anchor_;
  ir::Expr call_;
  ir::Atom x_;
  DType type_;
  int lanes_ = 1;
  Dims base_;
  kir::BufferRef row_;
  std::vector<kir::BufferRef> scratch_, registers_;
  int next_ = 0;
};

}  // namespace nimble::kernels
