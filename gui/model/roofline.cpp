#include "gui/model/roofline.h"

#include <algorithm>

namespace nimble::gui {

Roofs roofs_of(const RooflineFacts& facts, const std::string& dtype, int64_t threads) {
  Roofs roofs;
  // "f32,i64" computes in its first type.
  const std::string first = dtype.substr(0, dtype.find(','));
  for (const db::Ceiling& c : facts.ceilings) {
    if (c.threads != threads || !(c.value > 0)) continue;
    if (c.kind != "compute")
      roofs.bandwidths.push_back(c);
    else if (c.dtype == first)
      roofs.compute = c.value;
  }
  std::sort(roofs.bandwidths.begin(), roofs.bandwidths.end(),
            [](const db::Ceiling& a, const db::Ceiling& b) { return a.value < b.value; });
  return roofs;
}

RooflineRate rate_of(const RooflineFacts& facts, const RooflinePoint& point) {
  RooflineRate r;
  r.intensity = static_cast<double>(point.flops) / static_cast<double>(point.bytes);
  r.rate = static_cast<double>(point.flops) / point.result.median_ns * 1e9;
  const Roofs roofs = roofs_of(facts, point.dtype, point.threads);
  if (!roofs.compute) return r;
  r.of_peak = r.rate / *roofs.compute;
  if (!roofs.bandwidths.empty())
    r.of_roof = r.rate / std::min(*roofs.compute, roofs.bandwidths.front().value * r.intensity);
  return r;
}

}  // namespace nimble::gui
