// How much a search of a workload may take: at how many shapes it runs, and when it is over for
// good, however much of the budget is left.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace nimble::tuner {

// What is no more than this is no gain.
inline constexpr double kWorthwhileGain = 0.01;

struct SearchEnd {
  int64_t patience = 200;     // trials (configurations) without a worthwhile gain
  int64_t max_trials = 1000;  // of a workload
};

// Candidates that a search should have time for before it takes another shape: as many as a
// cross-evaluation takes by default.
inline constexpr double kLeastCandidates = 100;

// At how many of its shapes a search runs that has so many seconds: the first one always, and as
// many more as leave time for kLeastCandidates at all of them. `candidate_s`: what a candidate
// takes at each shape, in s; compiling it counts at the first.
inline size_t shapes_in_time(double seconds, const std::vector<double>& candidate_s) {
  double each = 0;
  size_t shapes = 0;
  for (const double s : candidate_s) {
    each += s;
    if (shapes > 0 && kLeastCandidates * each > seconds) break;
    ++shapes;
  }
  return shapes;
}

}  // namespace nimble::tuner
