// Shape formulas that type relations, shape functions, kernels and the reference interpreter
// share, so that an operator's extents are defined in one place.
#pragma once

#include <vector>

#include "compiler/ir/dim.h"

namespace nimble::ir {

// A strided slice of an axis of extent `extent`: element i of the result is element
// first + i*step of the axis. Bounds are ONNX's: negative ones count from the end, then clamp.
// A step that only the run knows must not be 0, which the caller checks: the count means nothing
// then.
struct SliceBounds {
  Dim first, count;
};
SliceBounds slice_bounds(const Dim& extent, const Dim& start, const Dim& end, const Dim& step,
                         const DimContext& facts);

// 1 where a step is not 0, else 0.
Dim is_step(const Dim& step);
// ceil(span / step) for a step of either sign; anything for a step of 0.
Dim steps_in(const Dim& span, const Dim& step);

// Positions of a window of `kernel` taps (dilated) over an extent padded by `before` and
// `after`. With `ceil_mode` a last window may hang over the end if it starts inside the padded
// front or the data.
Dim window_count(const Dim& extent, int64_t kernel, int64_t stride, int64_t before, int64_t after,
                 int64_t dilation, bool ceil_mode, const DimContext& facts);

}  // namespace nimble::ir
