#include "tuner/dispatch/tree.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <unordered_map>

#include "vm/base/error.h"

namespace nimble::tuner {
namespace {

using Shapes = std::vector<uint32_t>;
using Node = std::shared_ptr<const PlannedNode>;

constexpr double kNothing = 1e-12;  // see pool.cpp

struct Solution {
  Node node;
  double cost = HUGE_VAL;
};

struct Split {
  size_t feature = 0;
  size_t at = 0;           // so many of the feature's order are on the side of the smaller values
  double cost = HUGE_VAL;  // of two leaves
};

class Search {
 public:
  Search(const CostMatrix& cost, const std::vector<TreeFeature>& features,
         const TreeOptions& options)
      : features_(features), options_(options), configs_(cost.size()), shapes_(cost[0].size()) {
    by_shape_.reserve(shapes_);
    for (size_t s = 0; s < shapes_; ++s) {
      by_shape_.emplace_back();
      for (const auto& row : cost) by_shape_.back().push_back(row[s]);
      // Least over each set of configurations, by the set's bits; the empty one is not used.
      std::vector<double>& least = least_.emplace_back(size_t{1} << configs_, kUnserved);
      for (size_t set = 1; set < least.size(); ++set) {
        const auto first = static_cast<size_t>(__builtin_ctzll(set));
        least[set] = std::min(least[set & (set - 1)], by_shape_[s][first]);
      }
    }
    for (const TreeFeature& f : features_) {
      Shapes& order = order_.emplace_back(shapes_);
      std::iota(order.begin(), order.end(), 0u);
      std::stable_sort(order.begin(), order.end(),
                       [&](uint32_t a, uint32_t b) { return f.values[a] < f.values[b]; });
    }
  }

  PlannedTree run() {
    Shapes all(shapes_);
    std::iota(all.begin(), all.end(), 0u);
    Solution best = leaf_of(all);
    bool proven = true;
    for (int depth = 1; depth <= options_.max_depth; ++depth) {
      if (depth > kLookahead) keep_better(best, looking_ahead(all, depth));
      exhausted_ = false;
      cache_.clear();
      keep_better(best, solve(all, depth, best.cost));
      proven = !exhausted_;
      if (exhausted_) break;
    }
    return {best.node, best.cost, proven};
  }

 private:
  static constexpr int kLookahead = 2;

  static void keep_better(Solution& best, Solution other) {
    if (other.node && other.cost < best.cost - kNothing) best = std::move(other);
  }

  Solution leaf_of(const Shapes& shapes) {
    std::vector<double> sums(configs_, 0);
    for (uint32_t s : shapes)
      for (size_t c = 0; c < configs_; ++c) sums[c] += by_shape_[s][c];
    const auto least = std::min_element(sums.begin(), sums.end());
    auto node = std::make_shared<PlannedNode>();
    node->shapes = shapes;
    node->configuration = static_cast<size_t>(least - sums.begin());
    return {std::move(node), *least + options_.entry_cost};
  }

  // No tree over these shapes costs less.
  double bound(const Shapes& shapes) {
    std::vector<double> sums(size_t{1} << configs_, 0);
    for (uint32_t s : shapes)
      for (size_t set = 1; set < sums.size(); ++set) sums[set] += least_[s][set];
    steps_ += shapes.size() * sums.size();
    double least = HUGE_VAL;
    for (size_t set = 1; set < sums.size(); ++set)
      least = std::min(least, sums[set] + options_.entry_cost * __builtin_popcountll(set));
    return least;
  }

  // These shapes in the order of each feature.
  template <class Visit>
  void for_each_feature(const Shapes& shapes, const Visit& visit) {
    std::vector<uint8_t> here(shapes_, 0);
    for (uint32_t s : shapes) here[s] = 1;
    Shapes order;
    for (size_t f = 0; f < features_.size(); ++f) {
      order.clear();
      for (uint32_t s : order_[f])
        if (here[s]) order.push_back(s);
      visit(f, order);
    }
  }

  // Each split of the shapes that differs from those before it, with the cost of its two leaves.
  template <class Visit>
  void for_each_split(const Shapes& shapes, const Visit& visit) {
    for_each_feature(shapes, [&](size_t f, const Shapes& order) {
      const auto& values = features_[f].values;
      if (values[order.front()] == values[order.back()]) return;
      std::vector<double> low(configs_, 0), high(configs_, 0);
      for (uint32_t s : order)
        for (size_t c = 0; c < configs_; ++c) high[c] += by_shape_[s][c];
      steps_ += 2 * order.size() * configs_;
      const size_t least = features_[f].least_each;
      for (size_t i = 1; i < order.size(); ++i) {
        const auto& moved = by_shape_[order[i - 1]];
        for (size_t c = 0; c < configs_; ++c) low[c] += moved[c], high[c] -= moved[c];
        if (values[order[i - 1]] == values[order[i]]) continue;
        if (i < least || order.size() - i < least) continue;
        const double cost = *std::min_element(low.begin(), low.end()) +
                            *std::min_element(high.begin(), high.end()) + 2 * options_.entry_cost;
        visit(Split{f, i, cost}, order);
      }
    });
  }

