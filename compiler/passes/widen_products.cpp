// Writes products and convolutions whose result is wider than their operands, and that no kernel
// takes so, as plain ones of the result's type:
//
//   y = matmul(x, W) {out = f32}    =>    y = matmul(cast(x) {dtype = f32}, cast(W) {dtype = f32})
//
// which is what they mean: products and sums are made in the result's type. Matrices that are
// computed at run time come here, and whatever pack-weights left.
#include "compiler/ir/op.h"
#include "compiler/passes/passes.h"
#include "compiler/passes/support/has_kernel.h"
#include "compiler/passes/support/rewrite.h"

namespace nimble::passes {

using ir::Atom;
using ir::Expr;

ir::Module widen_products(const ir::Module& m, PassContext& context) {
  return rewrite_module(m, [&](const ir::Binding& b, ir::BlockBuilder& out) -> std::optional<Atom> {
    const Expr& e = *b.value;
    if (e.kind != ir::ExprKind::kCall || ir::traits_of(e).packs == ir::Packs::kNothing ||
        !e.attrs.contains("out"))
      return std::nullopt;
    std::vector<ir::Type> operands;
    for (const Atom& a : e.args) operands.push_back(ir::type_of(a));
    const auto& result = b.var->type;
    for (const ir::Type& t : operands)
      if (!t || !result) return std::nullopt;  // nobody has typed it
    if (has_kernel(e, operands, result, context)) return std::nullopt;
    auto wide = std::make_shared<Expr>(e);
    wide->attrs.erase("out");
    for (Atom& a : wide->args) {
      if (ir::type_of(a)->dtype == result->dtype) continue;  // a bias
      const ir::VarRef v = out.call("cast", {a}, {{"dtype", result->dtype}}, "wide", e.location);
      v->type = ir::tensor_type(ir::type_of(a)->dims, result->dtype);
      a = v;
    }
    out.append({b.var, wide});
    context.count("widen-products.widened");
    return Atom(b.var);
  });
}

}  // namespace nimble::passes
