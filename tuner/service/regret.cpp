#include "tuner/service/regret.h"

#include <algorithm>
#include <numeric>

#include "vm/base/error.h"

namespace nimble::tuner {

Regret regret_against(std::span<const double> times, std::span<const double> best,
                      std::span<const double> weights) {
  NIMBLE_CHECK(times.size() == best.size() && times.size() == weights.size(),
               "{} times, {} best ones, {} weights", times.size(), best.size(), weights.size());
  Regret out;
  const double mass = std::accumulate(weights.begin(), weights.end(), 0.0);
  for (size_t s = 0; s < times.size(); ++s) {
    const double lost = std::max(0.0, times[s] / best[s] - 1);
    out.worst = std::max(out.worst, lost);
    out.mean += lost * (mass > 0 ? weights[s] / mass : 1 / static_cast<double>(times.size()));
  }
  return out;
}

}  // namespace nimble::tuner
