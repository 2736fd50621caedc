// Overrides laid over a dispatch tree.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "db/store/records.h"
#include "vm/executable/dispatch.h"

namespace nimble::tuned {

// The shapes of one override, and the leaf that they get.
struct Layer {
  struct Range {
    exec::DispatchFeature feature;
    int64_t first = 0;
    std::optional<int64_t> last;  // nothing: unbounded
  };
  std::vector<Range> ranges;  // all must hold; none: every shape
  uint32_t leaf = 0;
};

// The override's region over the contract's symbols; `leaf` is left to the caller. Error for a
// region that is none, or that names what the workload has not.
Layer layer_of(const db::Override& o, const std::vector<std::string>& symbols);

// A tree that asks the layers, in their order, before `base`, whose leaves stay what they are.
exec::DispatchTree lay_over(const std::vector<Layer>& layers, const exec::DispatchTree& base);

}  // namespace nimble::tuned
