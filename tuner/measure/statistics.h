// Robust summaries of run times.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "vm/base/median.h"

namespace nimble::tuner {

// When sampling may stop, and what interval is then told.
//
// An interval that is computed after every sample and believed as soon as it is narrow covers less
// often than it says: each look is another chance to err. So there are few looks, at sample counts
// fixed beforehand (doubling, from the least count to the most), and the 5 % are spent over them:
// a look may take two thirds of what is left, the last takes all (alpha spending: K. K. G. Lan,
// D. L. DeMets, Discrete sequential boundaries for clinical trials, Biometrika 70, 1983). By
// Boole's inequality the intervals of all looks cover together with 95 % or more, so the one at
// which sampling stopped does, whatever the reason to stop was.
//
// Each is the interval of the median by order statistics [x(r), x(n+1-r)]: it errs with
// 2 P(Binomial(n, 1/2) < r) exactly, for independent samples of any continuous distribution, needs
// no resampling and is the same each time (H. A. David, H. N. Nagaraja, Order Statistics, 3rd ed.,
// 2003, section 7.1). Six samples are the fewest for which [min, max] reaches 95 %.
class StopRule {
 public:
  StopRule(int32_t min_samples, int32_t max_samples);
  const std::vector<int32_t>& looks() const { return looks_; }  // ascending, the last is the most
  bool is_look(int32_t n) const;
  // Rank r of the interval after n samples; between looks that of the earlier look's share. 0: it
  // would err too often however wide it is.
  int32_t rank(int32_t n) const;

 private:
  std::vector<int32_t> looks_;
  std::vector<double> shares_;  // of each look: how often its interval may err
};

// Times are in nanoseconds.
struct Summary {
  double median = 0;
  double mad = 0;                  // median absolute deviation, not scaled
  double ci_low = 0, ci_high = 0;  // of the median; [min, max] where the rule has no rank
  std::vector<bool> outliers;      // more than 5 scaled MADs above or below; kept in all sums
  // Half of the interval's width relative to the median.
  double relative_error() const { return median > 0 ? (ci_high - ci_low) / (2 * median) : 1; }
};

// `samples` must not be empty. They came under `rule`.
Summary summarise(std::span<const double> samples, const StopRule& rule);

// Spearman's rank correlation; ties get their mean rank. 0 for fewer than two points or if one
// side is constant.
double rank_correlation(std::span<const double> a, std::span<const double> b);

}  // namespace nimble::tuner
