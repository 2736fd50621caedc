#include "tuner/dispatch/choose.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>

#include "vm/base/error.h"
#include "vm/executable/dispatch_text.h"

namespace nimble::tuner {
namespace {

using exec::DispatchFeature;
using exec::DispatchNode;
using Matrix = std::vector<std::vector<double>>;

constexpr int64_t kUnbounded = INT64_MAX;
constexpr int64_t kTiles[] = {8, 16, 32};

void require_usable(const CrossTable& t) {
  for (const auto& row : t.times)
    if (std::all_of(row.begin(), row.end(), [](double x) { return std::isfinite(x); })) return;
  throw Error(Status::kInvalidArgument, "cross-evaluation",
              "no configuration is usable at every shape", "measure the default schedule too");
}

Matrix weighted_regrets(const CrossTable& t) {
  Matrix cost = regrets(t);
  for (auto& row : cost)
    for (size_t s = 0; s < row.size(); ++s)
      if (std::isfinite(row[s])) row[s] *= t.weights[s];
  return cost;
}

// The configuration of least cost over some shapes. Ties go to the earlier one.
struct Best {
  size_t configuration = 0;
  double cost = HUGE_VAL;
};
Best best_over(const Matrix& cost, std::span<const size_t> shapes) {
  Best best;
  for (size_t c = 0; c < cost.size(); ++c) {
    double sum = 0;
    for (size_t s : shapes) sum += cost[c][s];
    if (sum < best.cost) best = {c, sum};
  }
  return best;
}

// The largest integer that still belongs to the smaller of two neighbouring values: the sizes in
// between go to the nearer one by ratio.
int64_t between(int64_t low, int64_t high) {
  const auto middle = static_cast<int64_t>(
      std::floor(std::sqrt(static_cast<double>(low) * static_cast<double>(high))));
  return std::clamp(middle, low, high - 1);
}

int64_t value_of(const DispatchFeature& f, const std::vector<int64_t>& shape) {
  switch (f.kind) {
    case DispatchFeature::Kind::kCeilDiv:
      return (shape[f.a] + f.t - 1) / f.t;
    case DispatchFeature::Kind::kProduct:
      return shape[f.a] * shape[f.b];
    default:
      return shape[f.a];
  }
}

using Region = std::map<std::string, std::pair<int64_t, int64_t>>;

std::string range_text(const Region& region) {
  nlohmann::json j = nlohmann::json::object();
  for (const auto& [feature, ends] : region)
    j[feature] = {ends.first, ends.second == kUnbounded ? nlohmann::json(nullptr)
                                                        : nlohmann::json(ends.second)};
  return j.dump();
}

// Builds trees node by node; children come after their parents.
class Builder {
 public:
  Builder(const CrossTable& t, Table& out) : t_(t), out_(out), regret_(regrets(t)) {}

  uint32_t leaf(size_t configuration, std::span<const size_t> shapes, const Region& region) {
    TableEntry e;
    e.configuration = configuration;
    e.range = range_text(region);
    e.shapes.assign(shapes.begin(), shapes.end());
    double mass = 0;
    for (size_t s : shapes) mass += t_.weights[s];
    for (size_t s : shapes) {
      // Shapes without weight count alike where nothing has any.
      const double w = mass > 0 ? t_.weights[s] / mass : 1.0 / static_cast<double>(shapes.size());
      e.expected_ns += w * t_.times[configuration][s];
      e.regret += w * regret_[configuration][s];
      e.worst_regret = std::max(e.worst_regret, regret_[configuration][s]);
    }
    out_.entries.push_back(std::move(e));
    out_.tree.nodes.push_back(
        {DispatchNode::Test::kLeaf, {}, 0, static_cast<uint32_t>(out_.entries.size() - 1), 0});
    return static_cast<uint32_t>(out_.tree.nodes.size() - 1);
  }

  // Reserves an inner node; its children are set when they exist.
  uint32_t inner(const DispatchFeature& f, int64_t threshold) {
    out_.tree.nodes.push_back({DispatchNode::Test::kLessEqual, f, threshold, 0, 0});
    return static_cast<uint32_t>(out_.tree.nodes.size() - 1);
  }
  void children(uint32_t node, uint32_t yes, uint32_t no) {
    out_.tree.nodes[node].yes = yes;
    out_.tree.nodes[node].no = no;
  }

  void finish() {
    const double mass = std::accumulate(t_.weights.begin(), t_.weights.end(), 0.0);
    for (const TableEntry& e : out_.entries) {
      out_.worst_regret = std::max(out_.worst_regret, e.worst_regret);
      for (size_t s : e.shapes)
        out_.regret += (mass > 0 ? t_.weights[s] / mass : 0) * regret_[e.configuration][s];
    }
  }

