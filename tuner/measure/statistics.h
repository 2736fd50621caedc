// Robust summaries of run times.
#pragma once

#include <span>
#include <vector>

namespace nimble::tuner {

// Times are in nanoseconds. The interval is that of the median by order statistics: it holds for
// every distribution of independent samples, needs no resampling and is the same each time it is
// computed. With fewer than six samples no such interval reaches 95 %; then it is [min, max].
// (H. A. David, H. N. Nagaraja: Order Statistics, 3rd ed., 2003, section 7.1.)
struct Summary {
  double median = 0;
  double mad = 0;                  // median absolute deviation, not scaled
  double ci_low = 0, ci_high = 0;  // of the median, at least 95 %
  std::vector<bool> outliers;      // more than 5 scaled MADs above or below; kept in all sums
  // Half of the interval's width relative to the median.
  double relative_error() const { return median > 0 ? (ci_high - ci_low) / (2 * median) : 1; }
};

// `samples` must not be empty.
Summary summarise(std::span<const double> samples);
double median_of(std::vector<double> samples);

// Spearman's rank correlation; ties get their mean rank. 0 for fewer than two points or if one
// side is constant.
double rank_correlation(std::span<const double> a, std::span<const double> b);

}  // namespace nimble::tuner
