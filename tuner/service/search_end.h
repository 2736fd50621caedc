// How much a search of a workload may take: at how many shapes it runs, what it has come to over
// all of them, and when it is over for good, however much of the budget is left.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace nimble::tuner {

// What is no more than this is no gain.
inline constexpr double kWorthwhileGain = 0.01;
inline bool gains(double now, double before) {
  return now < before * (1 - kWorthwhileGain);
}

// What a search has come to: the best time of each shape over the default schedule's there, by what
// the shapes stand for. What is slower than the default is not used, so no shape counts for more
// than 1. As many shares as times, one or more.
inline double searched_ratio(std::span<const double> best, std::span<const double> shares) {
  double sum = 0, mass = 0;
  for (size_t s = 0; s < best.size(); ++s) {
    sum += shares[s] * std::min(1.0, best[s]);
    mass += shares[s];
  }
  return mass > 0 ? sum / mass : std::min(1.0, best[0]);
}

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
