// The tree is the cheapest there is, or says that it may not be.
#include "tuner/dispatch/tree.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <set>

namespace nimble::tuner {
namespace {

using exec::DispatchFeature;
using Kind = DispatchFeature::Kind;

struct Instance {
  CostMatrix cost;
  std::vector<TreeFeature> features;
};

Instance random_instance(std::mt19937_64& random, size_t configurations, size_t shapes) {
  Instance out;
  std::uniform_real_distribution<double> cost(0, 0.1);
  for (size_t c = 0; c < configurations; ++c) {
    out.cost.emplace_back();
    for (size_t s = 0; s < shapes; ++s) out.cost.back().push_back(cost(random));
  }
  for (uint32_t f = 0; f < 3; ++f) {
    TreeFeature feature{{Kind::kSymbol, f, 0, 1}, {}};
    for (size_t s = 0; s < shapes; ++s)
      feature.values.push_back(static_cast<int64_t>(random() % 6));
    out.features.push_back(std::move(feature));
  }
  return out;
}

// Every tree, by recursion without any bound.
double brute_force(const Instance& in, const std::vector<uint32_t>& shapes, int depth,
                   double entry_cost) {
  double best = HUGE_VAL;
  for (const auto& row : in.cost) {
    double sum = entry_cost;
    for (uint32_t s : shapes) sum += row[s];
    best = std::min(best, sum);
  }
  if (depth == 0) return best;
  for (const TreeFeature& f : in.features) {
    std::set<int64_t> values;
    for (uint32_t s : shapes) values.insert(f.values[s]);
    for (int64_t v : values) {
      std::vector<uint32_t> yes, no;
      for (uint32_t s : shapes) (f.values[s] <= v ? yes : no).push_back(s);
      if (yes.size() < f.least_each || no.size() < f.least_each) continue;
      best = std::min(best, brute_force(in, yes, depth - 1, entry_cost) +
                                brute_force(in, no, depth - 1, entry_cost));
    }
  }
  return best;
}

std::vector<uint32_t> all_of(const Instance& in) {
  std::vector<uint32_t> out(in.cost[0].size());
  std::iota(out.begin(), out.end(), 0u);
  return out;
}

// The plan's cost, from its leaves; and that it is a partition by its features.
double cost_of(const Instance& in, const PlannedNode& n, double entry_cost) {
  if (n.is_leaf()) {
    double sum = entry_cost;
    for (uint32_t s : n.shapes) sum += in.cost[n.configuration][s];
    return sum;
  }
  const auto& values = in.features[n.feature].values;
  int64_t low = INT64_MIN, high = INT64_MAX;
  for (uint32_t s : n.yes->shapes) low = std::max(low, values[s]);
  for (uint32_t s : n.no->shapes) high = std::min(high, values[s]);
  EXPECT_LT(low, high);
  std::vector<uint32_t> both = n.yes->shapes;
  both.insert(both.end(), n.no->shapes.begin(), n.no->shapes.end());
  std::sort(both.begin(), both.end());
  EXPECT_EQ(both, n.shapes);
  return cost_of(in, *n.yes, entry_cost) + cost_of(in, *n.no, entry_cost);
}

int depth_of(const PlannedNode& n) {
  return n.is_leaf() ? 0 : 1 + std::max(depth_of(*n.yes), depth_of(*n.no));
}

TEST(Tree, IsAsCheapAsTheCheapestOfAll) {
  std::mt19937_64 random(2);
  for (int trial = 0; trial < 150; ++trial) {
    const Instance in = random_instance(random, 1 + random() % 4, 1 + random() % 9);
    TreeOptions o;
    o.max_depth = static_cast<int>(random() % 4);
    o.entry_cost = std::vector<double>{0, 0.01, 0.05}[random() % 3];
    const PlannedTree made = plan_tree(in.cost, in.features, o);
    EXPECT_TRUE(made.proven);
    EXPECT_NEAR(made.cost, brute_force(in, all_of(in), o.max_depth, o.entry_cost), 1e-9);
    EXPECT_NEAR(made.cost, cost_of(in, *made.root, o.entry_cost), 1e-9);
    EXPECT_LE(depth_of(*made.root), o.max_depth);
  }
}

TEST(Tree, OutOfStepsItIsStillATreeAndSaysSo) {
  std::mt19937_64 random(3);
  const Instance in = random_instance(random, 5, 60);
  TreeOptions o;
  const PlannedTree best = plan_tree(in.cost, in.features, o);
  o.max_depth = 0;
  const double leaf = plan_tree(in.cost, in.features, o).cost;
  o.max_depth = 4;
  for (const uint64_t steps : {1u, 1000u, 100'000u}) {
    o.most_steps = steps;
    const PlannedTree made = plan_tree(in.cost, in.features, o);
    EXPECT_FALSE(made.proven);
    EXPECT_LE(made.cost, leaf);
    EXPECT_GE(made.cost, best.cost - 1e-9);
    EXPECT_NEAR(made.cost, cost_of(in, *made.root, o.entry_cost), 1e-9);
  }
}

TEST(Tree, SeesWhatNoSingleTestSaves) {
  // One configuration for equal parities, the other for unequal ones: the first test saves nothing.
  Instance in;
  in.cost.resize(2);
  in.features = {{{Kind::kSymbol, 0, 0, 1}, {}}, {{Kind::kSymbol, 1, 0, 1}, {}}};
  for (int64_t a : {0, 1})
    for (int64_t b : {0, 1}) {
      in.features[0].values.push_back(a);
      in.features[1].values.push_back(b);
      in.cost[0].push_back(a == b ? 0 : 1);
      in.cost[1].push_back(a == b ? 1 : 0);
    }
  const PlannedTree made = plan_tree(in.cost, in.features, {});
  EXPECT_NEAR(made.cost, 4 * TreeOptions{}.entry_cost, 1e-12);
}

TEST(Tree, ASideOfATestHasItsLeastShapes) {
  Instance in;
  in.cost = {{0, 1, 1, 1}, {1, 0, 0, 0}};
  in.features = {{{Kind::kSymbol, 0, 0, 1}, {1, 2, 3, 4}, 2}};
  TreeOptions o;
  o.entry_cost = 0;
  EXPECT_NEAR(plan_tree(in.cost, in.features, o).cost, 1, 1e-12);
  in.features[0].least_each = 1;
  EXPECT_NEAR(plan_tree(in.cost, in.features, o).cost, 0, 1e-12);
}

}  // namespace
}  // namespace nimble::tuner
