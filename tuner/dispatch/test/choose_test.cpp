// The choice is optimal where it claims to be, and says truly how good it is.
#include "tuner/dispatch/choose.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>
#include <set>

#include "tuner/dispatch/ranges.h"
#include "vm/base/error.h"

namespace nimble::tuner {
namespace {

CrossTable random_table(std::mt19937_64& random, size_t configurations, size_t shapes) {
  std::uniform_real_distribution<double> time(100, 300), weight(0, 1);
  CrossTable t;
  t.symbols = {"s0"};
  for (size_t s = 0; s < shapes; ++s) {
    t.shapes.push_back({static_cast<int64_t>(s * s + s + 1)});
    t.weights.push_back(weight(random));
  }
  for (size_t c = 0; c < configurations; ++c) {
    t.times.emplace_back();
    for (size_t s = 0; s < shapes; ++s) t.times.back().push_back(time(random));
  }
  return t;
}

std::vector<std::vector<double>> weighted(const CrossTable& t) {
  auto cost = regrets(t);
  for (auto& row : cost)
    for (size_t s = 0; s < row.size(); ++s) row[s] *= t.weights[s];
  return cost;
}

double cost_of(const std::vector<Segment>& segments, const std::vector<std::vector<double>>& cost,
               const ChooseOptions& o) {
  double sum = 0;
  for (const Segment& s : segments) {
    sum += o.entry_cost;
    for (size_t i = s.begin; i < s.end; ++i) sum += cost[s.configuration][i];
  }
  return sum;
}

// Every way to cut n shapes, every configuration for each piece.
double brute_force(const std::vector<std::vector<double>>& cost, const ChooseOptions& o) {
  const size_t n = cost[0].size();
  double best = HUGE_VAL;
  for (uint32_t cuts = 0; cuts < (1u << (n - 1)); ++cuts) {
    if (static_cast<size_t>(__builtin_popcount(cuts)) + 1 > o.max_entries) continue;
    double sum = 0;
    for (size_t begin = 0; begin < n;) {
      size_t end = begin + 1;
      while (end < n && !(cuts >> (end - 1) & 1)) ++end;
      double least = HUGE_VAL;
      for (const auto& row : cost)
        least = std::min(least, std::accumulate(row.begin() + static_cast<long>(begin),
                                                row.begin() + static_cast<long>(end), 0.0));
      sum += least + o.entry_cost;
      begin = end;
    }
    best = std::min(best, sum);
  }
  return best;
}

TEST(Choose, SegmentsAreAsGoodAsBruteForce) {
  std::mt19937_64 random(3);
  for (int trial = 0; trial < 200; ++trial) {
    const CrossTable t = random_table(random, 1 + random() % 5, 1 + random() % 9);
    ChooseOptions o;
    o.max_entries = 1 + random() % 5;
    o.entry_cost = trial % 2 ? 0.05 : 0;
    const auto cost = weighted(t);
    const auto segments = best_segments(cost, o.max_entries, o.entry_cost);
    EXPECT_NEAR(cost_of(segments, cost, o), brute_force(cost, o), 1e-9);
    EXPECT_LE(segments.size(), o.max_entries);
    EXPECT_EQ(segments.front().begin, 0u);
    EXPECT_EQ(segments.back().end, t.shapes.size());
    for (size_t i = 1; i < segments.size(); ++i) EXPECT_EQ(segments[i].begin, segments[i - 1].end);
  }
}

// `near`: the regret of what is met near likely sizes that have entries of their own.
void expect_consistent(const CrossTable& t, const Table& table, double near = 0) {
  EXPECT_EQ(table.tree.verify(static_cast<uint32_t>(t.symbols.size()),
                              static_cast<uint32_t>(table.entries.size())),
            "");
  const auto r = regrets(t);
  double worst = 0, sum = 0, mass = 0;
  std::vector<int> covered(t.shapes.size(), 0);
  for (size_t e = 0; e < table.entries.size(); ++e)
    for (size_t s : table.entries[e].shapes) {
      ++covered[s];
      EXPECT_EQ(table.tree.choose(t.shapes[s], 1), e);
      worst = std::max(worst, r[table.entries[e].configuration][s]);
      sum += t.weights[s] * r[table.entries[e].configuration][s];
      mass += t.weights[s];
    }
  for (int c : covered) EXPECT_EQ(c, 1);
  if (near > 0) {
    EXPECT_GE(table.worst_regret, worst);
  } else {
    EXPECT_DOUBLE_EQ(table.worst_regret, worst);
  }
  EXPECT_NEAR(table.regret, sum / mass + near, 1e-12);
}

TEST(Choose, TheTreeSendsEveryShapeToItsEntryAndTheRegretIsTrue) {
  std::mt19937_64 random(4);
  for (int trial = 0; trial < 100; ++trial) {
    const CrossTable t = random_table(random, 2 + random() % 6, 1 + random() % 12);
    expect_consistent(t, choose(t));
    expect_consistent(t, choose_single(t));
  }
}

TEST(Choose, ATableIsNeverWorseThanOneConfiguration) {
  std::mt19937_64 random(5);
  for (int trial = 0; trial < 100; ++trial) {
    const CrossTable t = random_table(random, 4, 8);
    EXPECT_LE(choose(t).regret, choose_single(t).regret + 1e-12);
  }
}

TEST(Choose, SingleIsTheBestWeightedAverageOfRelativeTime) {
  CrossTable t;
  t.symbols = {"s0"};
  t.shapes = {{1}, {64}};
  t.times = {{100, 200}, {150, 100}};  // relative: 1, 2 and 1.5, 1
  t.weights = {1, 1};
  EXPECT_EQ(choose_single(t).entries[0].configuration, 1u);
  t.weights = {9, 1};  // the trace says that size 1 is what matters
  EXPECT_EQ(choose_single(t).entries[0].configuration, 0u);
}

TEST(Choose, RangesJoinWithoutGapsAndTheThresholdLiesBetween) {
  CrossTable t;
  t.symbols = {"s0"};
  t.shapes = {{64}, {4}, {16}, {256}};
  t.times = {{300, 100, 300, 300}, {100, 200, 100, 100}};
  t.weights = {1, 1, 1, 1};
  const Table table = choose(t);
  ASSERT_EQ(table.entries.size(), 2u);
  EXPECT_EQ(nlohmann::json::parse(table.entries[0].range), nlohmann::json({{"s0", {0, 8}}}));
  EXPECT_EQ(nlohmann::json::parse(table.entries[1].range),
            nlohmann::json::parse(R"({"s0":[9,null]})"));
  EXPECT_EQ(table.tree.choose(std::vector<int64_t>{8}, 1), 0u);
  EXPECT_EQ(table.tree.choose(std::vector<int64_t>{9}, 1), 1u);
  EXPECT_EQ(table.regret, 0);
}

TEST(Choose, AnEntryMustPay) {
  CrossTable t;
  t.symbols = {"s0"};
  t.shapes = {{1}, {2}};
  t.times = {{100, 100.1}, {100.1, 100}};
  t.weights = {0.5, 0.5};
  EXPECT_EQ(choose(t).entries.size(), 1u);
}

TEST(Choose, ATreeSeparatesWhatNoSingleSymbolCan) {
  // Fast for few rows in all (s0*s1), whatever the parts are.
  CrossTable t;
  t.symbols = {"s0", "s1"};
  t.times = {{}, {}};
  for (int64_t a : {1, 2, 4, 8, 16, 32})
    for (int64_t b : {1, 2, 4, 8, 16, 32}) {
      t.shapes.push_back({a, b});
      t.weights.push_back(1.0 / 36);
      t.times[0].push_back(a * b <= 32 ? 100 : 200);
      t.times[1].push_back(a * b <= 32 ? 200 : 100);
    }
  const Table table = choose(t);
  expect_consistent(t, table);
  EXPECT_EQ(table.regret, 0);
  EXPECT_EQ(table.entries.size(), 2u);
  EXPECT_THAT(table.entries[0].range, ::testing::HasSubstr("s0*s1"));
}

TEST(Choose, SymbolsThatGrowTogetherAreOne) {
  CrossTable t;
  t.symbols = {"s0", "s1", "s2"};
  for (int64_t n : {1, 4, 16, 64}) t.shapes.push_back({1, n, 3 * n});
  t.weights = {1, 1, 1, 1};
  t.times = {{100, 100, 300, 300}, {300, 300, 100, 100}};
  const Table table = choose(t);
  expect_consistent(t, table);
  EXPECT_EQ(table.entries.size(), 2u);
  EXPECT_THAT(table.entries[0].range, ::testing::HasSubstr("\"s1\""));
}

TEST(Choose, WithoutAConfigurationForAllSizesItIsAnError) {
  CrossTable t;
  t.symbols = {"s0"};
  t.shapes = {{1}, {2}};
  t.weights = {1, 1};
  t.times = {{100, HUGE_VAL}, {HUGE_VAL, 100}};
  EXPECT_THROW(choose(t), Error);
  t.times.push_back({500, 500});
  const Table table = choose(t);
  EXPECT_EQ(table.regret, 0);  // each where it works
  EXPECT_EQ(table.entries.size(), 2u);
}

TEST(Choose, ARemainderThatMattersIsAskedFor) {
  CrossTable t;
  t.symbols = {"s0"};
  t.times = {{}, {}};
  t.tiles = {8};
  for (int64_t n = 1; n <= 64; n += n % 8 == 0 ? 1 : n % 8 == 1 ? 3 : n % 8 == 4 ? 4 : 1) {
    t.shapes.push_back({n});
    t.weights.push_back(1);
    t.times[0].push_back(n % 8 == 0 ? 100 : 200);  // whole tiles only
    t.times[1].push_back(120);
  }
  const Table table = choose(t);
  expect_consistent(t, table);
  EXPECT_EQ(table.regret, 0);
  EXPECT_TRUE(table.proven);
  ASSERT_EQ(table.entries.size(), 2u);
  EXPECT_EQ(nlohmann::json::parse(table.entries[0].range), nlohmann::json({{"mod(s0,8)", {0, 0}}}));
  EXPECT_EQ(nlohmann::json::parse(table.entries[1].range), nlohmann::json({{"mod(s0,8)", {1, 7}}}));
  // Sizes that nobody measured follow their remainder.
  EXPECT_EQ(table.tree.choose(std::vector<int64_t>{8000}, 1), 0u);
  EXPECT_EQ(table.tree.choose(std::vector<int64_t>{8001}, 1), 1u);
}

TEST(Choose, ABorderLiesAtAMultipleOfATile) {
  CrossTable t;
  t.symbols = {"s0"};
  t.shapes = {{40}, {90}};
  t.times = {{100, 200}, {200, 100}};
  t.weights = {1, 1};
  EXPECT_EQ(choose(t).tree.nodes[0].threshold, 60);  // the middle by ratio
  t.tiles = {48, 16};
  EXPECT_EQ(choose(t).tree.nodes[0].threshold, 64);
  t.tiles = {6};
  EXPECT_EQ(choose(t).tree.nodes[0].threshold, 60);
  t.tiles = {1000};  // no multiple lies between
  EXPECT_EQ(choose(t).tree.nodes[0].threshold, 60);
}

TEST(Choose, OneConfigurationForTwoRegionsIsPaidForOnce) {
  CrossTable t;
  t.symbols = {"s0"};
  t.shapes = {{1}, {8}, {64}};
  t.weights = {1, 1, 1};
  t.times = {{100, 110, 100}, {110, 100, 110}, {110, 110, 100.3}};
  const Table table = choose(t);
  expect_consistent(t, table);
  ASSERT_EQ(table.entries.size(), 3u);
  EXPECT_EQ(table.entries[0].configuration, 0u);
  EXPECT_EQ(table.entries[1].configuration, 1u);
  EXPECT_EQ(table.entries[2].configuration, 0u);
  const ChooseOptions o;
  EXPECT_NEAR(table.cost, 2 * o.code_cost + 3 * o.entry_cost, 1e-12);
}

// Two configurations, of which the second is better at a likely size alone.
CrossTable with_likely(double exact, double near, double gain) {
  CrossTable t;
  t.symbols = {"s0"};
  t.shapes = {{8}, {16}, {37}, {64}, {128}};
  const double rest = (1 - exact - near) / 4;
  t.weights = {rest, rest, exact + near, rest, rest};
  t.exact = {0, 0, exact, 0, 0};
  t.times = {{100, 100, 100, 100, 100}, {130, 130, 100 / gain, 130, 130}};
  return t;
}

size_t tests_for_equality(const Table& table) {
  return static_cast<size_t>(std::ranges::count(table.tree.nodes, exec::DispatchNode::Test::kEqual,
                                                &exec::DispatchNode::test));
}

TEST(Choose, ALikelySizeHasAnEntryOfItsOwnWhereThatPays) {
  const CrossTable t = with_likely(0.3, 0.0005, 2);
  const Table table = choose(t);
  expect_consistent(t, table, 0.0005 * 1.0);
  EXPECT_EQ(tests_for_equality(table), 1u);
  const auto at = [&](int64_t n) {
    return table.entries[table.tree.choose(std::vector<int64_t>{n}, 1)].configuration;
  };
  EXPECT_EQ(at(37), 1u);
  for (int64_t n : {1, 8, 36, 38, 40, 64, 4096}) EXPECT_EQ(at(n), 0u) << n;
  ASSERT_EQ(table.entries.size(), 2u);
  EXPECT_EQ(nlohmann::json::parse(table.entries[0].range),
            nlohmann::json::parse(R"({"s0":[37,37]})"));
  EXPECT_EQ(table.entries[0].shapes, (std::vector<size_t>{2}));
  EXPECT_EQ(table.entries[1].shapes, (std::vector<size_t>{0, 1, 3, 4}));
  EXPECT_NEAR(table.entries[0].expected_ns, 50, 1e-9);
  // What is near is served as the region around is, at its loss, and the price is paid once.
  const ChooseOptions o;
  EXPECT_NEAR(table.cost, 0.0005 * 1.0 + 2 * o.code_cost + 2 * o.entry_cost, 1e-12);
}

TEST(Choose, ALikelySizeThatDoesNotPayForItsCodeHasNone) {
  for (const CrossTable& t : {with_likely(0.0015, 0, 2), with_likely(0.3, 0, 1.005)}) {
    const Table table = choose(t);
    EXPECT_EQ(table.entries.size(), 1u);
    EXPECT_EQ(table.entries[0].configuration, 0u);
  }
  // A dearer kernel must save more.
  ChooseOptions dear;
  dear.code_cost = 0.4;
  EXPECT_EQ(choose(with_likely(0.3, 0, 2), dear).entries.size(), 1u);
}

TEST(Choose, WhatIsNearALikelySizeMakesARegionWhereItIsMetMore) {
  const CrossTable t = with_likely(0.02, 0.3, 2);
  const Table table = choose(t);
  EXPECT_EQ(tests_for_equality(table), 0u);
  EXPECT_EQ(table.tree.choose(std::vector<int64_t>{37}, 1),
            table.tree.choose(std::vector<int64_t>{38}, 1));
  // Without a trace that tells, no size is likelier than its neighbours.
  CrossTable unknown = with_likely(0.3, 0, 2);
  unknown.exact.clear();
  EXPECT_EQ(tests_for_equality(choose(unknown)), 0u);
}

TEST(Choose, ALikelyShapeOfTwoSymbolsIsAskedForByBoth) {
  CrossTable t;
  t.symbols = {"s0", "s1"};
  t.times.resize(2);
  for (int64_t a : {1, 4, 16})
    for (int64_t b : {8, 37, 148, 200}) {  // 4 · 37 is 1 · 148: no product tells them apart
      const bool likely = a == 4 && b == 37;
      t.shapes.push_back({a, b});
      t.weights.push_back(likely ? 0.4005 : 0.0545);
      t.exact.push_back(likely ? 0.4 : 0);
      t.times[0].push_back(100);
      t.times[1].push_back(likely ? 60 : 150);
    }
  const Table table = choose(t);
  expect_consistent(t, table, 0.0005 * (100.0 / 60 - 1));
  const auto at = [&](int64_t a, int64_t b) {
    return table.entries[table.tree.choose(std::vector<int64_t>{a, b}, 1)].configuration;
  };
  EXPECT_EQ(at(4, 37), 1u);
  for (const auto& [a, b] :
       {std::pair<int64_t, int64_t>{4, 36}, {4, 38}, {1, 37}, {16, 37}, {1, 148}})
    EXPECT_EQ(at(a, b), 0u) << a << " " << b;
}

TEST(Choose, TablesWithLikelySizesAreTrueToTheirShapes) {
  std::mt19937_64 random(11);
  std::uniform_real_distribution<double> share(0, 1);
  for (int trial = 0; trial < 100; ++trial) {
    CrossTable t = random_table(random, 2 + random() % 5, 1 + random() % 9);
    const double alone = choose(t).cost;
    for (const double w : t.weights) t.exact.push_back(random() % 2 ? w * share(random) : 0);
    const Table table = choose(t);
    EXPECT_EQ(table.tree.verify(1, static_cast<uint32_t>(table.entries.size())), "");
    EXPECT_LE(table.cost, alone + 1e-9) << "it may ask for more, and need not";
    std::set<size_t> covered;
    for (size_t e = 0; e < table.entries.size(); ++e) {
      EXPECT_FALSE(table.entries[e].shapes.empty());
      covered.insert(table.entries[e].shapes.begin(), table.entries[e].shapes.end());
    }
    EXPECT_EQ(covered.size(), t.shapes.size());
    for (size_t s = 0; s < t.shapes.size(); ++s)
      EXPECT_THAT(table.entries[table.tree.choose(t.shapes[s], 1)].shapes, testing::Contains(s));
  }
}

TEST(Choose, BeyondWhatWasMeasuredTheOutermostRegionGoesOn) {
  std::mt19937_64 random(6);
  for (int trial = 0; trial < 50; ++trial) {
    CrossTable t;
    t.symbols = {"s0", "s1"};
    std::uniform_real_distribution<double> time(100, 200);
    t.times.resize(4);
    for (int64_t a : {1, 4, 16, 64})
      for (int64_t b : {2, 8, 32}) {
        t.shapes.push_back({a, b});
        t.weights.push_back(1);
        for (auto& row : t.times) row.push_back(time(random));
      }
    const Table table = choose(t);
    expect_consistent(t, table);
    const auto at = [&](int64_t a, int64_t b) {
      return table.tree.choose(std::vector<int64_t>{a, b}, 1);
    };
    EXPECT_EQ(at(64, 32), at(int64_t{1} << 40, int64_t{1} << 40));
    EXPECT_EQ(at(1, 2), at(0, 0));
    EXPECT_EQ(at(1, 2), at(1, 1));
  }
}

TEST(Choose, ManyShapesAndConfigurationsTakeNoLongerThanTheirSteps) {
  // BERT's campaign: a hundred configurations at three hundred shapes of two symbols.
  CrossTable t;
  t.symbols = {"s0", "s1"};
  t.tiles = {4, 6, 8, 16};
  std::mt19937_64 random(7);
  for (int i = 0; i < 300; ++i) {
    t.shapes.push_back(
        {static_cast<int64_t>(1 + random() % 16), static_cast<int64_t>(1 + random() % 512)});
    t.weights.push_back(1);
  }
  std::uniform_real_distribution<double> slope(0.5, 1.5), start(10, 100), noise(0.98, 1.02);
  for (int c = 0; c < 100; ++c) {
    const double each = slope(random), first = start(random);
    const int64_t tile = t.tiles[random() % t.tiles.size()];
    t.times.emplace_back();
    for (const auto& s : t.shapes) {
      const int64_t rows = s[0] * ((s[1] + tile - 1) / tile * tile);
      t.times.back().push_back((first * 5 + each * static_cast<double>(rows)) * noise(random));
    }
  }
  const Table table = choose(t);
  expect_consistent(t, table);
  EXPECT_LT(table.regret, choose_single(t).regret);
  EXPECT_EQ(choose(t).tree, table.tree);  // the same on any machine, at any load
}

// ---- configurations that serve exact sizes alone

// What each size is sent to.
size_t served(const Table& table, const std::vector<int64_t>& size) {
  return table.entries[table.tree.choose(size, 1)].configuration;
}

TEST(Choose, WhatServesExactSizesAloneIsChosenForNoOther) {
  CrossTable t = with_likely(0.3, 0.0005, 2);
  // Twice as fast everywhere, but ready for the likely size alone.
  for (size_t s = 0; s < t.shapes.size(); ++s) t.times[1][s] = t.times[0][s] / 2;
  EXPECT_EQ(served(choose(t), {64}), 1u);
  t.exact_only = {0, 1};
  const Table table = choose(t);
  EXPECT_EQ(table.tree.verify(1, static_cast<uint32_t>(table.entries.size())), "");
  EXPECT_EQ(served(table, {37}), 1u);
  for (int64_t n : {0, 1, 8, 36, 38, 64, 128, 5000}) EXPECT_EQ(served(table, {n}), 0u) << n;
  EXPECT_EQ(choose_single(t).entries[0].configuration, 0u);
  // Where no size is known to be met exactly, it serves none.
  t.exact.clear();
  for (const auto& size : t.shapes) EXPECT_EQ(served(choose(t), size), 0u);
  // And there must be something for all the others.
  t.exact_only = {1, 1};
  EXPECT_THROW(choose(t), Error);
}

TEST(Choose, EachSymbolOfAnExactSizeIsAskedFor) {
  CrossTable t;
  t.symbols = {"s0", "s1"};
  t.shapes = {{8, 10}, {16, 20}, {64, 5}};
  t.weights = {0.2, 0.6, 0.2};
  t.exact = {0, 0.55, 0};
  t.times = {{100, 100, 100}, {50, 50, 50}};
  t.exact_only = {0, 1};
  const Table table = choose(t);
  EXPECT_EQ(table.tree.verify(2, static_cast<uint32_t>(table.entries.size())), "");
  EXPECT_EQ(served(table, {16, 20}), 1u);
  for (const std::vector<int64_t>& other :
       {std::vector<int64_t>{16, 21}, {16, 19}, {15, 20}, {8, 20}, {16, 5}, {8, 10}, {64, 5}})
    EXPECT_EQ(served(table, other), 0u) << other[0] << " " << other[1];
  for (const TableEntry& e : table.entries) EXPECT_FALSE(e.shapes.empty());
  EXPECT_NEAR(table.regret, 0.4 * 1 + 0.05, 1e-9);  // what is near loses as much as the rest
}

TEST(Choose, OneSizeIsExactWhereATraceSaysSo) {
  CrossTable t;
  t.symbols = {"s0"};
  t.shapes = {{128}};
  t.weights = {1};
  t.exact = {0.9};
  t.times = {{100}, {50}};
  t.exact_only = {0, 1};
  const Table table = choose(t);
  EXPECT_EQ(served(table, {128}), 1u);
  EXPECT_EQ(served(table, {127}), 0u);
  // Without symbols there is but one size.
  t.symbols.clear();
  t.shapes = {{}};
  t.exact = {0};
  EXPECT_EQ(served(choose(t), {}), 1u);
}

}  // namespace
}  // namespace nimble::tuner
