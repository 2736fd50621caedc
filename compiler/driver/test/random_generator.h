// What makes a random program; random_program.cpp tells how. Steps of a kind have a file.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <unordered_set>
#include <vector>

#include "compiler/driver/test/random_program.h"
#include "compiler/driver/test/random_rules.h"
#include "compiler/ir/builder.h"
#include "compiler/ir/op.h"

namespace nimble::driver::testing {

class RandomGenerator {
 public:
  RandomGenerator(uint64_t seed, const RandomProgramOptions& options);
  ir::Module make();  // once

 private:
  using Atom = ir::Atom;
  using BlockBuilder = ir::BlockBuilder;
  using Dim = ir::Dim;
  using Type = ir::Type;
  using VarRef = ir::VarRef;
  using Scope = std::vector<VarRef>;

  // ---------------------------------------------------------------- dice

  int pick(int n) { return static_cast<int>(random_() % static_cast<uint64_t>(n)); }
  bool chance(int percent) { return pick(100) < percent; }
  template <class T>
  const T& one_of(const std::vector<T>& v) {
    return v[static_cast<size_t>(pick(static_cast<int>(v.size())))];
  }
  // Recent values more often, so that graphs grow deep.
  const VarRef& recent(const Scope& scope) {
    const int n = static_cast<int>(scope.size());
    return scope[static_cast<size_t>(n - 1 - std::min(pick(n), pick(n)))];
  }
  const VarRef* find(const Scope& scope, const std::function<bool(const VarRef&)>& wanted) {
    std::vector<const VarRef*> found;
    for (const VarRef& v : scope)
      if (v->type && wanted(v)) found.push_back(&v);
    return found.empty() ? nullptr : one_of(found);
  }
  static Type tensor(std::vector<Dim> dims, DType t = DType::kF32) {
    return ir::tensor_type(std::move(dims), t);
  }
  Dim some_dim() {
    static const std::vector<Dim> kDims = {Dim::symbol("n"), Dim::symbol("m"), 1, 4, 6, 3};
    const Dim& d = one_of(kDims);
    const auto symbol = d.as_symbol();
    return symbol && !extents_.contains(*symbol) ? Dim(2) : d;
  }
  // While a function's body is made, the extents that can be named are those of its parameters.
  class ExtentsOf {
   public:
    ExtentsOf(RandomGenerator& g, const std::vector<VarRef>& parameters) : named_(g.extents_) {
      std::set<std::string> all;
      for (const VarRef& p : parameters) collect_symbols(p->type, all, inner_);
      named_.swap(inner_);
    }
    ~ExtentsOf() { named_.swap(inner_); }
    ExtentsOf(const ExtentsOf&) = delete;
    ExtentsOf& operator=(const ExtentsOf&) = delete;

   private:
    std::set<std::string>& named_;
    std::set<std::string> inner_;  // then those outside
  };
  std::string name(const char* kind) { return fmt::format("{}{}", kind, next_++); }

  // An extent that arises in a body: of a tensor that grew, or as values decide.
  Dim born_extent() { return Dim::symbol(fmt::format("{}{}", kBornExtent, born_++)); }

  bool is_rough(const Atom& a) const { return a.is_var() && rough_.contains(a.var); }
  static Type type_of(const Atom& a) { return ir::type_of(a); }
  static bool is_tensor(const Type& t) { return t && t->kind == ir::TypeKind::kTensor; }
  static Type i64_scalar() { return ir::tensor_type({}, DType::kI64); }

  // ---------------------------------------------------------------- random_program.cpp

  VarRef bind(BlockBuilder& out, Scope& scope, ir::ExprRef e, Type type, bool rough,
              const char* hint = "v");
  VarRef new_input(const Type& type);
  void step(BlockBuilder& out, Scope& scope, int depth);
  ir::BlockRef block(Scope scope, const Type& type, int depth, int steps);
  Atom value_of(const Type& type, BlockBuilder& out, Scope& scope, int depth);
  // The type of something visible: a tensor, or two of them as a tuple.
  Type some_type(const Scope& scope);
  // An exact bool scalar.
  Atom condition(BlockBuilder& out, Scope& scope);
  Atom exact_scalar(BlockBuilder&, Scope& scope);

