// Writes into the module what the policy of the compilation computes in narrower numbers
// (Precision.def): such a product gets its constant weights in the narrow type, its other operand
// through a cast, and `out`, the type that it had and in which it goes on adding up.
//
//   y = matmul(x, W)    =>    n = cast(x) {dtype = bf16};  y = matmul(n, W') {out = f32}
//
// A value is cast once, right behind the operator that makes it, whatever number of products read
// it: there the cast goes into that operator's kernel (fuse). A value that was cast up from the
// narrow type is taken as it was before.
//
// Only what pack-weights can lay out is narrowed, since the kernels of narrow products read packed
// weights. These have whole groups of rows (ir::Layout): a product over a number of terms that is
// no multiple of the group stays wide, since a row of the other operand would end within a group
// and the kernel read over its end.
#include <map>
#include <unordered_map>
#include <unordered_set>

#include "compiler/ir/layout.h"
#include "compiler/ir/op.h"
#include "compiler/kernels/templates/conv2d_nhwc.h"
#include "compiler/kernels/templates/dense.h"
#include "compiler/passes/pack_weights.h"
#include "compiler/passes/passes.h"
#include "compiler/passes/support/rewrite.h"
#include "compiler/reference/reference.h"

namespace nimble::passes {
namespace {

using ir::Atom;
using ir::Binding;
using ir::Expr;
using ir::Var;
using ir::VarRef;

class Narrowing {
 public:
  explicit Narrowing(PassContext& context) : context_(context) {}

  ir::FunctionRef run(const ir::FunctionRef& f) {
    definitions_ = definitions_of(*f);
    plan(*f);
    Rewriter rewriter([&](const Binding& b, ir::BlockBuilder& out) { return visit(b, out); });
    ir::FunctionRef made = rewriter.rewrite(f);
    ir::BlockBuilder first;
    for (const VarRef& p : f->parameters) append_casts(p, p->location, first);
    if (first.bindings().empty()) return made;
    auto body = std::make_shared<ir::Block>(*made->body);
    body->bindings.insert(body->bindings.begin(), first.bindings().begin(), first.bindings().end());
    auto copy = std::make_shared<ir::Function>(*made);
    copy->body = std::move(body);
    return copy;
  }

 private:
  // Names the casts of what bindings and callers make. Variables of patterns are neither: those are
  // cast where they are read.
  void plan(const ir::Function& f) {
    casts_.clear();
    std::unordered_set<const Var*> made;
    for (const VarRef& p : f.parameters) made.insert(p.get());
    visit_bindings(*f.body, [&](const Binding& b) {
      made.insert(b.var.get());
      const PrecisionRule* rule = rule_for(*b.value);
      if (!rule) return;
      const Atom x = source(b.value->args[0], *rule);
      if (x.is_var() && made.contains(x.var.get()) && x.var->type->dtype != rule->operands &&
          !cast_of(x.var, rule->operands))
        casts_[x.var.get()].push_back(narrow_variable(x.var, rule->operands));
    });
  }

  // The rule by which a call is narrowed; null if by none.
  const PrecisionRule* rule_for(const Expr& e) const {
    if (e.kind != ir::ExprKind::kCall) return nullptr;
    const PrecisionRule* rule = rule_of(context_.precision, ir::traits_of(e).packs);
    if (!rule || !is_float(rule->operands)) return nullptr;
    int64_t k = 0;  // what lies in a row of the other operand, or in a pixel of a group
    std::string layout;
    if (rule->packs == ir::Packs::kMatrix && is_packable_product(e, rule->sums, rule->sums)) {
      const auto& shape = e.args[1].constant->shape;
      const bool transposed = ir::attr_or(e.attrs, "transpose_b", false);
      k = shape[transposed ? 1 : 0];
      const int64_t n = shape[transposed ? 0 : 1];
      layout = kernels::dense_layout(context_.target, rule->operands, n);
    }
    if (rule->packs == ir::Packs::kFilters && is_packable_convolution(e, rule->sums, rule->sums)) {
      const auto& shape = e.args[1].constant->shape;
      k = shape[2];
      const int64_t n = shape[3] / ir::attr<int64_t>(e.attrs, "groups");
      layout = kernels::conv2d_nhwc_layout(context_.target, rule->operands, n);
    }
    const auto packed = ir::parse_layout(layout);
    return packed && k % packed->group == 0 ? rule : nullptr;
  }