 private:
  const CrossTable& t_;
  Table& out_;
  Matrix regret_;
};

// ---- one symbol: ranges

// A balanced tree over the segments first … last.
uint32_t build_ranges(Builder& b, const CrossTable& t, uint32_t symbol,
                      const std::vector<size_t>& order, const std::vector<Segment>& segments,
                      size_t first, size_t last) {
  const auto size_at = [&](size_t i) { return t.shapes[order[i]][symbol]; };
  const auto top = [&](size_t s) {  // of segment s
    return between(size_at(segments[s].end - 1), size_at(segments[s].end));
  };
  if (first == last) {
    const Segment& s = segments[first];
    Region region;
    region[t.symbols[symbol]] = {first == 0 ? 0 : top(first - 1) + 1,
                                 first + 1 == segments.size() ? kUnbounded : top(first)};
    return b.leaf(s.configuration, std::span(order).subspan(s.begin, s.end - s.begin), region);
  }
  const size_t middle = (first + last) / 2;
  DispatchFeature f;
  f.a = symbol;
  const uint32_t node = b.inner(f, top(middle));
  const uint32_t yes = build_ranges(b, t, symbol, order, segments, first, middle);
  const uint32_t no = build_ranges(b, t, symbol, order, segments, middle + 1, last);
  b.children(node, yes, no);
  return node;
}

Table choose_ranges(const CrossTable& t, uint32_t symbol, const ChooseOptions& options) {
  std::vector<size_t> order(t.shapes.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return t.shapes[a][symbol] < t.shapes[b][symbol]; });
  const Matrix weighted = weighted_regrets(t);
  Matrix cost;
  for (const auto& row : weighted) {
    cost.emplace_back();
    for (size_t s : order) cost.back().push_back(row[s]);
  }
  const std::vector<Segment> segments = best_segments(cost, options);
  Table out;
  Builder b(t, out);
  build_ranges(b, t, symbol, order, segments, 0, segments.size() - 1);
  b.finish();
  return out;
}

// ---- several symbols: a tree

struct Split {
  DispatchFeature feature;
  int64_t threshold = 0;
  double cost = HUGE_VAL;
  std::vector<size_t> yes, no;
};

class Grower {
 public:
  Grower(const CrossTable& t, const ChooseOptions& options, Table& out)
      : t_(t), options_(options), cost_(weighted_regrets(t)), builder_(t, out) {
    for (uint32_t a = 0; a < t.symbols.size(); ++a) {
      add(DispatchFeature::Kind::kSymbol, a, 0, 1);
      for (int64_t tile : kTiles) add(DispatchFeature::Kind::kCeilDiv, a, 0, tile);
      for (uint32_t b = a + 1; b < t.symbols.size(); ++b)
        add(DispatchFeature::Kind::kProduct, a, b, 1);
    }
  }
  void run() {
    std::vector<size_t> all(t_.shapes.size());
    std::iota(all.begin(), all.end(), size_t{0});
    budget_ = options_.max_entries - 1;
    grow(all, {}, 0);
    builder_.finish();
  }

 private:
  void add(DispatchFeature::Kind kind, uint32_t a, uint32_t b, int64_t t) {
    DispatchFeature f;
    f.kind = kind;
    f.a = a;
    f.b = b;
    f.t = t;
    features_.push_back(f);
  }

  Split best_split(const std::vector<size_t>& shapes) const {
    Split best;
    for (const DispatchFeature& f : features_) {
      std::vector<size_t> order = shapes;
      std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
        return value_of(f, t_.shapes[a]) < value_of(f, t_.shapes[b]);
      });
      for (size_t i = 1; i < order.size(); ++i) {
        const int64_t low = value_of(f, t_.shapes[order[i - 1]]),
                      high = value_of(f, t_.shapes[order[i]]);
        if (low == high) continue;
        const std::span all(order);
        const double cost =
            best_over(cost_, all.first(i)).cost + best_over(cost_, all.subspan(i)).cost;
        // Strictly better: earlier features, the plain symbols, win ties.
        if (cost < best.cost - 1e-12)
          best = {f,
                  between(low, high),
                  cost,
                  {order.begin(), order.begin() + static_cast<long>(i)},
                  {order.begin() + static_cast<long>(i), order.end()}};
      }
    }
    return best;
  }

  uint32_t grow(const std::vector<size_t>& shapes, const Region& region, int depth) {
    const Best best = best_over(cost_, shapes);
    Split split;
    if (depth < options_.max_depth && budget_ > 0) split = best_split(shapes);
    if (!(split.cost + options_.entry_cost < best.cost))
      return builder_.leaf(best.configuration, shapes, region);
    --budget_;
    const uint32_t node = builder_.inner(split.feature, split.threshold);
    const std::string name = text_of(split.feature, t_.symbols);
    const auto it = region.find(name);
    const auto ends = it == region.end() ? std::pair<int64_t, int64_t>{0, kUnbounded} : it->second;
    Region low = region, high = region;
    low[name] = {ends.first, split.threshold};
    high[name] = {split.threshold + 1, ends.second};
    const uint32_t yes = grow(split.yes, low, depth + 1);
    const uint32_t no = grow(split.no, high, depth + 1);
    builder_.children(node, yes, no);
    return node;
  }

  const CrossTable& t_;
  const ChooseOptions& options_;
  Matrix cost_;
  Builder builder_;
  std::vector<DispatchFeature> features_;
  size_t budget_ = 0;  // splits left
};

}  // namespace

