// Shared machinery of passes: rewriting blocks binding by binding, and counting uses.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>
#include <vector>

#include "compiler/ir/builder.h"
#include "compiler/ir/expr.h"

namespace nimble::passes {

// Rebuilds functions. The hook sees each binding after its operands were substituted and its
// nested blocks rewritten; it either appends to `out` and returns the atom that stands for the
// variable from now on, or returns nothing: the binding is kept as it is.
class Rewriter {
 public:
  using Hook = std::function<std::optional<ir::Atom>(const ir::Binding&, ir::BlockBuilder& out)>;
  explicit Rewriter(Hook hook) : hook_(std::move(hook)) {}

  ir::FunctionRef rewrite(const ir::FunctionRef& f);
  ir::BlockRef rewrite(const ir::BlockRef& b);
  ir::Atom resolve(const ir::Atom& a) const;
  bool changed() const { return changed_; }
  // From now on `v` stands for `a`.
  void substitute(const ir::VarRef& v, ir::Atom a) { map_[v.get()] = std::move(a); }

 private:
  ir::ExprRef rewrite(const ir::ExprRef& e);
  Hook hook_;
  std::unordered_map<const ir::Var*, ir::Atom> map_;
  bool changed_ = false;
};

// Applies `hook` to every function of a module.
ir::Module rewrite_module(const ir::Module& m, const Rewriter::Hook& hook);
// The same for a hook that asks of which function the binding is, as it was.
using FunctionHook = std::function<std::optional<ir::Atom>(
    const ir::Function& f, const ir::Binding&, ir::BlockBuilder& out)>;
ir::Module rewrite_module(const ir::Module& m, const FunctionHook& hook);

// How often each variable is used in a block, nested blocks included (a block's result counts).
using UseCounts = std::unordered_map<const ir::Var*, int>;
UseCounts count_uses(const ir::Block& b);
// Calls `visit` on every atom that an expression reads, nested blocks included.
void visit_atoms(const ir::Expr& e, const std::function<void(const ir::Atom&)>& visit);
void visit_atoms(const ir::Block& b, const std::function<void(const ir::Atom&)>& visit);
// Bytes of all constants of a module, each counted once.
int64_t constant_bytes(const ir::Module& m);
// Calls `visit` on every binding, nested blocks included, in order.
void visit_bindings(const ir::Block& b, const std::function<void(const ir::Binding&)>& visit);

// The expression with each nested block (branches, bodies of cases, a literal's body) replaced by
// what `f` makes of it; the same expression if none changes.
ir::ExprRef map_blocks(const ir::ExprRef& e,
                       const std::function<ir::BlockRef(const ir::BlockRef&)>& f);

// The definitions of a function by variable, nested blocks included.
using Definitions = std::unordered_map<const ir::Var*, const ir::Expr*>;
Definitions definitions_of(const ir::Function& f);
// The operator call that defines `a`, or null (parameter, constant, other expression).
const ir::Expr* definition(const Definitions& d, const ir::Atom& a, std::string_view op = {});

// Whether it is a call of the module's function of that name.
bool calls_function(const ir::Expr& e, std::string_view name);

// Whether the extents of an operator's result depend on data: not where it is told its count. False
// for what calls no operator.
bool decides_shapes(const ir::Expr& e);

// A rank-0 or one-element float constant's value.
std::optional<double> constant_value(const ir::Atom& a);

}  // namespace nimble::passes