  // The operand of a product, or what it was before it was cast up from the narrow type.
  Atom source(const Atom& x, const PrecisionRule& rule) const {
    const Expr* e = definition(definitions_, x, "cast");
    return e && ir::type_of(e->args[0])->dtype == rule.operands ? e->args[0] : x;
  }

  VarRef cast_of(const VarRef& v, DType type) const {
    if (const auto it = casts_.find(v.get()); it != casts_.end())
      for (const VarRef& c : it->second)
        if (c->type->dtype == type) return c;
    return nullptr;
  }
  static VarRef narrow_variable(const VarRef& v, DType type) {
    return ir::make_var(v->name + "." + std::string(name_of(type)),
                        ir::tensor_type(v->type->dims, type));
  }
  void append_cast(const VarRef& cast, const Atom& of, const ir::Location& location,
                   ir::BlockBuilder& out) {
    context_.count("set-precision.casts");
    out.append({cast, ir::make_call("cast", {of}, {{"dtype", cast->type->dtype}}, location)});
  }
  void append_casts(const VarRef& v, const ir::Location& location, ir::BlockBuilder& out) {
    if (const auto it = casts_.find(v.get()); it != casts_.end())
      for (const VarRef& c : it->second) append_cast(c, v, location, out);
  }

  std::optional<Atom> visit(const Binding& b, ir::BlockBuilder& out) {
    const PrecisionRule* rule = rule_for(*b.value);
    if (!rule && !casts_.contains(b.var.get())) return std::nullopt;
    out.append(rule ? Binding{b.var, narrowed(*b.value, *rule, out)} : b);
    append_casts(b.var, b.value->location, out);
    return Atom(b.var);
  }

  ir::ExprRef narrowed(const Expr& product, const PrecisionRule& rule, ir::BlockBuilder& out) {
    context_.count("set-precision.products");
    auto copy = std::make_shared<Expr>(product);
    copy->args[0] = narrowed(source(product.args[0], rule), rule.operands, product.location, out);
    copy->args[1] = narrowed(product.args[1], rule.operands, product.location, out);
    copy->attrs["out"] = rule.sums;
    return copy;
  }

  Atom narrowed(const Atom& a, DType type, const ir::Location& location, ir::BlockBuilder& out) {
    if (ir::type_of(a)->dtype == type) return a;
    if (a.is_constant()) {
      ir::TensorRef& narrow = constants_[{a.constant.get(), type}];
      if (!narrow) {
        const ir::ExprRef cast = ir::make_call("cast", {a}, {{"dtype", type}}, location);
        narrow = reference::evaluate_op(*cast, {a.constant}, {}).at(0);
      }
      return Atom::of(narrow);
    }
    if (VarRef cast = cast_of(a.var, type)) return cast;
    const VarRef cast = narrow_variable(a.var, type);
    append_cast(cast, a, location, out);
    return cast;
  }

  PassContext& context_;
  Definitions definitions_;
  std::unordered_map<const Var*, std::vector<VarRef>> casts_;  // of the function
  // Of the module: a matrix that two products share is narrowed once.
  std::map<std::pair<const ir::Tensor*, DType>, ir::TensorRef> constants_;
};

}  // namespace

ir::Module set_precision(const ir::Module& m, PassContext& context) {
  Narrowing narrowing(context);
  ir::Module out = m;
  for (auto& [name, f] : out.functions) f = narrowing.run(f);
  return out;
}

}  // namespace nimble::passes
