#include "tuner/dispatch/table.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>

#include "vm/base/error.h"
#include "vm/executable/dispatch_text.h"

namespace nimble::tuner {
namespace {

using exec::DispatchFeature;
using exec::DispatchNode;
using Kind = DispatchFeature::Kind;

constexpr int64_t kUnbounded = INT64_MAX;

// Where one region ends between two neighbouring values: at a multiple of a tile, since that is
// where the candidates' work changes, the one nearest to the middle by ratio; without one, in the
// middle. The threshold still belongs to the smaller side.
int64_t between(int64_t low, int64_t high, const std::vector<int64_t>& tiles) {
  const auto distance = [&](int64_t x) {
    const double middle = std::log(static_cast<double>(low) * static_cast<double>(high)) / 2;
    return std::fabs(std::log(static_cast<double>(x)) - middle);
  };
  const auto middle = static_cast<int64_t>(
      std::floor(std::sqrt(static_cast<double>(low) * static_cast<double>(high))));
  const int64_t plain = std::clamp(middle, low, high - 1);
  if (low < 1) return plain;
  std::optional<int64_t> best;
  for (int64_t t : tiles)
    for (int64_t x : {plain / t * t, (plain / t + 1) * t})
      if (x >= low && x < high && (!best || distance(x) < distance(*best))) best = x;
  return best.value_or(plain);
}

// The largest value that still belongs to the smaller side of a test.
int64_t threshold_of(const DispatchFeature& f, int64_t low, int64_t high,
                     const std::vector<int64_t>& tiles) {
  if (f.kind == Kind::kMod) return low + (high - 1 - low) / 2;
  return between(low, high, f.kind == Kind::kSymbol ? tiles : std::vector<int64_t>{});
}

using Region = std::map<std::string, std::pair<int64_t, int64_t>>;

std::string range_text(const Region& region) {
  nlohmann::json j = nlohmann::json::object();
  for (const auto& [feature, ends] : region)
    j[feature] = {ends.first, ends.second == kUnbounded ? nlohmann::json(nullptr)
                                                        : nlohmann::json(ends.second)};
  return j.dump();
}

// From a plan to the table: nodes whose children come after them, regions, what they lose.
class Builder {
 public:
  Builder(const CrossTable& t, const std::vector<TreeFeature>& features)
      : t_(t), features_(features), regret_(regrets(t)) {}

  Table build(const PlannedNode& root) {
    add(root, {});
    const double mass = std::accumulate(t_.weights.begin(), t_.weights.end(), 0.0);
    for (const TableEntry& e : out_.entries) {
      if (e.stands_in) continue;
      out_.worst_regret = std::max(out_.worst_regret, e.worst_regret);
      for (size_t s : e.shapes)
        out_.regret += (mass > 0 ? t_.weights[s] / mass : 0) * regret_[e.configuration][s];
    }
    return std::move(out_);
  }

 private:
  uint32_t add(const PlannedNode& n, const Region& region) {
    const auto at = static_cast<uint32_t>(out_.tree.nodes.size());
    if (n.is_leaf())
      return t_.is_exact_only(n.configuration) ? add_exact(n, n.shapes, 0, region)
                                               : add_leaf(n, region);
    const TreeFeature& f = features_[n.feature];
    if (f.equals) return add_equal(n, f, region);
    int64_t low = INT64_MIN, high = INT64_MAX;
    for (uint32_t s : n.yes->shapes) low = std::max(low, f.values[s]);
    for (uint32_t s : n.no->shapes) high = std::min(high, f.values[s]);
    const int64_t threshold = threshold_of(f.feature, low, high, t_.tiles);
    out_.tree.nodes.push_back({DispatchNode::Test::kLessEqual, f.feature, threshold, 0, 0});
    const std::string name = text_of(f.feature, t_.symbols);
    const int64_t most = f.feature.kind == Kind::kMod ? f.feature.t - 1 : kUnbounded;
    const auto it = region.find(name);
    const auto ends = it == region.end() ? std::pair<int64_t, int64_t>{0, most} : it->second;
    Region smaller = region, larger = region;
    smaller[name] = {ends.first, threshold};
    larger[name] = {threshold + 1, ends.second};
    const uint32_t yes = add(*n.yes, smaller), no = add(*n.no, larger);
    out_.tree.nodes[at].yes = yes;
    out_.tree.nodes[at].no = no;
    return at;
  }

  uint32_t add_leaf(const PlannedNode& n, const Region& region, bool stands_in = false) {
    const auto at = static_cast<uint32_t>(out_.tree.nodes.size());
    out_.tree.nodes.push_back(
        {DispatchNode::Test::kLeaf, {}, 0, static_cast<uint32_t>(out_.entries.size()), 0});
    out_.entries.push_back(entry(n, region));
    out_.entries.back().stands_in = stands_in;
    return at;
  }

