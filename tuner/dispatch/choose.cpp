#include "tuner/dispatch/choose.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include "tuner/dispatch/ranges.h"
#include "vm/base/error.h"

namespace nimble::tuner {
namespace {

using exec::DispatchFeature;
using Kind = DispatchFeature::Kind;

// Sizes on each side of a test for a remainder: what fewer say may be their own.
constexpr size_t kLeastOfRemainder = 3;

void require_usable(const CrossTable& t) {
  for (size_t c = 0; c < t.times.size(); ++c)
    if ((!t.is_exact_only(c) || t.symbols.empty()) &&
        std::all_of(t.times[c].begin(), t.times[c].end(),
                    [](double x) { return std::isfinite(x); }))
      return;
  throw Error(Status::kInvalidArgument, "cross-evaluation",
              "no configuration is usable at every shape", "measure the default schedule too");
}

// Shares of the whole weight; of nothing weighted, all count alike.
CostMatrix weighted_regrets(const CrossTable& t) {
  const double mass = std::accumulate(t.weights.begin(), t.weights.end(), 0.0);
  CostMatrix cost = regrets(t);
  for (auto& row : cost)
    for (size_t s = 0; s < row.size(); ++s) {
      const double share = mass > 0 ? t.weights[s] / mass : 1 / static_cast<double>(row.size());
      row[s] = std::isfinite(row[s]) ? std::min(row[s] * share, kUnserved) : kUnserved;
    }
  return cost;
}

// The configuration of least cost over all shapes. Ties go to the earlier one.
size_t best_alone(const CostMatrix& cost) {
  std::vector<double> sums;
  for (const auto& row : cost) sums.push_back(std::accumulate(row.begin(), row.end(), 0.0));
  return static_cast<size_t>(std::min_element(sums.begin(), sums.end()) - sums.begin());
}

std::shared_ptr<const PlannedNode> leaf_node(size_t configuration, std::vector<uint32_t> shapes) {
  auto leaf = std::make_shared<PlannedNode>();
  leaf->configuration = configuration;
  leaf->shapes = std::move(shapes);
  std::sort(leaf->shapes.begin(), leaf->shapes.end());
  return leaf;
}

// ---- what is asked

std::vector<uint32_t> varying_symbols(const CrossTable& t) {
  std::vector<uint32_t> out;
  for (uint32_t s = 0; s < t.symbols.size(); ++s)
    if (std::any_of(t.shapes.begin(), t.shapes.end(),
                    [&](const auto& shape) { return shape[s] != t.shapes[0][s]; }))
      out.push_back(s);
  return out;
}

// Whether the symbol's sizes are in the order of the other's, each of its sizes having one of the
// other: symbols that grow together (b*n rows, and n with b fixed) are one for our purpose.
bool follows(const CrossTable& t, uint32_t symbol, uint32_t other) {
  std::vector<std::pair<int64_t, int64_t>> pairs;
  for (const auto& shape : t.shapes) pairs.emplace_back(shape[other], shape[symbol]);
  std::sort(pairs.begin(), pairs.end());
  for (size_t i = 1; i < pairs.size(); ++i) {
    if (pairs[i].second < pairs[i - 1].second) return false;
    if (pairs[i].first == pairs[i - 1].first && pairs[i].second != pairs[i - 1].second)
      return false;
  }
  return true;
}

// The symbols that a test need ask for: of several that grow together the first.
std::vector<uint32_t> independent_symbols(const CrossTable& t) {
  std::vector<uint32_t> out;
  for (uint32_t s : varying_symbols(t))
    if (std::none_of(out.begin(), out.end(), [&](uint32_t o) { return follows(t, s, o); }))
      out.push_back(s);
  return out;
}

// Shapes of which a part is exact, as two: what is near, and behind all others the exact part.
struct Halved {
  CrossTable table;
  std::vector<size_t> origin;     // shape → the given table's
  std::vector<uint8_t> is_exact;  // by shape
  std::vector<uint8_t> is_near;   // the other half of one that is
};

Halved halved(const CrossTable& t) {
  const std::vector<uint8_t> none(t.shapes.size(), 0);
  Halved out{t, std::vector<size_t>(t.shapes.size()), none, none};
  std::iota(out.origin.begin(), out.origin.end(), size_t{0});
  out.table.exact.clear();
  for (size_t s = 0; s < t.exact.size(); ++s) {
    if (!(t.exact[s] > 0)) continue;
    const double exact = std::min(t.exact[s], t.weights[s]);
    out.table.weights[s] -= exact;
    out.table.weights.push_back(exact);
    out.table.shapes.push_back(t.shapes[s]);
    for (size_t c = 0; c < t.times.size(); ++c) out.table.times[c].push_back(t.times[c][s]);
    out.origin.push_back(s);
    out.is_exact.push_back(1);
    out.is_near.push_back(0);
    out.is_near[s] = 1;
  }
  return out;
}

// What serves exact sizes alone serves nothing near them. Without symbols there is but one size.
CostMatrix costs_of(const Halved& h) {
  CostMatrix cost = weighted_regrets(h.table);
  for (size_t c = 0; c < cost.size(); ++c)
    for (size_t s = 0; s < cost[c].size(); ++s)
      if (h.table.is_exact_only(c) && !h.table.symbols.empty() && !h.is_exact[s])
        cost[c][s] = kUnserved;
  return cost;
}

// The entries' shapes as they were given: a shape belongs to where its exact part goes.
void rejoin(const Halved& h, Table& table) {
  std::vector<size_t> home(h.origin.size());  // given shape → entry
  for (size_t e = 0; e < table.entries.size(); ++e)
    for (const size_t s : table.entries[e].shapes)
      if (!h.is_near[s]) home[h.origin[s]] = e;
  for (size_t e = 0; e < table.entries.size(); ++e) {
    std::vector<size_t> own, near;
    for (const size_t s : table.entries[e].shapes) {
      std::vector<size_t>& list = home[h.origin[s]] == e ? own : near;
      if (std::ranges::find(list, h.origin[s]) == list.end()) list.push_back(h.origin[s]);
    }
    table.entries[e].shapes = own.empty() ? std::move(near) : std::move(own);
    std::ranges::sort(table.entries[e].shapes);
  }
}

// Plain symbols first: among equals the earlier feature is the one.
std::vector<TreeFeature> features_of(const Halved& h, const std::vector<uint32_t>& symbols) {
  const CrossTable& t = h.table;
  std::vector<TreeFeature> out;
  const auto add = [&](DispatchFeature f, size_t least_each) {
    TreeFeature made{f, {}, least_each};
    for (const auto& shape : t.shapes) made.values.push_back(value_of(f, shape, 1));
    out.push_back(std::move(made));
  };
  for (uint32_t s : symbols) add({Kind::kSymbol, s, 0, 1}, 1);
  for (size_t i = 0; i < symbols.size(); ++i)
    for (size_t j = i + 1; j < symbols.size(); ++j)
      add({Kind::kProduct, symbols[i], symbols[j], 1}, 1);
  for (uint32_t s : symbols)
    for (int64_t tile : t.tiles)
      if (tile > 1) add({Kind::kMod, s, 0, tile}, kLeastOfRemainder);
  for (uint32_t s : symbols) {
    std::set<int64_t> likely;
    for (size_t i = 0; i < t.shapes.size(); ++i)
      if (h.is_exact[i]) likely.insert(t.shapes[i][s]);
    for (const int64_t size : likely) {
      TreeFeature made{{Kind::kSymbol, s, 0, 1}, {}, 1, size};
      // What is near such a size is met at others.
      for (size_t i = 0; i < t.shapes.size(); ++i)
        made.values.push_back(t.shapes[i][s] == size && !h.is_near[i] ? 0 : 1);
      out.push_back(std::move(made));
    }
  }
  return out;
}

// ---- what is answered

struct Plan {
  std::shared_ptr<const PlannedNode> root;
  double cost = HUGE_VAL;  // with the configurations' and entries' price
  bool proven = false;
};

void collect(const PlannedNode& n, std::set<size_t>& configurations, size_t& leaves) {
  if (n.is_leaf()) {
    configurations.insert(n.configuration);
    ++leaves;
    return;
  }
  collect(*n.yes, configurations, leaves);
  collect(*n.no, configurations, leaves);
}

double loss_of(const PlannedNode& n, const CostMatrix& cost) {
  if (!n.is_leaf()) return loss_of(*n.yes, cost) + loss_of(*n.no, cost);
  double sum = 0;
  for (uint32_t s : n.shapes) sum += cost[n.configuration][s];
  return sum;
}

class Chooser {
 public:
  Chooser(const CrossTable& t, const ChooseOptions& options)
      : options_(options),
        halved_(halved(t)),
        t_(halved_.table),
        cost_(costs_of(halved_)),
        symbols_(asked_symbols()),
        features_(features_of(halved_, symbols_)) {}

