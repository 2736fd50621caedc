// The matrix product that the template "conv2d_nhwc" takes a convolution for.
#pragma once

#include <optional>

#include "compiler/kernels/target.h"
#include "compiler/kernels/templates/conv_nhwc.h"
#include "compiler/kernels/templates/tile.h"

namespace nimble::kernels {

// A row is a pixel of the result, the columns are a group's output channels (n), and k runs over
// (kh, kw, c_in), of images with channels first over (c_in, kh, kw). Packed, each group has panels
// of its own; `stored` is 0 where the weights are a tensor HWIO.
struct ConvProduct : ConvNhwc, Panels {
  // An image is so many planes, one behind the other, of pixels with so many channels each.
  int64_t planes() const { return channels_first ? channels : 1; }
  int64_t depth() const { return channels_first ? 1 : channels; }
  // Elements from a pixel's channels to those of the next.
  int64_t pixel() const { return groups * depth(); }
  // First element of row `row` of the weights' matrix in a panel of a group.
  Dim row_of_panel(const Dim& group, const Dim& panel, const Dim& row) const;
};

// Nothing if the template does not serve the workload.
std::optional<ConvProduct> analyse_conv_product(const Workload& w, const TargetInfo& t);

}  // namespace nimble::kernels