std::vector<std::vector<double>> regrets(const CrossTable& t) {
  NIMBLE_CHECK(!t.times.empty() && !t.shapes.empty(), "an empty cross-evaluation");
  NIMBLE_CHECK(t.weights.size() == t.shapes.size(), "{} weights", t.weights.size());
  Matrix out = t.times;
  for (size_t s = 0; s < t.shapes.size(); ++s) {
    double best = HUGE_VAL;
    for (const auto& row : t.times) best = std::min(best, row.at(s));
    NIMBLE_CHECK(std::isfinite(best) && best > 0, "no time at shape {}", s);
    for (auto& row : out) row[s] = row[s] / best - 1;
  }
  return out;
}

std::vector<Segment> best_segments(const std::vector<std::vector<double>>& cost,
                                   const ChooseOptions& options) {
  const size_t n = cost.at(0).size();
  // single[i][j]: the best configuration for shapes i … j-1.
  std::vector<std::vector<Best>> single(n, std::vector<Best>(n + 1));
  for (size_t i = 0; i < n; ++i) {
    std::vector<double> sums(cost.size(), 0);
    for (size_t j = i; j < n; ++j)
      for (size_t c = 0; c < cost.size(); ++c) {
        sums[c] += cost[c][j];
        if (sums[c] < single[i][j + 1].cost) single[i][j + 1] = {c, sums[c]};
      }
  }
  const size_t most = std::max<size_t>(1, std::min(options.max_entries, n));
  // least[k][j]: cost of the first j shapes in k segments; from[k][j]: where the last one begins.
  Matrix least(most + 1, std::vector<double>(n + 1, HUGE_VAL));
  std::vector<std::vector<size_t>> from(most + 1, std::vector<size_t>(n + 1, 0));
  least[0][0] = 0;
  for (size_t k = 1; k <= most; ++k)
    for (size_t j = 1; j <= n; ++j)
      for (size_t i = 0; i < j; ++i) {
        const double c = least[k - 1][i] + single[i][j].cost + options.entry_cost;
        if (c < least[k][j]) least[k][j] = c, from[k][j] = i;
      }
  size_t k = 1;
  for (size_t other = 2; other <= most; ++other)
    if (least[other][n] < least[k][n]) k = other;
  std::vector<Segment> out;
  for (size_t j = n; k > 0; --k) {
    const size_t i = from[k][j];
    out.push_back({i, j, single[i][j].configuration});
    j = i;
  }
  std::reverse(out.begin(), out.end());
  return out;
}

Table choose_single(const CrossTable& t) {
  require_usable(t);
  std::vector<size_t> all(t.shapes.size());
  std::iota(all.begin(), all.end(), size_t{0});
  Table out;
  Builder b(t, out);
  b.leaf(best_over(weighted_regrets(t), all).configuration, all, {});
  b.finish();
  return out;
}

Table choose(const CrossTable& t, const ChooseOptions& options) {
  require_usable(t);
  // Symbols that vary. One that never does, or follows another, needs no question of its own.
  std::vector<uint32_t> varying;
  for (uint32_t s = 0; s < t.symbols.size(); ++s)
    for (const auto& shape : t.shapes)
      if (shape[s] != t.shapes[0][s]) {
        varying.push_back(s);
        break;
      }
  if (varying.empty() || options.max_entries <= 1) return choose_single(t);
  std::vector<int64_t> sizes;
  for (const auto& shape : t.shapes) sizes.push_back(shape[varying[0]]);
  std::sort(sizes.begin(), sizes.end());
  const bool distinct = std::adjacent_find(sizes.begin(), sizes.end()) == sizes.end();
  if (varying.size() == 1 && distinct) return choose_ranges(t, varying[0], options);
  // Symbols that grow together (b*n rows and n with b fixed) are one for our purpose.
  if (distinct) {
    const auto ordered_alike = [&](uint32_t other) {
      std::vector<std::pair<int64_t, int64_t>> pairs;
      for (const auto& shape : t.shapes) pairs.emplace_back(shape[varying[0]], shape[other]);
      std::sort(pairs.begin(), pairs.end());
      return std::is_sorted(pairs.begin(), pairs.end(),
                            [](const auto& a, const auto& b) { return a.second < b.second; });
    };
    if (std::all_of(varying.begin(), varying.end(), ordered_alike))
      return choose_ranges(t, varying[0], options);
  }
  Table out;
  Grower(t, options, out).run();
  return out;
}

}  // namespace nimble::tuner