  Table single() {
    std::vector<uint32_t> all(t_.shapes.size());
    std::iota(all.begin(), all.end(), 0u);
    offer(leaf_node(best_alone(cost_), std::move(all)), true);
    return made();
  }

  Table run() {
    single();
    if (!symbols_.empty()) {
      if (symbols_.size() == 1) sort_by(symbols_[0]);
      const size_t most = std::min(options_.max_configurations, kMostPooled);
      for (size_t size = 1, before = 0; size <= most; ++size) {
        const std::vector<size_t> pool = choose_pool(cost_, size);
        if (pool.size() <= before) break;
        before = pool.size();
        try_pool(pool);
      }
      if (symbols_.size() == 1) try_ranges(ids_of_all());
    }
    return made();
  }

 private:
  // Where all sizes are one, what serves it alone still needs a test for it.
  std::vector<uint32_t> asked_symbols() const {
    std::vector<uint32_t> out = independent_symbols(t_);
    if (out.empty() && !t_.symbols.empty() && std::ranges::count(t_.exact_only, 1) > 0) out = {0};
    return out;
  }
  Table made() const {
    Table out = build_table(t_, features_, *best_.root);
    out.cost = best_.cost;
    out.proven = best_.proven;
    rejoin(halved_, out);
    return out;
  }
  std::vector<size_t> ids_of_all() const {
    std::vector<size_t> out(cost_.size());
    std::iota(out.begin(), out.end(), size_t{0});
    return out;
  }

