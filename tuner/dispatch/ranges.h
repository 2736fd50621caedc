// Ranges of one symbol, found exactly: dynamic programming over where the last range begins.
#pragma once

#include <cstddef>
#include <vector>

#include "tuner/dispatch/pool.h"

namespace nimble::tuner {

// Sizes [begin, end) of those in increasing order, and the configuration that serves them.
struct Segment {
  size_t begin, end, configuration;
};
// Least sum over segments of weighted regret plus entry_cost each, at most max_entries segments.
// `cost`: [configuration][size], weighted; one of each at least.
std::vector<Segment> best_segments(const CostMatrix& cost, size_t max_entries, double entry_cost);

}  // namespace nimble::tuner
