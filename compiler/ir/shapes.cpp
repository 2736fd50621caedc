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
  const Dim negative = min(Dim(1), max(Dim(0), v * Dim(-1)));  // 1 if v < 0, else 0
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

SliceBounds slice_bounds(const Dim& extent, const Dim& start, const Dim& end, int64_t step,
                         const DimContext& facts) {
  NIMBLE_CHECK(step != 0, "slice step");
  if (step > 0) {
    const Dim s = bound(start, extent, Dim(0), extent, facts);
    const Dim e = bound(end, extent, Dim(0), extent, facts);
    return {s, facts.simplify(max(Dim(0), ceildiv(e - s, Dim(step))))};
  }
  const Dim last = extent - Dim(1);
  const Dim s = bound(start, extent, Dim(0), last, facts);
  const Dim e = bound(end, extent, Dim(-1), last, facts);
  // An empty axis would clamp the start to 0 > last: its count is 0 all the same.
  return {s, facts.simplify(max(Dim(0), min(extent, ceildiv(s - e, Dim(-step)))))};
}

Dim window_count(const Dim& extent, int64_t kernel, int64_t stride, int64_t before, int64_t after,
                 int64_t dilation, bool ceil_mode, const DimContext& facts) {
  const Dim room = extent + Dim(before + after - dilation * (kernel - 1) - 1);
  if (!ceil_mode) return facts.simplify(floordiv(room, Dim(stride)) + Dim(1));
  const Dim all = ceildiv(room, Dim(stride)) + Dim(1);
  return facts.simplify(min(all, ceildiv(extent + Dim(before), Dim(stride))));
}

}  // namespace nimble::ir