  // A leaf whose configuration serves `shapes` and nothing else: every symbol from `symbol` on is
  // asked for its very size, unless the region has one size of it. What comes along beside them is
  // served by the best of those that serve anything.
  uint32_t add_exact(const PlannedNode& n, const std::vector<uint32_t>& shapes, uint32_t symbol,
                     const Region& region) {
    if (symbol == t_.symbols.size()) {
      PlannedNode own = n;
      own.shapes = shapes;
      return add_leaf(own, region);
    }
    const DispatchFeature f{Kind::kSymbol, symbol, 0, 1};
    const std::string name = text_of(f, t_.symbols);
    const auto known = region.find(name);
    if (known != region.end() && known->second.first == known->second.second)
      return add_exact(n, shapes, symbol + 1, region);
    const int64_t size = t_.shapes[shapes[0]][symbol];
    std::vector<uint32_t> same, others;
    for (const uint32_t s : shapes) (t_.shapes[s][symbol] == size ? same : others).push_back(s);
    const auto at = static_cast<uint32_t>(out_.tree.nodes.size());
    out_.tree.nodes.push_back({DispatchNode::Test::kEqual, f, size, 0, 0});
    Region just = region;
    just[name] = {size, size};
    uint32_t no = 0;
    if (others.empty()) {
      PlannedNode rest = n;
      rest.shapes = shapes;
      rest.configuration = best_of_all_sizes(shapes);
      no = add_leaf(rest, region, true);
    } else {
      no = add_exact(n, others, symbol, region);
    }
    const uint32_t yes = add_exact(n, same, symbol + 1, just);
    out_.tree.nodes[at].yes = yes;
    out_.tree.nodes[at].no = no;
    return at;
  }

  // Of the configurations that serve any size, the one that loses least at these.
  size_t best_of_all_sizes(const std::vector<uint32_t>& shapes) const {
    size_t best = t_.times.size();
    double least = HUGE_VAL;
    for (size_t c = 0; c < t_.times.size(); ++c) {
      if (t_.is_exact_only(c)) continue;
      double sum = 0;
      for (const uint32_t s : shapes) sum += regret_[c][s];
      if (best == t_.times.size() || sum < least) {
        best = c;
        least = sum;
      }
    }
    NIMBLE_CHECK(best < t_.times.size(), "no configuration serves any size");
    return best;
  }

  uint32_t add_equal(const PlannedNode& n, const TreeFeature& f, const Region& region) {
    const auto at = static_cast<uint32_t>(out_.tree.nodes.size());
    out_.tree.nodes.push_back({DispatchNode::Test::kEqual, f.feature, *f.equals, 0, 0});
    Region just = region;
    just[text_of(f.feature, t_.symbols)] = {*f.equals, *f.equals};
    const uint32_t yes = add(*n.yes, just), no = add(*n.no, region);
    out_.tree.nodes[at].yes = yes;
    out_.tree.nodes[at].no = no;
    return at;
  }

  TableEntry entry(const PlannedNode& leaf, const Region& region) const {
    TableEntry e;
    e.configuration = leaf.configuration;
    e.range = range_text(region);
    e.shapes.assign(leaf.shapes.begin(), leaf.shapes.end());
    double mass = 0;
    for (size_t s : e.shapes) mass += t_.weights[s];
    for (size_t s : e.shapes) {
      // Shapes without weight count alike where nothing has any.
      const double w = mass > 0 ? t_.weights[s] / mass : 1.0 / static_cast<double>(e.shapes.size());
      e.expected_ns += w * t_.times[e.configuration][s];
      e.regret += w * regret_[e.configuration][s];
      e.worst_regret = std::max(e.worst_regret, regret_[e.configuration][s]);
    }
    return e;
  }

  const CrossTable& t_;
  const std::vector<TreeFeature>& features_;
  CostMatrix regret_;
  Table out_;
};

}  // namespace

std::vector<std::vector<double>> regrets(const CrossTable& t) {
  NIMBLE_CHECK(!t.times.empty() && !t.shapes.empty(), "an empty cross-evaluation");
  NIMBLE_CHECK(t.weights.size() == t.shapes.size(), "{} weights", t.weights.size());
  CostMatrix out = t.times;
  for (size_t s = 0; s < t.shapes.size(); ++s) {
    double best = HUGE_VAL;
    for (const auto& row : t.times) best = std::min(best, row.at(s));
    NIMBLE_CHECK(std::isfinite(best) && best > 0, "no time at shape {}", s);
    for (auto& row : out) row[s] = row[s] / best - 1;
  }
  return out;
}

Table build_table(const CrossTable& t, const std::vector<TreeFeature>& features,
                  const PlannedNode& plan) {
  return Builder(t, features).build(plan);
}

}  // namespace nimble::tuner
