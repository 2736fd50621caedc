#include "tuner/measure/statistics.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "vm/base/error.h"

namespace nimble::tuner {
namespace {

// The largest r such that [x(r), x(n+1-r)] (1-based) covers the median with 95 % or more:
// P(Binomial(n, 1/2) < r) <= 2.5 %. 0 if there is none.
size_t interval_rank(size_t n) {
  double probability = std::pow(0.5, static_cast<double>(n));  // of k = 0
  double below = 0;
  size_t r = 0;
  for (size_t k = 0; k < n / 2; ++k) {
    below += probability;
    if (below > 0.025) break;
    r = k + 1;
    probability *= static_cast<double>(n - k) / static_cast<double>(k + 1);
  }
  return r;
}

std::vector<double> ranks(std::span<const double> v) {
  std::vector<size_t> order(v.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return v[a] < v[b]; });
  std::vector<double> out(v.size());
  for (size_t i = 0; i < order.size();) {
    size_t end = i;
    while (end < order.size() && v[order[end]] == v[order[i]]) ++end;
    for (size_t j = i; j < end; ++j) out[order[j]] = static_cast<double>(i + end - 1) / 2;
    i = end;
  }
  return out;
}

}  // namespace

double median_of(std::vector<double> v) {
  NIMBLE_CHECK(!v.empty(), "median of nothing");
  const auto middle = v.begin() + static_cast<std::ptrdiff_t>(v.size() / 2);
  std::nth_element(v.begin(), middle, v.end());
  if (v.size() % 2 == 1) return *middle;
  return (*middle + *std::max_element(v.begin(), middle)) / 2;
}

Summary summarise(std::span<const double> samples) {
  std::vector<double> sorted(samples.begin(), samples.end());
  std::sort(sorted.begin(), sorted.end());
  Summary s;
  s.median = median_of(sorted);
  std::vector<double> deviations;
  for (double x : samples) deviations.push_back(std::abs(x - s.median));
  s.mad = median_of(deviations);
  // Beyond some thousand samples 0.5^n underflows; nobody takes that many.
  size_t r = interval_rank(std::min<size_t>(sorted.size(), 1000));
  if (r == 0) r = 1;
  s.ci_low = sorted[r - 1];
  s.ci_high = sorted[sorted.size() - r];
  const double limit = 5 * 1.4826 * s.mad;
  for (double d : deviations) s.outliers.push_back(s.mad > 0 && d > limit);
  return s;
}

double rank_correlation(std::span<const double> a, std::span<const double> b) {
  NIMBLE_CHECK(a.size() == b.size(), "{} and {} values", a.size(), b.size());
  if (a.size() < 2) return 0;
  const std::vector<double> x = ranks(a), y = ranks(b);
  const double mean = static_cast<double>(a.size() - 1) / 2;
  double xy = 0, xx = 0, yy = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    xy += (x[i] - mean) * (y[i] - mean);
    xx += (x[i] - mean) * (x[i] - mean);
    yy += (y[i] - mean) * (y[i] - mean);
  }
  return xx > 0 && yy > 0 ? xy / std::sqrt(xx * yy) : 0;
}

}  // namespace nimble::tuner
