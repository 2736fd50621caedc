#include "tuner/dispatch/pool.h"

#include <algorithm>
#include <cmath>
#include <optional>

namespace nimble::tuner {
namespace {

// Less than this is no saving: sums of the same terms in another order differ by about as much.
constexpr double kNothing = 1e-12;

double served(double cost) {
  return std::min(cost, kUnserved);
}

// The configuration whose addition leaves least; nothing if none saves.
std::optional<size_t> best_addition(const CostMatrix& cost, const std::vector<size_t>& pool) {
  std::vector<double> now(cost[0].size(), kUnserved);
  for (size_t c : pool)
    for (size_t s = 0; s < now.size(); ++s) now[s] = std::min(now[s], cost[c][s]);
  std::optional<size_t> best;
  double least = pool.empty() ? HUGE_VAL : pool_cost(cost, pool) - kNothing;
  for (size_t c = 0; c < cost.size(); ++c) {
    double sum = 0;
    for (size_t s = 0; s < now.size(); ++s) sum += std::min(now[s], served(cost[c][s]));
    if (sum < least) least = sum - kNothing, best = c;
  }
  return best;
}

// One exchange that helps most; false if none helps.
bool exchange(const CostMatrix& cost, std::vector<size_t>& pool) {
  double least = pool_cost(cost, pool) - kNothing;
  std::optional<std::vector<size_t>> better;
  for (size_t i = 0; i < pool.size(); ++i) {
    std::vector<size_t> other = pool;
    other.erase(other.begin() + static_cast<std::ptrdiff_t>(i));
    const std::optional<size_t> instead = best_addition(cost, other);
    if (!instead) continue;
    other.push_back(*instead);
    if (const double sum = pool_cost(cost, other); sum < least) {
      least = sum - kNothing;
      better = std::move(other);
    }
  }
  if (better) pool = std::move(*better);
  return better.has_value();
}

}  // namespace

double pool_cost(const CostMatrix& cost, const std::vector<size_t>& pool) {
  double sum = 0;
  for (size_t s = 0; s < cost[0].size(); ++s) {
    double least = kUnserved;
    for (size_t c : pool) least = std::min(least, cost[c][s]);
    sum += least;
  }
  return sum;
}

std::vector<size_t> choose_pool(const CostMatrix& cost, size_t size) {
  std::vector<size_t> pool;
  while (pool.size() < size) {
    const std::optional<size_t> next = best_addition(cost, pool);
    if (!next) break;
    pool.push_back(*next);
  }
  while (exchange(cost, pool)) {
  }
  std::sort(pool.begin(), pool.end());
  return pool;
}

}  // namespace nimble::tuner
