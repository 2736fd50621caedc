#include "tuner/service/steadiness.h"

#include <algorithm>
#include <cmath>

#include "vm/base/median.h"

namespace nimble::tuner::plan {
namespace {

constexpr size_t kEnough = 4;  // cases that a verdict takes
constexpr size_t kLatest = 24;
// Beyond so many times the usual distance from the median, and beyond this at all.
constexpr double kBeyondNoise = 8;
constexpr double kLeastApart = 0.25;
// A machine may change for good: another frequency, another neighbour.
constexpr int kBelieved = 3;

}  // namespace

bool Steadiness::out_of_line(double log_ratio) const {
  std::vector<double> x;
  for (const Case& c : latest_) x.push_back(c.log_ratio);
  const double middle = median_of(x);
  for (double& v : x) v = std::fabs(v - middle);
  return std::fabs(log_ratio - middle) > std::max(kLeastApart, kBeyondNoise * median_of(x));
}

bool Steadiness::is_disturbed(double ratio) {
  if (latest_.size() < kEnough || !out_of_line(std::log(ratio))) {
    in_a_row_ = 0;
    return false;
  }
  if (++in_a_row_ < kBelieved) return true;
  in_a_row_ = 0;
  latest_.clear();
  return false;
}

std::vector<db::Hash> Steadiness::add(double ratio, const std::vector<db::Hash>& candidates) {
  latest_.push_back({std::log(ratio), candidates});
  if (latest_.size() > kLatest) latest_.erase(latest_.begin());
  std::vector<db::Hash> wrong;
  if (latest_.size() != kEnough) return wrong;
  for (Case& c : latest_) {
    if (out_of_line(c.log_ratio))
      wrong.insert(wrong.end(), c.candidates.begin(), c.candidates.end());
    c.candidates.clear();
  }
  return wrong;
}

}  // namespace nimble::tuner::plan
