// The pool is as good as the best of all pools, or nearly.
#include "tuner/dispatch/pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

namespace nimble::tuner {
namespace {

CostMatrix random_costs(std::mt19937_64& random, size_t configurations, size_t shapes) {
  std::uniform_real_distribution<double> cost(0, 1);
  CostMatrix out;
  for (size_t c = 0; c < configurations; ++c) {
    out.emplace_back();
    for (size_t s = 0; s < shapes; ++s) out.back().push_back(cost(random));
  }
  return out;
}

double best_of_all(const CostMatrix& cost, size_t size) {
  double best = HUGE_VAL;
  for (size_t set = 1; set < size_t{1} << cost.size(); ++set) {
    if (static_cast<size_t>(__builtin_popcountll(set)) > size) continue;
    std::vector<size_t> pool;
    for (size_t c = 0; c < cost.size(); ++c)
      if (set >> c & 1) pool.push_back(c);
    best = std::min(best, pool_cost(cost, pool));
  }
  return best;
}

TEST(Pool, IsNearTheBestOfAllPools) {
  std::mt19937_64 random(1);
  double sum = 0, best_sum = 0;
  int exact = 0;
  for (int trial = 0; trial < 100; ++trial) {
    const CostMatrix cost = random_costs(random, 9, 12);
    const size_t size = 1 + random() % 5;
    const double own = pool_cost(cost, choose_pool(cost, size)), best = best_of_all(cost, size);
    EXPECT_GE(own, best - 1e-12);
    exact += own < best + 1e-9;
    sum += own;
    best_sum += best;
  }
  EXPECT_GE(exact, 80);
  EXPECT_LE(sum, 1.02 * best_sum);
}

TEST(Pool, AnExchangeRemovesWhatGreedRegrets) {
  // Alone, the compromise is best; of two, the specialists are.
  const CostMatrix cost = {{0.4, 0.4, 0.4, 0.4}, {0, 0, 1, 1}, {1, 1, 0, 0}};
  EXPECT_EQ(choose_pool(cost, 1), std::vector<size_t>{0});
  EXPECT_EQ(choose_pool(cost, 2), (std::vector<size_t>{1, 2}));
}

TEST(Pool, TakesNoMoreThanSaves) {
  const CostMatrix cost = {{0, 1}, {1, 0}, {1, 1}, {2, 2}};
  EXPECT_EQ(choose_pool(cost, 4), (std::vector<size_t>{0, 1}));
}

TEST(Pool, OneThatCanBeUsedEverywhereComesFirst) {
  const CostMatrix cost = {{0, HUGE_VAL}, {3, 3}, {HUGE_VAL, 0}};
  EXPECT_EQ(choose_pool(cost, 1), std::vector<size_t>{1});
  EXPECT_EQ(choose_pool(cost, 2), (std::vector<size_t>{0, 2}));
}

}  // namespace
}  // namespace nimble::tuner
