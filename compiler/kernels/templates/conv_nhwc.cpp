#include "compiler/kernels/templates/conv_nhwc.h"

#include "compiler/ir/axes.h"
#include "compiler/ir/image_layout.h"
#include "compiler/ir/op.h"
#include "compiler/ir/shapes.h"
#include "compiler/kernels/group.h"
#include "compiler/kernels/templates/knobs.h"
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

namespace {

using Source = ConvNhwc::Source;

// Where an image, or a slice of the channels of one, lies.
std::optional<Source> source_of(const Workload& w, const Frame& frame, const GroupEvaluator& group,
                                const ir::Atom& a) {
  using Dims = std::vector<Dim>;
  const auto channels = ir::type_of(a)->dims[3].as_constant();
  if (!channels) return {};
  if (const BufferRef whole = parameter_buffer(w, frame, a))
    return Source{whole, *channels, 0, *channels};
  const ir::Expr* e = group.definition(a);
  if (!e || e->op != "slice" || e->args.size() != 1) return {};
  const auto& axes = ir::attr<std::vector<int64_t>>(e->attrs, "axes");
  const Dims steps = ir::attr_or<Dims>(e->attrs, "steps", Dims(axes.size(), 1));
  if (axes != std::vector<int64_t>{3} || !steps[0].is_constant(1)) return {};
  const BufferRef wide = parameter_buffer(w, frame, e->args[0]);
  if (!wide) return {};
  const Dim all = ir::type_of(e->args[0])->dims[3];
  const auto first = ir::slice_bounds(all, ir::attr<Dims>(e->attrs, "starts")[0],
                                      ir::attr<Dims>(e->attrs, "ends")[0], 1, ir::DimContext())
                         .first.as_constant();
  const auto pitch = all.as_constant();
  if (!first || !pitch) return {};
  return Source{wide, *pitch, *first, *channels};
}

// The sources of an image that is no parameter; none if it is another value.
std::vector<Source> sources_of(const Workload& w, const Frame& frame, const ir::Atom& image) {
  constexpr size_t kMost = 8;  // each has code of its own
  const GroupEvaluator group(*w.group, frame.parameters);
  std::vector<ir::Atom> parts = {image};
  if (const ir::Expr* e = group.definition(image); e && e->op == "concat") {
    if (ir::axis_of(*e) != 3) return {};
    parts = e->args;
  }
  std::vector<Source> all;
  for (const ir::Atom& a : parts) {
    const auto source = source_of(w, frame, group, a);
    if (!source) return {};
    if (source->channels > 0) all.push_back(*source);
  }
  if (all.size() > kMost) all.clear();
  return all;
}

}  // namespace

std::optional<ConvNhwc> analyse_conv_nhwc(const Workload& w, bool parts) {
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
  if (!is_float(p.dtype) && p.dtype != DType::kI32) return {};
  if (size_of(p.dtype) < 4) return {};
  const BufferRef whole = parameter_buffer(w, p.frame, e.args[0]);
  if (!whole && parts) p.sources = sources_of(w, p.frame, e.args[0]);
  p.image = p.sources.empty() ? whole : p.sources[0].image;
  p.weights = parameter_buffer(w, p.frame, e.args[1]);
  if (!p.image || (!p.weights && !e.args[1].is_constant())) return {};
  if (packed) p.layout = ir::parse_layout(ir::attr<std::string>(e.attrs, "layout"));
  const DType weights_type = p.weights ? p.weights->dtype : p.dtype;
  if (p.image->dtype != p.dtype || weights_type != p.dtype) {
    if (!p.weights) return {};
    p.fragment = p.layout
                     ? fragment_of_groups(p.image->dtype, weights_type, p.dtype, p.layout->group)
                     : fragment_of(p.image->dtype, weights_type, p.dtype);
    // Only packed ones are converted on the way.
    if (!p.fragment &&
        !(packed && is_converted(p.image->dtype, p.dtype) && is_converted(weights_type, p.dtype)))
      return {};
  }
  // Integers are bytes that a fragment sums.
  if (!p.fragment && !is_float(p.dtype)) return {};
  if (e.args.size() == 3 && !e.args[2].is_constant() && !parameter_buffer(w, p.frame, e.args[2]))
    return {};
  p.in = ir::type_of(e.args[0])->dims;
  p.out = p.frame.anchor->var->type->dims;
  std::array<int64_t, 2> taps{};
  if (packed) {
    const auto& kernel = ir::attr<std::vector<int64_t>>(e.attrs, "kernel");
    taps = {kernel[0], kernel[1]};
    if (!p.layout || p.layout->kind != ir::Layout::Kind::kPanel || !p.weights) return {};
    if (p.layout->group != group_of(p.fragment)) return {};
    const ir::ImageLayout image =
        *ir::parse_image_layout(ir::attr_or<std::string>(e.attrs, "image_layout", "nhwc"));
    p.channels_first = !image.channels_last();
    if (p.channels_first && !p.sources.empty()) return {};
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
  if (p.sources.size() > 1 && p.groups > 1) return {};
  const int64_t all = p.groups * p.channels;
  if (p.sources.empty()) p.sources = {{p.image, all, 0, all}};
  p.windows = windows_of(e.attrs, {p.in[1], p.in[2]}, {p.out[1], p.out[2]}, taps);
  return p;
}

Knob conv_rows_knob(const TargetInfo& t, int64_t vectors) {
  const int most = max_tile_rows(t, vectors);
  Knob rows{"rows", {}, /*tile=*/true};
  for (int64_t r : {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 13, 14, 16, 20, 24, 28})
    if (r <= most && r * 4 >= most) rows.choices.emplace_back(r);
  return rows;
}

}  // namespace nimble::kernels
