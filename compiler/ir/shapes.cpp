#include "compiler/ir/shapes.h"

#include "vm/base/error.h"

namespace nimble::ir {
namespace {

constexpr int64_t kHuge = int64_t{1} << 62;  // exporters write INT64_MAX for "to the end"

// v if v >= 0, else v + extent.
Dim from_the_end(const Dim& v, const Dim& extent, const DimContext& facts) {
  const DimContext::Interval r = facts.range(v);
  if (r.low >= 0) return v;
  if (r.high < 0) return v + extent;
  // 1 if v < 0, else 0; without a product, which could overflow for the huge bounds of exporters.
  const Dim negative = Dim(0) - max(min(v, Dim(0)), Dim(-1));
  return facts.simplify(v + extent * negative);
}

Dim clamp(const Dim& v, const Dim& low, const Dim& high, const DimContext& facts) {
  return facts.simplify(max(low, min(v, high)));
}

Dim bound(const Dim& v, const Dim& extent, const Dim& low, const Dim& high,
          const DimContext& facts) {
  if (auto c = v.as_constant()) {
    if (*c >= kHuge) return high;
    if (*c <= -kHuge) return low;
  }
  return clamp(from_the_end(v, extent, facts), low, high, facts);
}

}  // namespace

Dim is_step(const Dim& step) {
  return min(Dim(1), max(step, Dim(0) - max(step, Dim(-1))));
}

Dim steps_in(const Dim& span, const Dim& step) {
  if (step.as_constant()) return Dim(0) - floordiv(Dim(0) - span, step);
  // 1 in place of a step of 0. `step + 1 - is_step(step)` could overflow on the way; below -2^62,
  // where the maximum is not the step, no span is that long.
  const Dim divisor = max(step, Dim(1) - Dim(int64_t{1} << 62) * is_step(step));
  return Dim(0) - floordiv(Dim(0) - span, divisor);
}

SliceBounds slice_bounds(const Dim& extent, const Dim& start, const Dim& end, const Dim& step,
                         const DimContext& facts) {
  const std::optional<int64_t> known = step.as_constant();
  NIMBLE_CHECK(known != 0, "slice step");
  if (!known) {
    // With d = 1 for a step backwards and 0 for one forwards, the bounds lie in [-d, extent - d].
    const Dim d = facts.simplify(Dim(0) - max(min(step, Dim(0)), Dim(-1)));
    const Dim high = extent - d;
    const Dim s = clamp(from_the_end(start, extent, facts), Dim(0), high, facts);
    const Dim e = clamp(from_the_end(end, extent, facts), Dim(0) - d, high, facts);
    return {s, facts.simplify(max(Dim(0), min(extent, steps_in(e - s, step))))};
  }
  if (*known > 0) {
    const Dim s = bound(start, extent, Dim(0), extent, facts);
    const Dim e = bound(end, extent, Dim(0), extent, facts);
    // Near 2^63 the sum in ceildiv would overflow; elsewhere its form is the one that dims have.
    const Dim count = *known >= kHuge ? steps_in(e - s, step) : ceildiv(e - s, step);
    return {s, facts.simplify(max(Dim(0), count))};
  }
  const Dim last = extent - Dim(1);
  const Dim s = bound(start, extent, Dim(0), last, facts);
  const Dim e = bound(end, extent, Dim(-1), last, facts);
  // An empty axis would clamp the start to 0 > last: its count is 0 all the same.
  const Dim count = *known <= -kHuge ? steps_in(e - s, step) : ceildiv(s - e, Dim(-*known));
  return {s, facts.simplify(max(Dim(0), min(extent, count)))};
}

Dim window_count(const Dim& extent, int64_t kernel, int64_t stride, int64_t before, int64_t after,
                 int64_t dilation, bool ceil_mode, const DimContext& facts) {
  const Dim room = extent + Dim(before) + Dim(after) - Dim(dilation) * Dim(kernel - 1) - Dim(1);
  if (!ceil_mode) return facts.simplify(floordiv(room, Dim(stride)) + Dim(1));
  const Dim all = ceildiv(room, Dim(stride)) + Dim(1);
  return facts.simplify(min(all, ceildiv(extent + Dim(before), Dim(stride))));
}

}  // namespace nimble::ir
