// Writes products and convolutions whose result is wider than their operands, and that no kernel
// takes so, as plain ones of the result's type:
//
//   y = matmul(x, W) {out = f32}    =>    y = matmul(cast(x) {dtype = f32}, cast(W) {dtype = f32})
//
// which is what they mean: products and sums are made in the result's type. Matrices that are
// computed at run time come here, and whatever pack-weights left.
//
// Kernels convolve floats only. The sums of bytes are integers below 2^53, and often below 2^24,
// which floats hold exactly, so a convolution of bytes is one of floats whose result is cast back.
// Through i64, where a sum may leave i32: it wraps there as i32 does. A bias is added behind it.
#include "compiler/ir/image_layout.h"
#include "compiler/ir/op.h"
#include "compiler/passes/passes.h"
#include "compiler/passes/support/has_kernel.h"
#include "compiler/passes/support/rewrite.h"
#include "compiler/passes/support/wide_form.h"

namespace nimble::passes {

using ir::Atom;
using ir::Expr;

namespace {

Atom cast(const Atom& a, DType to, const ir::Location& location, ir::BlockBuilder& out) {
  if (ir::type_of(a)->dtype == to) return a;
  const ir::VarRef v = out.call("cast", {a}, {{"dtype", to}}, "wide", location);
  v->type = ir::tensor_type(ir::type_of(a)->dims, to);
  return v;
}

// A convolution of bytes, computed in the float type `wide`.
Atom widened_bytes(const ir::Binding& b, DType wide, ir::BlockBuilder& out) {
  const Expr& e = *b.value;
  const ir::Type& result = b.var->type;
  const auto call = [&](const char* op, std::vector<Atom> args, ir::Attrs attrs,
                        std::vector<ir::Dim> dims, DType type) -> Atom {
    const ir::VarRef v = out.call(op, std::move(args), std::move(attrs), b.var->name, e.location);
    v->type = ir::tensor_type(std::move(dims), type);
    return v;
  };
  ir::Attrs attrs = e.attrs;
  attrs.erase("out");
  Atom y = call(e.op.c_str(),
                {cast(e.args[0], wide, e.location, out), cast(e.args[1], wide, e.location, out)},
                std::move(attrs), result->dims, wide);
  if (wide == DType::kF64) y = cast(y, DType::kI64, e.location, out);
  y = cast(y, result->dtype, e.location, out);
  if (e.args.size() < 3) return y;
  Atom bias = e.args[2];
  if (const ir::ImageLayout l = ir::image_layout_of(e.attrs); !l.channels_last()) {
    const std::vector<ir::Dim> along = {ir::type_of(bias)->dims[0], 1, 1};
    bias = call("reshape", {bias}, {{"shape", along}, {"allow_zero", true}}, along, result->dtype);
  }
  return call("add", {y, bias}, {}, result->dims, result->dtype);
}

}  // namespace

ir::Module widen_products(const ir::Module& m, PassContext& context) {
  const auto widen = [&](const ir::Function& f, const ir::Binding& b,
                         ir::BlockBuilder& out) -> std::optional<Atom> {
    const Expr& e = *b.value;
    if (e.kind != ir::ExprKind::kCall || ir::traits_of(e).packs == ir::Packs::kNothing ||
        !e.attrs.contains("out"))
      return std::nullopt;
    std::vector<ir::Type> operands;
    for (const Atom& a : e.args) operands.push_back(ir::type_of(a));
    const auto& result = b.var->type;
    for (const ir::Type& t : operands)
      if (!t || !result) return std::nullopt;  // nobody has typed it
    if (has_kernel(e, operands, result, context.target_in(f), context)) return std::nullopt;
    context.count("widen-products.widened");
    const DType type = wide_type(e, operands[1], result);
    if (type != result->dtype) return widened_bytes(b, type, out);
    auto wide = std::make_shared<Expr>(e);
    wide->attrs.erase("out");
    // A bias is of the type; a mask of bools stays one.
    for (Atom& a : wide->args)
      if (ir::type_of(a)->dtype != DType::kBool) a = cast(a, type, e.location, out);
    out.append({b.var, wide});
    return Atom(b.var);
  };
  return rewrite_module(m, widen);
}

}  // namespace nimble::passes
