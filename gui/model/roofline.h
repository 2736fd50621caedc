// How near kernels come to what their machine can do: operations a second against the operations
// that a byte of operands is used for (Williams, Waterman and Patterson, 2009). Ceilings are
// measured on the machine (nimble doctor --measure); none is computed from data sheets.
#pragma once

#include <optional>
#include <vector>

#include "gui/model/facts.h"

namespace nimble::gui {

// The ceilings that count for a type and number of threads.
struct Roofs {
  std::optional<double> compute;        // operations a second
  std::vector<db::Ceiling> bandwidths;  // bytes a second, the slowest first
};
Roofs roofs_of(const RooflineFacts& facts, const std::string& dtype, int64_t threads);

struct RooflineRate {
  double intensity = 0;           // operations a byte
  double rate = 0;                // operations a second
  std::optional<double> of_peak;  // share of the compute ceiling
  // Share of what the slowest memory leaves at that intensity; above 1 where the operands lay in a
  // cache.
  std::optional<double> of_roof;
};
RooflineRate rate_of(const RooflineFacts& facts, const RooflinePoint& point);

}  // namespace nimble::gui
