#include "tuner/measure/statistics.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "vm/base/error.h"

namespace nimble::tuner {
namespace {

constexpr double kAlpha = 0.05;
constexpr double kSpend = 2.0 / 3;  // of what is left, at each look but the last
// Beyond some thousand samples 0.5^n underflows; nobody takes that many.
constexpr int32_t kMostSamples = 1000;

struct Interval {
  int32_t rank = 0;
  double errs = 0;  // how often
};

// The narrowest [x(r), x(n+1-r)] that errs in at most `alpha` of the cases; rank 0 if none does.
Interval interval(int32_t n, double alpha) {
  n = std::min(n, kMostSamples);
  double probability = std::pow(0.5, n), below = 0;  // of k = 0
  Interval out;
  for (int32_t k = 0; k < n / 2; ++k) {
    below += probability;
    if (2 * below > alpha) break;
    out = {k + 1, 2 * below};
    probability *= static_cast<double>(n - k) / static_cast<double>(k + 1);
  }
  return out;
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

StopRule::StopRule(int32_t min_samples, int32_t max_samples) {
  NIMBLE_CHECK(min_samples >= 1 && max_samples >= min_samples, "{} to {} samples", min_samples,
               max_samples);
  for (int32_t n = min_samples; n < max_samples && n <= kMostSamples; n *= 2) looks_.push_back(n);
  looks_.push_back(max_samples);
  double left = kAlpha;
  for (int32_t n : looks_) {
    const double share = n == looks_.back() ? left : left * kSpend;
    shares_.push_back(share);
    left -= interval(n, share).errs;
  }
}

bool StopRule::is_look(int32_t n) const {
  return std::binary_search(looks_.begin(), looks_.end(), n);
}

int32_t StopRule::rank(int32_t n) const {
  const auto later = std::upper_bound(looks_.begin(), looks_.end(), n) - looks_.begin();
  return later == 0 ? 0 : interval(n, shares_[static_cast<size_t>(later - 1)]).rank;
}

Summary summarise(std::span<const double> samples, const StopRule& rule) {
  std::vector<double> sorted(samples.begin(), samples.end());
  std::sort(sorted.begin(), sorted.end());
  Summary s;
  s.median = median_of(sorted);
  std::vector<double> deviations;
  for (double x : samples) deviations.push_back(std::abs(x - s.median));
  s.mad = median_of(deviations);
  const auto r = static_cast<size_t>(std::max(1, rule.rank(static_cast<int32_t>(sorted.size()))));
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
