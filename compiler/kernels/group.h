// Pulls the value of a fused group's variable at given coordinates: the shared half of every
// template (prologues, epilogues, element-wise and injective groups).
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "compiler/ir/expr.h"
#include "compiler/kernels/kernel_ir.h"

namespace nimble::kernels {

// The element computed by one element-wise operator from its operands' elements (any lanes):
// the operator's compute rule. `call` gives name and attributes, `result` the element type.
kir::ValueRef compute(const ir::Expr& call, const std::vector<kir::ValueRef>& operands,
                      DType result);
bool has_compute_rule(const std::string& op);

class GroupEvaluator {
 public:
  // `buffers`: one per parameter of the group, flat row-major (null for scalar parameters: those
  // of the attributes "scalars" and "scalar_symbols" that make_workload sets). `prefix` keeps the
  // names of locals apart where one kernel has several evaluators.
  GroupEvaluator(const ir::Function& group, std::vector<kir::BufferRef> buffers,
                 std::string prefix = "e");

  // Values known already, by variable: an anchor's accumulators, a reduction's result. The
  // function returns the value of the variable at the coordinates it is asked for.
  using Given = std::function<kir::ValueRef(const std::vector<kir::Dim>& coordinates, int lanes)>;
  void give(const ir::VarRef& v, Given value);

  // The value of `a` at `coordinates` (one Dim an axis of its type), for `lanes` consecutive
  // elements along the last axis; with `valid`, only lanes < valid may be read from memory (lane
  // 0 must exist: valid >= 1). f16 and bf16 values come as f32.
  // Broadcasting: an axis of extent 1 reads coordinate 0; an axis whose extent may be 1 at run
  // time reads coordinate * (extent != 1), a zero stride.
  kir::ValueRef value(const ir::Atom& a, const std::vector<kir::Dim>& coordinates, int lanes,
                      const std::optional<kir::Dim>& valid = std::nullopt);
  // The same with lanes along any direction: lane l stands at coordinates + l*steps.
  kir::ValueRef value_along(const ir::Atom& a, const std::vector<kir::Dim>& coordinates,
                            const std::vector<kir::Dim>& steps, int lanes,
                            const std::optional<kir::Dim>& valid = std::nullopt);
  // Whether value() can do more than one lane, or with an axis whether lanes may run along that.
  // Where lanes cross the seam of a concatenation, a padding, or a reshape that no stride
  // describes, only single elements can be had.
  bool vectorizable(const ir::Atom& a, std::optional<size_t> axis = std::nullopt);

  // Promises that `v`, bound to a concat, is asked for inside its operand `part` only, so that a
  // template can walk the parts one by one.
  void choose_part(const ir::Var* v, size_t part) { parts_[v] = part; }

  // Statements that the values need bound first (shared values; data-dependent indices of gather
  // with their bounds checks), in order; taking them empties the list.
  std::vector<kir::StmtRef> take_statements();

  // The call bound to a variable, through copies and tuple fields; null for a parameter.
  const ir::Expr* definition(const ir::Atom& a) const;
  // `a` with copies and fields of tuples resolved.
  ir::Atom resolve(const ir::Atom& a) const;

 private:
  using Dims = std::vector<kir::Dim>;
  struct Place {  // of a vector of elements in one tensor
    Dims at, steps;
    int lanes = 1;
    std::optional<kir::Dim> valid;
    bool conditional = false;  // even lane 0 may be absent
  };
  struct NeedsScalar {};

  kir::ValueRef at(const ir::Atom& a, const Place& p);
  kir::ValueRef parameter(const ir::Var* v, const kir::Dim& offset, const kir::Dim& stride,
                          const Place& p);
  kir::ValueRef call(const ir::VarRef& v, const ir::Expr& e, const Place& p);
  kir::ValueRef flat(const ir::Atom& a, const kir::Dim& offset, const kir::Dim& step,
                     const Place& p);
  bool is_flat(const ir::Atom& a) const;
  // The rules of operators: the value of the variable that the call is bound to.
  kir::ValueRef batch_norm(const ir::VarRef& v, const ir::Expr& e, const Place& p);
  kir::ValueRef full(const ir::VarRef& v, const ir::Expr& e, const Place& p);
  kir::ValueRef reshape(const ir::VarRef& v, const ir::Expr& e, const Place& p);
  kir::ValueRef transpose(const ir::VarRef& v, const ir::Expr& e, const Place& p);
  kir::ValueRef squeeze(const ir::VarRef& v, const ir::Expr& e, const Place& p);
  kir::ValueRef unsqueeze(const ir::VarRef& v, const ir::Expr& e, const Place& p);
  kir::ValueRef expand(const ir::VarRef& v, const ir::Expr& e, const Place& p);
  kir::ValueRef slice(const ir::VarRef& v, const ir::Expr& e, const Place& p);
  kir::ValueRef concat(const ir::VarRef& v, const ir::Expr& e, const Place& p);
  kir::ValueRef pad(const ir::VarRef& v, const ir::Expr& e, const Place& p);
  kir::ValueRef gather(const ir::VarRef& v, const ir::Expr& e, const Place& p);
  kir::ValueRef gather_elements(const ir::VarRef& v, const ir::Expr& e, const Place& p);
  kir::ValueRef range(const ir::VarRef& v, const ir::Expr& e, const Place& p);
  kir::Dim index_of(const ir::Expr& e, const Place& p, const kir::Dim& extent, size_t axis);
  Place broadcast_to(const Dims& from, const Dims& to, const Place& p) const;
  kir::ValueRef share(kir::ValueRef v);
  std::string fresh(const char* kind);

  std::map<const ir::Var*, kir::BufferRef> parameters_;
  std::map<const ir::Var*, std::string> scalar_symbols_;
  std::map<const ir::Var*, Given> given_;
  std::map<const ir::Var*, const ir::Expr*> definitions_;
  std::map<const ir::Var*, size_t> parts_;
  std::vector<kir::StmtRef> statements_;
  std::map<std::string, kir::ValueRef> known_;  // by variable and place, until statements are taken
  std::string prefix_;
  int next_ = 0;
};

// Row-major flat offset of coordinates in a tensor of `dims`.
kir::Dim flat_offset(const std::vector<kir::Dim>& dims, const std::vector<kir::Dim>& coordinates);
// The coordinates of a flat offset.
std::vector<kir::Dim> coordinates_of(const std::vector<kir::Dim>& dims, const kir::Dim& offset);
// The type that values of `t` have in registers: f32 for f16 and bf16.
DType compute_type(DType t);

}  // namespace nimble::kernels
