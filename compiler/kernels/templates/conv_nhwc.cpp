#include "compiler/kernels/templates/conv_nhwc.h"

#include "compiler/ir/image_layout.h"
#include "compiler/ir/op.h"
#include "compiler/kernels/templates/tile.h"

namespace nimble::kernels {

namespace kb = kir::build;
using kir::BufferRef;
using kir::Dim;
using kir::ValueRef;

ValueRef ConvNhwc::weight(const Dim& index, int lanes, const std::optional<Dim>& valid) const {
  if (!weights) return kb::number(dtype, call().args[1].constant->value(0), lanes);
  return valid ? kb::load_masked(weights, index, lanes, *valid) : kb::load(weights, index, lanes);
}

ValueRef ConvNhwc::bias(const Workload& w, const Dim& channel, int lanes,
                        const std::optional<Dim>& valid) const {
  if (call().args.size() < 3) return nullptr;
  const ir::Atom& a = call().args[2];
  // A constant of one element (the bias of a single filter) is part of the group.
  if (a.is_constant()) return kb::number(dtype, a.constant->value(0), lanes);
  const BufferRef b = parameter_buffer(w, frame, a);
  return valid ? kb::load_masked(b, channel, lanes, *valid) : kb::load(b, channel, lanes);
}

std::optional<ConvNhwc> analyse_conv_nhwc(const Workload& w) {
  const bool packed = w.anchor == "packed_conv2d";
  if (!packed && w.anchor != "conv2d") return {};
  ConvNhwc p;
  p.frame = make_frame(w);
  if (!p.frame.anchor) return {};
  const ir::Expr& e = p.call();
  if (!packed && !ir::image_layout_of(e.attrs).channels_last()) return {};
  if (ir::has_padding(e.attrs) && !ir::attr_or(e.attrs, "skip_padding", false)) return {};
  if (!has_elementwise_epilogue(w, p.frame)) return {};
  p.dtype = p.frame.anchor->var->type->dtype;
  if (p.dtype != DType::kF32 && p.dtype != DType::kF64) return {};
  p.image = parameter_buffer(w, p.frame, e.args[0]);
  p.weights = parameter_buffer(w, p.frame, e.args[1]);
  if (!p.image || (!p.weights && !e.args[1].is_constant())) return {};
  const DType weights_type = p.weights ? p.weights->dtype : p.dtype;
  if (p.image->dtype != p.dtype || weights_type != p.dtype) {
    if (!p.weights) return {};
    p.fragment = fragment_of(p.image->dtype, weights_type, p.dtype);
    // Only packed ones are converted on the way.
    if (!p.fragment &&
        !(packed && is_converted(p.image->dtype, p.dtype) && is_converted(weights_type, p.dtype)))
      return {};
  }
  if (e.args.size() == 3 && !e.args[2].is_constant() && !parameter_buffer(w, p.frame, e.args[2]))
    return {};
  p.in = ir::type_of(e.args[0])->dims;
  p.out = p.frame.anchor->var->type->dims;
  std::array<int64_t, 2> taps{};
  if (packed) {
    const auto& kernel = ir::attr<std::vector<int64_t>>(e.attrs, "kernel");
    taps = {kernel[0], kernel[1]};
    p.layout = ir::parse_layout(ir::attr<std::string>(e.attrs, "layout"));
    if (!p.layout || p.layout->kind != ir::Layout::Kind::kPanel || !p.weights ||
        p.layout->group != group_of(p.fragment))
      return {};
    const ir::ImageLayout image =
        *ir::parse_image_layout(ir::attr_or<std::string>(e.attrs, "image_layout", "nhwc"));
    p.channels_first = !image.channels_last();
    if (p.channels_first && p.fragment) return {};  // neighbours of a plane are no group
    if (p.channels_first) p.in = {p.in[0], p.in[2], p.in[3], p.in[1]};
    const auto channels = p.in[3].as_constant();
    if (!channels) return {};
    p.groups = ir::attr_or<int64_t>(e.attrs, "groups", 1);
    p.channels = *channels / p.groups;
    p.filters = ir::attr<int64_t>(e.attrs, "filters") / p.groups;
  } else {
    // Of a constant the type is made for the question.
    const std::vector<Dim> weights = ir::type_of(e.args[1])->dims;
    std::vector<int64_t> shape;
    for (const Dim& d : weights) {
      if (!d.as_constant()) return {};
      shape.push_back(*d.as_constant());
    }
    taps = {shape[0], shape[1]};
    p.groups = ir::attr<int64_t>(e.attrs, "groups");
    p.channels = shape[2];
    p.filters = shape[3] / p.groups;
  }
  if (p.channels < 1 || p.filters < 1) return {};
  p.windows = windows_of(e.attrs, {p.in[1], p.in[2]}, {p.out[1], p.out[2]}, taps);
  return p;
}

}  // namespace nimble::kernels
