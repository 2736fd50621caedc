#include "compiler/ir/ops/work.h"

#include <numeric>

#include "compiler/ir/image_layout.h"
#include "compiler/ir/winograd.h"

namespace nimble::ir {
namespace {

using Extents = std::vector<double>;

double product(Extents::const_iterator begin, Extents::const_iterator end) {
  return std::accumulate(begin, end, 1.0, std::multiplies<>());
}
double product(const Extents& extents) {
  return product(extents.begin(), extents.end());
}

}  // namespace

double sums_of_matmul(const CallExtents& c) {
  const Extents& x = c.operands[0];
  if (x.empty()) return 1;
  const bool transposed = x.size() > 1 && attr_or(c.attrs, "transpose_a", false);
  return x[x.size() - (transposed ? 2 : 1)];
}

double sums_of_packed_matmul(const CallExtents& c) {
  return static_cast<double>(attr<int64_t>(c.attrs, "k"));
}

double sums_of_conv2d(const CallExtents& c) {
  Extents weights = c.operands[1];
  weights[image_layout_of(c.attrs).filter] = 1;
  return product(weights);
}

double sums_of_packed_conv2d(const CallExtents& c) {
  const auto image = parse_image_layout(attr_or<std::string>(c.attrs, "image_layout", "nhwc"));
  double terms = c.operands[0][image->channel];
  for (int64_t extent : attr<std::vector<int64_t>>(c.attrs, "kernel"))
    terms *= static_cast<double>(extent);
  return terms / static_cast<double>(attr_or<int64_t>(c.attrs, "groups", 1));
}

double sums_of_winograd(const CallExtents& c) {
  return static_cast<double>(winograd_of(c.attrs).products()) * c.operands[0].back();
}

double flops_of_winograd(const CallExtents& c) {
  const Winograd& form = winograd_of(c.attrs);
  return 2 * sums_of_winograd(c) * c.results / static_cast<double>(form.tile * form.tile);
}

double sums_of_attention(const CallExtents& c) {
  return c.operands[0].back() + c.operands[1][1];
}

double sums_of_cell(const CallExtents& c) {
  return c.operands[1].back();
}

double sums_along_axes(const CallExtents& c) {
  const Extents& x = c.operands[0];
  auto axes = attr_or<std::vector<int64_t>>(c.attrs, "axes", {});
  if (c.attrs.contains("axis")) axes = {attr<int64_t>(c.attrs, "axis")};
  double terms = 1;
  for (int64_t axis : axes) terms *= x.at(static_cast<size_t>(axis));
  return terms;
}

double sums_from_axis(const CallExtents& c) {
  const Extents& x = c.operands[0];
  return product(x.begin() + static_cast<long>(attr<int64_t>(c.attrs, "axis")), x.end());
}

double sums_of_window(const CallExtents& c) {
  double terms = 1;
  for (int64_t extent : attr<std::vector<int64_t>>(c.attrs, "kernel"))
    terms *= static_cast<double>(extent);
  return terms;
}

double flops_of_attention(const CallExtents& c) {
  // Each element of a head's query meets every key, and each key's weight an element of its value.
  return 4 * c.operands[1][1] * c.results;
}

double flops_of_window(const CallExtents& c) {
  return sums_of_window(c) * c.results;
}

double flops_of_operand(const CallExtents& c) {
  return product(c.operands[0]);
}

}  // namespace nimble::ir
