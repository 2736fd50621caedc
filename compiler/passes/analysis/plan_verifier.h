// The verifier of memory plans; verify_plan.cpp tells how it works, and its rules. The walk over
// blocks stands there, what is known of names in verify_plan_names.cpp, and the rules of what
// makes, views and ends memory, and of who writes it, in verify_plan_memory.cpp and
// verify_plan_kernels.cpp.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "compiler/ir/dim.h"
#include "compiler/ir/expr.h"
#include "compiler/passes/analysis/verify_plan.h"

namespace nimble::passes {

class PlanVerifier {
 public:
  explicit PlanVerifier(const ir::Module& m) : module_(m) {}
  PlanReport run();  // once

 private:
  using Atom = ir::Atom;
  using Binding = ir::Binding;
  using Block = ir::Block;
  using Dim = ir::Dim;
  using Expr = ir::Expr;
  using Type = ir::Type;
  using Var = ir::Var;
  using ParameterSet = std::set<std::pair<std::string, size_t>>;

  struct Object {
    const Var* storage = nullptr;  // null: a parameter's
    size_t parameter = 0;
    Dim bytes;  // of a storage
  };

  // Columns of rows that several tensors share.
  struct Part {
    int64_t whole = 0;  // its number
    Dim pitch, first, last;
    int64_t size = 0;  // bytes of an element

    Dim count() const { return last - first; }
  };

  struct Name {
    std::set<size_t> objects;
    std::optional<Part> part;
    const Var* viewed = nullptr;      // the tensor that this one is a row of
    const Var* taken_over = nullptr;  // the tensor whose memory it takes
    std::optional<Dim> begin, end;    // bytes within the one object, where known
    bool exact = false;               // it begins there, rather than anywhere between

    void set_range(Dim from, const Dim& bytes) {
      end = from + bytes;
      begin = std::move(from);
      exact = true;
    }
    // The range of what lies in `whole`, from byte `offset` on if that is known.
    void set_part(const Name& whole, const std::optional<Dim>& offset, const Dim& bytes) {
      if (whole.exact && offset) return set_range(*whole.begin + *offset, bytes);
      begin = whole.begin;
      end = whole.end;
    }
  };

  struct State {
    std::set<const Var*> killed;  // on some path
    std::set<const Var*> ended;   // on every path
    std::map<const Var*, std::string> stale;
    std::set<size_t> freed, held;
    // Columns, by the object and the number of the whole there.
    std::map<std::pair<size_t, int64_t>, std::vector<std::pair<Dim, Dim>>> written;
    bool stopped = false;  // by memory.fatal
  };

  // ---------------------------------------------------------------- verify_plan.cpp

  void fault(const char* rule, const std::string& problem);
  void function(const std::string& name, const ir::Function& f);
  // The objects of the block's result.
  std::set<size_t> block(const Block& b, State& state);
  void check_end(const Binding& binding, const Atom& result, const State& state);
  static void join(const std::vector<State>& ends, State& state);
  void expression(const Binding& binding, State& state);
  // The value may hold what its operands hold.
  void derive(const Var* v, const Expr& e);
  void hold(const Expr& e, State& state);
  void branches(const Binding& binding, State& state);

  // ---------------------------------------------------------------- verify_plan_names.cpp

  // Whether a value of the type is or holds memory.
  static bool has_memory(const Type& t);
  static Dim bytes_of(DType dtype, const std::vector<Dim>& shape);
  static Dim bytes_of(const Expr& alloc);
  const Var* same(const Var* v) const;
  std::set<size_t> objects_of(const Atom& a) const;
  bool overlap(const Name& a, const Name& b) const;
  // A use of a name for what it holds, or only to write it.
  void use(const Atom& a, const State& state, bool writes = false);
  // Whether all columns of a part were written.
  bool is_written(const Name& name, const State& state) const;
  // A function that may be called from anywhere must leave its arguments alone.
  void function_value(const std::string& name);
  // `but`: names that are parts of this whole stay good.
  void make_stale(const Var* writer, const std::string& reason, State& state,
                  std::optional<int64_t> but = {});
  void end_life(const Var* v, State& state);

  // ---------------------------------------------------------------- verify_plan_memory.cpp

  void kill(const Expr& e, State& state);
  void alloc_tensor(const Var* v, const Expr& e, State& state);
  // Which columns of which rows the tensor is; nothing if that makes no sense, which is a fault.
  std::optional<Part> part_of(const Var* v, const Expr& e);
  // Proved, or refuted by a witness: extents for which the tensor is larger than its memory.
  void fits(const Var* v, const Dim& needed, const Dim& there);
  // What a scalar is in terms of extents, if that is said.
  std::optional<Dim> value_of(const Atom& a) const;
  void view(const Var* v, const Expr& e);

  // ---------------------------------------------------------------- verify_plan_kernels.cpp

  // The parameter's own memory, or a parameter's that every caller must then give away.
  void write(const Atom& a);
  void invoke(const Expr& e, State& state);
  // Whether a kernel keeps to the columns of argument `i`, if that is a part.
  void check_columns(const Expr& e, size_t i, size_t inputs);
  // Whether all elements that a tensor's type has are its columns.
  bool is_all_its_own(const Var& v, const Part& part) const;
  bool writes_columns(const ir::Function& group, size_t result, const Var& v,
                      const Part& part) const;
  bool reads_columns(const ir::Function& group, size_t i, const Var& v, const Part& part) const;
  // Whether element i of input `k` is where element i of the output goes (or nowhere near it), and
  // the kernel reads no other element of it for output i.
  bool same_elements(const Expr& e, size_t k, const Var* in, const Var* out);
  void call(const Expr& e, State& state);

  const ir::Module& module_;
  PlanReport report_;
  ParameterSet written_;  // parameters whose memory their function writes
  bool reporting_ = false;

  // Of the function at hand.
  std::string function_, where_;
  bool entry_ = false;
  ir::DimContext dims_;
  std::vector<Object> objects_;
  std::map<const Var*, Name> names_;
  std::map<const Var*, const Var*> same_;  // copies share their source's register
  std::map<const Var*, Dim> sizes_;        // scalars that an extent is
  std::map<const Var*, const Expr*> views_;
  std::set<const Var*> visible_;
};

}  // namespace nimble::passes