  void offer(const std::shared_ptr<const PlannedNode>& root, bool proven) {
    std::set<size_t> configurations;
    size_t leaves = 0;
    collect(*root, configurations, leaves);
    const double cost = loss_of(*root, cost_) +
                        options_.code_cost * static_cast<double>(configurations.size()) +
                        options_.entry_cost * static_cast<double>(leaves);
    if (cost < best_.cost - 1e-12 || !best_.root) best_ = {root, cost, proven};
  }

  void try_pool(const std::vector<size_t>& pool) {
    CostMatrix rows;
    for (size_t c : pool) rows.push_back(cost_[c]);
    TreeOptions o;
    o.entry_cost = options_.entry_cost;
    o.max_depth = options_.max_depth;
    o.most_steps = options_.most_steps;
    const PlannedTree planned = plan_tree(rows, features_, o);
    offer(of_pool(*planned.root, pool), planned.proven);
    if (symbols_.size() == 1) try_ranges(pool);
  }

  // The same plan with the cross table's configurations instead of the pool's.
  static std::shared_ptr<const PlannedNode> of_pool(const PlannedNode& n,
                                                    const std::vector<size_t>& pool) {
    auto out = std::make_shared<PlannedNode>(n);
    if (n.is_leaf()) {
      out->configuration = pool[n.configuration];
    } else {
      out->yes = of_pool(*n.yes, pool);
      out->no = of_pool(*n.no, pool);
    }
    return out;
  }

  // ---- one symbol: ranges

  // Shapes of one size are one column: no test tells them apart.
  void sort_by(uint32_t symbol) {
    std::map<int64_t, std::vector<uint32_t>> by_size;
    for (uint32_t s = 0; s < t_.shapes.size(); ++s) by_size[t_.shapes[s][symbol]].push_back(s);
    for (auto& [size, shapes] : by_size) columns_.push_back(std::move(shapes));
  }

  void try_ranges(const std::vector<size_t>& pool) {
    CostMatrix rows;
    for (size_t c : pool) {
      rows.emplace_back();
      for (const auto& column : columns_) {
        double sum = 0;
        for (uint32_t s : column) sum += cost_[c][s];
        rows.back().push_back(sum);
      }
    }
    const std::vector<Segment> segments =
        best_segments(rows, options_.max_entries, options_.entry_cost);
    offer(range_node(segments, pool, 0, segments.size() - 1),
          t_.tiles.empty() && !std::ranges::count(halved_.is_exact, 1));
  }

  // A balanced tree over the segments first … last; the first feature is the symbol.
  std::shared_ptr<const PlannedNode> range_node(const std::vector<Segment>& segments,
                                                const std::vector<size_t>& pool, size_t first,
                                                size_t last) const {
    std::vector<uint32_t> shapes;
    for (size_t column = segments[first].begin; column < segments[last].end; ++column)
      shapes.insert(shapes.end(), columns_[column].begin(), columns_[column].end());
    if (first == last) return leaf_node(pool[segments[first].configuration], std::move(shapes));
    auto node = std::make_shared<PlannedNode>();
    node->shapes = std::move(shapes);
    const size_t middle = (first + last) / 2;
    node->yes = range_node(segments, pool, first, middle);
    node->no = range_node(segments, pool, middle + 1, last);
    return node;
  }

  const ChooseOptions& options_;
  const Halved halved_;
  const CrossTable& t_;
  CostMatrix cost_;
  std::vector<uint32_t> symbols_;
  std::vector<TreeFeature> features_;
  std::vector<std::vector<uint32_t>> columns_;  // of one symbol: the shapes of each size
  Plan best_;
};

}  // namespace

Table choose_single(const CrossTable& t) {
  require_usable(t);
  return Chooser(t, {}).single();
}

Table choose(const CrossTable& t, const ChooseOptions& options) {
  require_usable(t);
  return Chooser(t, options).run();
}

}  // namespace nimble::tuner
