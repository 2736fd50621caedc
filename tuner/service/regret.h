// What a choice loses.
#pragma once

#include <span>

namespace nimble::tuner {

struct Regret {
  double mean = 0;  // weighted
  double worst = 0;
};

// Of times by size against the best times known there: time / best - 1. Sizes that all lack weight
// count alike. The best may be anybody's; where it is more than the time itself, nothing is lost.
Regret regret_against(std::span<const double> times, std::span<const double> best,
                      std::span<const double> weights);

}  // namespace nimble::tuner