  std::pair<Shapes, Shapes> sides(const Shapes& order, size_t at) const {
    const auto middle = order.begin() + static_cast<std::ptrdiff_t>(at);
    Shapes yes(order.begin(), middle), no(middle, order.end());
    std::sort(yes.begin(), yes.end());
    std::sort(no.begin(), no.end());
    return {std::move(yes), std::move(no)};
  }

  static Solution joined(const Shapes& shapes, size_t feature, Solution yes, Solution no) {
    auto node = std::make_shared<PlannedNode>();
    node->shapes = shapes;
    node->feature = feature;
    const double cost = yes.cost + no.cost;
    node->yes = std::move(yes.node);
    node->no = std::move(no.node);
    return {std::move(node), cost};
  }

  // The best tree of depth one, or the leaf.
  Solution stump(const Shapes& shapes, Solution leaf) {
    Split best;
    Shapes yes, no;
    best.cost = leaf.cost;
    for_each_split(shapes, [&](const Split& split, const Shapes& order) {
      if (split.cost >= best.cost - kNothing) return;
      best = split;
      std::tie(yes, no) = sides(order, split.at);
    });
    if (yes.empty()) return leaf;
    return joined(shapes, best.feature, leaf_of(yes), leaf_of(no));
  }

  struct Remembered {
    Solution solution;
    double nothing_below = 0;  // without a solution: all trees cost this or more
  };

  // The best tree of at most this depth, if it costs less than `limit`; else some tree, or none.
  Solution solve(const Shapes& shapes, int depth, double limit) {
    Solution leaf = leaf_of(shapes);
    if (depth == 0 || shapes.size() < 2) return leaf;
    if (steps_ >= options_.most_steps) {
      exhausted_ = true;
      return leaf;
    }
    const double least = bound(shapes);
    if (least >= std::min(limit, leaf.cost) - kNothing) return leaf;
    if (depth == 1) return stump(shapes, std::move(leaf));
    const std::string key = key_of(shapes, depth);
    if (const auto it = cache_.find(key); it != cache_.end()) {
      if (it->second.solution.node) return it->second.solution;
      if (it->second.nothing_below >= limit - kNothing) return leaf;
    }
    Solution best = split(shapes, depth, limit, leaf);
    if (!exhausted_) {
      if (best.cost < limit - kNothing)
        cache_[key] = {best, 0};
      else
        cache_[key] = {{}, std::max(limit, least)};
    }
    return best;
  }

  Solution split(const Shapes& shapes, int depth, double limit, Solution best) {
    struct Candidate {
      Split split;
      Shapes yes, no;
    };
    std::vector<Candidate> candidates;
    std::unordered_map<std::string, bool> seen;  // partitions, by their side of smaller values
    for_each_split(shapes, [&](const Split& s, const Shapes& order) {
      auto [yes, no] = sides(order, s.at);
      // The same partition by another feature, or by the same one the other way round.
      if (!seen.emplace(key_of(yes, 0), true).second || seen.contains(key_of(no, 0))) return;
      candidates.push_back({s, std::move(yes), std::move(no)});
    });
    std::stable_sort(candidates.begin(), candidates.end(),
                     [](const auto& a, const auto& b) { return a.split.cost < b.split.cost; });
    for (const Candidate& c : candidates) {
      const double most = std::min(limit, best.cost);
      const double no_least = bound(c.no);
      if (bound(c.yes) + no_least >= most - kNothing) continue;
      Solution yes = solve(c.yes, depth - 1, most - no_least);
      if (yes.cost + no_least >= most - kNothing) continue;
      Solution no = solve(c.no, depth - 1, most - yes.cost);
      keep_better(best, joined(shapes, c.split.feature, std::move(yes), std::move(no)));
      if (exhausted_) break;
    }
    return best;
  }

  // A tree whose every node is the root of the best tree of two levels over its shapes.
  Solution looking_ahead(const Shapes& shapes, int depth) {
    Solution here = solve(shapes, std::min(depth, kLookahead), HUGE_VAL);
    if (here.node->is_leaf() || depth <= kLookahead) return here;
    const PlannedNode& root = *here.node;
    return joined(shapes, root.feature, looking_ahead(root.yes->shapes, depth - 1),
                  looking_ahead(root.no->shapes, depth - 1));
  }

  // A name of a set of shapes, with the depth.
  std::string key_of(const Shapes& shapes, int depth) const {
    std::string key((shapes_ + 7) / 8 + 1, '\0');
    for (uint32_t s : shapes) key[s / 8] = static_cast<char>(key[s / 8] | 1 << s % 8);
    key.back() = static_cast<char>(depth);
    return key;
  }

  const std::vector<TreeFeature>& features_;
  const TreeOptions& options_;
  size_t configs_, shapes_;
  std::vector<std::vector<double>> by_shape_;  // [shape][configuration]
  std::vector<std::vector<double>> least_;     // [shape][set of configurations]
  std::vector<Shapes> order_;                  // by feature
  std::unordered_map<std::string, Remembered> cache_;
  uint64_t steps_ = 0;
  bool exhausted_ = false;
};

}  // namespace

PlannedTree plan_tree(const CostMatrix& cost, const std::vector<TreeFeature>& features,
                      const TreeOptions& options) {
  NIMBLE_CHECK(!cost.empty() && !cost[0].empty() && cost.size() <= kMostPooled,
               "a tree of {} configurations", cost.size());
  return Search(cost, features, options).run();
}

}  // namespace nimble::tuner
