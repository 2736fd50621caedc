// How far the times of a workload can be trusted, from its own measurements.
//
// A configuration that was timed in the cross-evaluation and again side by side is an A/A pair: the
// same code, so intervals that do not overlap are a false positive. Pairs that one session timed in
// turn (twins) are told apart from those: they share the hour, so they show the noise alone. A
// winner flips where the two name different winners; what believing the first would have cost is
// told by the second.
#pragma once

#include <optional>
#include <vector>

#include "gui/model/facts.h"

namespace nimble::gui {

struct NoiseAtShape {
  size_t shape = 0;
  double half_interval =
      0;  // median over the measurements: half of the 95 % interval, over the median
  int64_t measurements = 0;
  int64_t pairs = 0, false_positives = 0;
  const db::Result *first_winner = nullptr, *second_winner = nullptr;
  // Pairs timed in turn within one session: the same code as if it were two candidates.
  int64_t twins = 0, twin_false_positives = 0;
  double twin_spread = 0;  // median over the pairs of how far their medians lie apart, relative
  std::optional<double> flip_cost;  // of the first winner over the second, side by side; 0: no flip
};

// Shapes in the order of `facts`; pointers are into its results.
std::vector<NoiseAtShape> noise_of(const WorkloadFacts& facts);

struct NoiseSummary {
  double half_interval = 0;  // median over the shapes
  int64_t pairs = 0, false_positives = 0, judged = 0, flips = 0;
  int64_t twins = 0, twin_false_positives = 0;
  double flip_cost = 0;  // mean over the shapes that both judged
};
NoiseSummary summary_of(const std::vector<NoiseAtShape>& shapes);

}  // namespace nimble::gui
