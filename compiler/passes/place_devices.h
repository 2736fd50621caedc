// The parts of place-devices.
#pragma once

#include <optional>
#include <vector>

#include "compiler/passes/analysis/device_analysis.h"

namespace nimble::passes {

// The devices to which each leaf of a read value must be copied, -1 for those that lie right;
// nothing if all do. Of a constant, the device that reads it: each has its own from the load on.
std::optional<std::vector<int32_t>> copy_targets(const DeviceUse& use, const DeviceAnalysis& a);

// Where one copy serves several uses: as late as it precedes them all, so inside a branch if only
// that needs it.
struct CopyPoint {
  const BlockScope* scope = nullptr;
  size_t index = 0;  // before this binding of the block
};
CopyPoint common_point(const CopyPoint& a, const CopyPoint& b);

// A module in which one copy less stands inside a loop: that of a parameter which each recursive
// call passes on as it is. The function gets a second parameter, the value where it is needed, and
// its callers make the copy. Nothing if there is none.
std::optional<ir::Module> hoist_copy(const ir::Module& m, const DeviceAnalysis& a);

}  // namespace nimble::passes