  // ---------------------------------------------------------------- random_operators.cpp

  // An operand: something visible, or, within main, a new input.
  std::optional<Atom> operand(Scope& scope, bool at_main);
  std::optional<ir::AttrValue> attribute(const ir::OpInfo& op, const ir::AttrSpec& spec,
                                         const std::vector<Type>& inputs);
  std::vector<int64_t> integers(const ir::OpInfo& op, const ir::AttrSpec& spec, int rank);
  std::vector<Dim> dims(const ir::AttrSpec& spec, const std::vector<Type>& inputs, int rank);
  // The type that the operator's relation gives, or null.
  Type relate(const ir::OpInfo& op, const ir::Expr& call, const std::vector<Type>& inputs);
  // Another operator, with operands that it takes. Some take few of those there are, and each gets
  // several tries, or the easy ones would make up nearly all of a program.
  bool operator_step(BlockBuilder& out, Scope& scope, bool at_main);
  bool call_of(const ir::OpInfo& op, BlockBuilder& out, Scope& scope, bool at_main);

  // ---------------------------------------------------------------- random_control.cpp

  bool if_step(BlockBuilder& out, Scope& scope, int depth);
  // Parameters for a function over some visible tensors, all extents of which they bind.
  std::vector<VarRef> choose_arguments(const Scope& scope, int most);
  // Parameters of those types, as rough as the arguments.
  Scope parameters_for(const std::vector<VarRef>& arguments);
  bool call_step(BlockBuilder& out, Scope& scope, int depth);
  // acc = body(i, acc, …) a few times; sometimes the accumulator grows.
  bool loop_step(BlockBuilder& out, Scope& scope, int depth);
  // A function value that captures what its body reads, called here, perhaps through a helper.
  bool closure_step(BlockBuilder& out, Scope& scope, int depth);

  // ---------------------------------------------------------------- random_data.cpp

  // data List[A] { Nil; Cons(A, List[A]) }, data Option[A] { None; Some(A) },
  // data Tree { Leaf(Tensor[(?, 4), f32]); Node(Tree, Tree) }
  void declare_data();
  Atom construct(const char* constructor, std::vector<Atom> fields, const Type& type,
                 BlockBuilder& out, Scope& scope);
  Atom data_value(const Type& type, BlockBuilder& out, Scope& scope, int depth);
  // A variable that a pattern binds.
  VarRef bound(const Type& type, Scope& scope);
  bool data_step(BlockBuilder& out, Scope& scope, int depth);
  // fn @fold(%l: List[T], %acc: U) -> U, over elements of constant extents.
  bool fold_step(BlockBuilder& out, Scope& scope, int depth);
  // fn @walk(%t: Tree) -> Tensor[(1, 4), f32]
  bool tree_step(BlockBuilder& out, Scope& scope, int depth);

  static inline const std::vector<DType> kTypes = {DType::kF32, DType::kI64, DType::kBool,
                                                   DType::kI32, DType::kF64};
  RandomProgramOptions options_;
  std::mt19937_64 random_;
  std::vector<const ir::OpInfo*> ops_;
  ir::Module module_;
  std::vector<VarRef> inputs_;
  std::unordered_set<VarRef> rough_;
  // Of blocks that were given up, too: another variable at the same address would take their place
  // in names_extents_.
  std::vector<VarRef> alive_;
  std::set<std::string> extents_ = {"n", "m"};  // that an attribute may name here
  std::set<const ir::Var*> names_extents_;      // whose annotations name extents
  int next_ = 0, born_ = 0;
};

}  // namespace nimble::driver::testing
