// The tree: which shape gets which configuration of the pool, by tests of few features.
//
// A tree costs the weighted regret of what it chooses and `entry_cost` for each leaf. Finding the
// cheapest tree is NP-hard, so this is branch and bound, level by level (as DL8.5 and MurTree do
// for classification, here for regret): trees of depth 1 are scanned by prefix sums, deeper ones
// try each split, cheapest by its two leaves first, and leave it when a lower bound of its sides
// reaches the best tree so far. The bound: a tree that uses the configurations P has |P| leaves at
// least and cannot lose less than the best of P at every shape; the least of that over all P of
// the pool. Subsets that come up again are remembered.
//
// `most_steps` bounds the work (not the time: the same input gives the same tree on any machine).
// Before the two deepest levels are searched, a tree that looks two levels ahead at each node
// stands as the one to beat, so that a search that runs out of steps ends with something good; it
// says then that its tree is not proven to be the best.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "tuner/dispatch/pool.h"
#include "vm/executable/dispatch.h"

namespace nimble::tuner {

struct TreeFeature {
  exec::DispatchFeature feature;
  // By shape. Of a test whether the feature equals `equals`: 0 if it does, else 1.
  std::vector<int64_t> values;
  // Each side of a split has so many shapes at least: a remainder that one size has tells nothing.
  size_t least_each = 1;
  std::optional<int64_t> equals = {};
};

struct PlannedNode {
  std::vector<uint32_t> shapes;                // increasing
  size_t configuration = 0;                    // of a leaf: row of the cost matrix
  size_t feature = 0;                          // of an inner node
  std::shared_ptr<const PlannedNode> yes, no;  // the smaller values; none: a leaf
  bool is_leaf() const { return !yes; }
};

struct TreeOptions {
  double entry_cost = 0.001;
  int max_depth = 4;
  uint64_t most_steps = 10'000'000;  // sums of two numbers, 10 to 20 ms
};

struct PlannedTree {
  std::shared_ptr<const PlannedNode> root;
  double cost = 0;      // with the leaves' price
  bool proven = false;  // no tree of this depth costs less
};

// `cost`: weighted regret, [configuration][shape], kUnserved at most; one configuration, one shape
// and at most kMostPooled configurations.
inline constexpr size_t kMostPooled = 8;
PlannedTree plan_tree(const CostMatrix& cost, const std::vector<TreeFeature>& features,
                      const TreeOptions& options);

}  // namespace nimble::tuner
