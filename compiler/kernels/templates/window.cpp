#include "compiler/kernels/templates/window.h"

#include <limits>
#include <vector>

#include "compiler/ir/image_layout.h"
#include "compiler/ir/op.h"
#include "compiler/kernels/group.h"

namespace nimble::kernels {

using kir::Dim;

namespace {

// The first tap that is not below element 0, and the one behind the last that is below `extent`.
Dim first_at(const Dim& start, int64_t dilation) {
  return ir::max(ir::ceildiv(0 - start, dilation), 0);
}
Dim end_at(const Dim& start, const Dim& extent, int64_t taps, int64_t dilation) {
  return ir::min(ir::floordiv(extent - 1 - start, dilation) + 1, taps);
}

}  // namespace

Dim Window::begin_tap(const Dim& start) const {
  return clipped ? first_at(start, dilation) : Dim(0);
}

Dim Window::end_tap(const Dim& start) const {
  return clipped ? end_at(start, in, taps, dilation) : Dim(taps);
}

Dim Window::counted(const Dim& position, bool with_padding) const {
  const Dim from = position * stride - (with_padding ? 0 : before);
  const Dim extent = with_padding ? in + before + after : in;
  return ir::max(end_at(from, extent, taps, dilation) - first_at(from, dilation), 0);
}

Dim Window::first_with(const Dim& tap) const {
  return clipped ? first_at(tap * dilation - before, stride) : Dim(0);
}

Dim Window::end_with(const Dim& tap) const {
  return clipped ? ir::min(ir::floordiv(in - 1 + before - tap * dilation, stride) + 1, out) : out;
}

Dim Window::begin_inside() const {
  return ir::min(first_with(0), out);
}

Dim Window::end_inside() const {
  return ir::max(begin_inside(), end_with(taps - 1));
}

Window Window::with_extents(const Dim& image, const Dim& result) const {
  Window w = *this;
  w.in = image;
  w.out = result;
  return w;
}

std::array<Window, 2> windows_of(const ir::Attrs& attrs, const std::array<Dim, 2>& in,
                                 const std::array<Dim, 2>& out,
                                 const std::array<int64_t, 2>& taps) {
  using Ints = std::vector<int64_t>;
  const auto& strides = ir::attr<Ints>(attrs, "strides");
  const auto& pads = ir::attr<Ints>(attrs, "pads");
  const auto& dilations = ir::attr<Ints>(attrs, "dilations");
  std::array<Window, 2> all;
  for (size_t i = 0; i < 2; ++i) {
    all[i] = {in[i], out[i], taps[i], strides[i], pads[i], pads[2 + i], dilations[i]};
    // Rounded up, the last window may end behind the image.
    all[i].clipped =
        pads[i] != 0 || pads[2 + i] != 0 || ir::attr_or<bool>(attrs, "ceil_mode", false);
  }
  return all;
}

bool is_pooling(const Workload& w, bool channels_last, bool narrow) {
  if (w.anchor != "max_pool2d" && w.anchor != "avg_pool2d") return false;
  const DType t = w.group->result_type->dtype;
  const std::vector<ir::Binding>& calls = w.group->body->bindings;
  // Behind it stands at most what makes the result a part.
  return (calls.size() == 1 || (calls.size() == 2 && ir::traits_of(*calls[1].value).in_out)) &&
         ir::image_layout_of(calls[0].value->attrs).channels_last() == channels_last &&
         (narrow || compute_type(t) == t) && t != DType::kBool;
}

kir::ValueRef least_of(DType t, int lanes) {
  namespace kb = kir::build;
  if (is_float(t)) return kb::number(t, -std::numeric_limits<double>::infinity(), lanes);
  if (!is_signed_int(t)) return kb::integer(t, 0, lanes);
  const int unused = 64 - 8 * static_cast<int>(size_of(t));
  return kb::integer(t, std::numeric_limits<int64_t>::min() >> unused, lanes);
}

}  // namespace nimble::kernels
