// Padding of channels-last convolutions, as their kernels take it.
//
// The kernels leave out taps that fall into the padding. That is what the attribute `skip_padding`
// says, and the same as padding with zeros where all weights are finite: the pass sets it there.
// Where a weight is infinite or NaN, or known to the run only, a zero may count, so the image is
// padded with zeros ahead of the convolution:
//
//   let %y = conv2d(%x, %w) {pads = [1, 1, 1, 1], layout = "nhwc"}
//     ->  let %p = pad(%x) {before = (0, 1, 1, 0), after = (0, 1, 1, 0), value = 0}
//         let %y = conv2d(%p, %w) {pads = [0, 0, 0, 0], layout = "nhwc"}
//
// channels-last turns only those of the first kind; the others are the program's own.
#include "compiler/ir/image_layout.h"
#include "compiler/passes/passes.h"
#include "compiler/passes/support/padding.h"
#include "compiler/passes/support/rewrite.h"

namespace nimble::passes {
namespace {

using ir::Atom;
using ir::Dim;
using ir::Expr;

// A convolution of channels-last images, packed or not, whose padding is zeros.
bool is_padded(const Expr& e) {
  return e.kind == ir::ExprKind::kCall && e.args.size() > 1 && e.attrs.contains("pads") &&
         ir::attr_or<std::string>(e.attrs, "layout", "nchw") != "nchw" &&
         !ir::attr_or(e.attrs, "skip_padding", false) && ir::has_padding(e.attrs) &&
         ir::type_of(e.args[0]) != nullptr;
}

}  // namespace

ir::Module expand_padding(const ir::Module& m, PassContext& context) {
  return rewrite_module(m, [&](const ir::Binding& b, ir::BlockBuilder& o) -> std::optional<Atom> {
    const Expr& e = *b.value;
    if (!is_padded(e)) return std::nullopt;
    ir::Attrs attrs = e.attrs;
    std::vector<Atom> args = e.args;
    if (may_skip_padding(e)) {
      context.count("expand-padding.skipped");
      attrs["skip_padding"] = true;
    } else {
      context.count("expand-padding.padded");
      const auto& pads = ir::attr<std::vector<int64_t>>(e.attrs, "pads");
      // A packed convolution may read images with channels first.
      const ir::ImageLayout axes =
          *ir::parse_image_layout(ir::attr_or<std::string>(e.attrs, "image_layout", "nhwc"));
      std::vector<Dim> before(4, Dim(0)), after(4, Dim(0));
      for (size_t i = 0; i < 2; ++i) {
        before[axes.spatial[i]] = Dim(pads[i]);
        after[axes.spatial[i]] = Dim(pads[2 + i]);
      }
      const ir::Type image = ir::type_of(e.args[0]);
      std::vector<Dim> dims = image->dims;
      for (size_t i = 0; i < dims.size(); ++i) dims[i] = dims[i] + before[i] + after[i];
      const ir::VarRef padded =
          o.call("pad", {e.args[0]}, {{"before", before}, {"after", after}, {"value", 0.0}},
                 "padded", e.location);
      padded->type = ir::tensor_type(std::move(dims), image->dtype);
      args[0] = padded;
      attrs["pads"] = std::vector<int64_t>(4, 0);
    }
    const ir::VarRef y = o.call(e.op, std::move(args), std::move(attrs), b.var->name, e.location);
    y->type = b.var->type;
    return Atom(y);
  });
}

}  // namespace nimble::passes
