// The matrix product that the template "conv2d_nhwc" takes a convolution for.
#pragma once

#include <optional>

#include "compiler/kernels/target.h"
#include "compiler/kernels/templates/conv_nhwc.h"
#include "compiler/kernels/templates/tile.h"

namespace nimble::kernels {

// A row is a pixel of the result, the columns are a group's output channels (n), and k runs over
// (kh, kw, c_in). Packed, each group has panels of its own; `stored` is 0 where the weights are a
// tensor HWIO.
// By a fragment, a step takes a group of a pixel's channels, which are a multiple of it.
struct ConvProduct : ConvNhwc, Panels {
  // Of a tap's channels.
  int64_t channel_steps() const { return channels / group; }
  // Elements from a pixel's channels to those of the next.
  int64_t pixel() const { return groups * channels; }
  // First element of step `step` of the weights' matrix in a panel of group `g`.
  Dim row_of_panel(const Dim& g, const Dim& panel, const Dim& step) const;
};

// Nothing if the template does not serve the workload.
std::optional<ConvProduct> analyse_conv_product(const Workload& w, const TargetInfo& t);

}  // namespace nimble::kernels
