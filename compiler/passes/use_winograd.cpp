// Makes convolutions by Winograd's tiles (compiler/ir/winograd.h) where the compilation asks for
// it: of channels-last images of f32 and constant weights, 3 x 3 taps, steps of 1, one group.
//
//   y = conv2d(x, w, b) {strides = [1, 1], pads = …, layout = "nhwc"}
//     ->  y = packed_winograd(x, u, b) {tile = 4, filters = …, pads = …, layout = "panel32"}
//
// where u are the transformed weights, laid out in panels, a constant. Results are not quite those
// of the plain convolution, so nothing of it happens unasked, and which tiles are taken is decided
// here, once for all sizes that an image may have at run time.
//
// Tiles of 4 x 4 pixels have fewer multiplications than those of 2 x 2, but four times as many
// weights as the convolution: where these are many, reading them would take longer than what is
// saved. Of few channels the transforms are most of the work, and of an image that is known to be
// small, whatever hangs over its border. What has f16, bf16 or bytes as operands, by its own types
// or by the policy of precision, was narrowed by passes ahead of this one and stays as it is.
#include <map>
#include <utility>

#include "compiler/ir/op.h"
#include "compiler/ir/winograd.h"
#include "compiler/kernels/templates/dense.h"
#include "compiler/passes/pack_weights.h"
#include "compiler/passes/passes.h"
#include "compiler/passes/support/has_kernel.h"
#include "compiler/passes/support/rewrite.h"

namespace nimble::passes {
namespace {

using ir::Atom;
using ir::Expr;
using Ints = std::vector<int64_t>;

constexpr int64_t kFewestChannels = 16;           // of the image and of the result
constexpr int64_t kMostBytes = int64_t{4} << 20;  // of weights for tiles of more than 2 x 2

bool has_form(const Expr& e) {
  if (e.kind != ir::ExprKind::kCall || ir::traits_of(e).packs != ir::Packs::kFilters ||
      e.attrs.contains("out") || !is_packable_convolution(e, DType::kF32, DType::kF32))
    return false;
  const Ints& shape = e.args[1].constant->shape;
  const Ints ones = {1, 1};
  return shape[0] == ir::Winograd::kTaps && shape[1] == ir::Winograd::kTaps &&
         shape[2] >= kFewestChannels && shape[3] >= kFewestChannels &&
         ir::attr<int64_t>(e.attrs, "groups") == 1 && ir::attr<Ints>(e.attrs, "strides") == ones &&
         ir::attr<Ints>(e.attrs, "dilations") == ones;
}

// Whether tiles save a quarter of the multiplications of an image's result, unless its size is not
// known, and have not too many weights.
bool pays(const ir::Winograd& form, const Expr& e, const ir::Type& result) {
  const Ints& shape = e.args[1].constant->shape;
  const int64_t bytes = form.products() * shape[2] * shape[3] * static_cast<int64_t>(sizeof(float));
  if (form.tile > 2 && bytes > kMostBytes) return false;
  const auto height = result->dims[1].as_constant(), width = result->dims[2].as_constant();
  if (!height || !width) return true;
  const auto tiles = [&](int64_t extent) { return (extent + form.tile - 1) / form.tile; };
  constexpr int64_t kTaps = ir::Winograd::kTaps * ir::Winograd::kTaps;
  return 4 * form.products() * tiles(*height) * tiles(*width) <= 3 * kTaps * *height * *width;
}

// The largest tiles that pay, of at most so many pixels along an axis; null if none do.
const ir::Winograd* form_for(const Expr& e, const ir::Type& result, int64_t most) {
  for (int64_t tile = most; tile > 0; --tile)
    if (const ir::Winograd* form = ir::find_winograd(tile); form && pays(*form, e, result))
      return form;
  return nullptr;
}

}  // namespace

ir::Module use_winograd(const ir::Module& m, PassContext& context) {
  if (context.winograd == 0 || !context.packs_weights()) return m;
  // Of the module: weights that two convolutions share are transformed once.
  std::map<std::pair<const ir::Tensor*, int64_t>, ir::TensorRef> transformed;
  return rewrite_module(m, [&](const ir::Binding& b, ir::BlockBuilder& o) -> std::optional<Atom> {
    const Expr& e = *b.value;
    if (!has_form(e)) return std::nullopt;
    const ir::Winograd* form = form_for(e, b.var->type, context.winograd);
    if (!form) return std::nullopt;
    const ir::Tensor& weights = *e.args[1].constant;
    const ir::Layout layout =
        *ir::parse_layout(kernels::dense_layout(context.target, DType::kF32, weights.shape[3]));
    const auto [place, is_new] = transformed.try_emplace({&weights, form->tile});
    if (is_new) place->second = ir::winograd_weights(weights, *form, layout);
    if (!place->second) return std::nullopt;  // not finite
    std::vector<Atom> args = e.args;
    args[1] = Atom::of(place->second);
    ir::Attrs attrs = {
        {"filters", weights.shape[3]}, {"pads", e.attrs.at("pads")}, {"layout", layout.str()}};
    attrs["tile"] = form->tile;
    std::vector<ir::Type> types;
    for (const Atom& a : args) types.push_back(ir::type_of(a));
    const ir::ExprRef call = ir::make_call("packed_winograd", {}, attrs);
    if (!has_kernel(*call, types, b.var->type, context.target, context)) return std::nullopt;
    context.count("use-winograd.convolutions");
    const ir::VarRef y =
        o.call("packed_winograd", std::move(args), std::move(attrs), b.var->name, e.location);
    y->type = b.var->type;
    return Atom(y);
  });
}

}  // namespace nimble::passes
