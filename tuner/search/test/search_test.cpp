// The cost model learns, and the search profits from it.
#include "tuner/search/search.h"

#include <gmock/gmock.h>

#include <cmath>
#include <random>
#include <set>

#include "compiler/driver/compile.h"
#include "compiler/ir/infer.h"
#include "compiler/ir/text.h"
#include "compiler/passes/pipeline.h"
#include "tuner/measure/statistics.h"
#include "tuner/search/features.h"
#include "vm/base/error.h"

namespace nimble::tuner {
namespace {

// A product whose right-hand side is a constant, hence packed.
std::string product_text() {
  std::string weights = "0.5";
  for (int i = 1; i < 96 * 80; ++i) weights += ", 0.5";
  return "fn @main(%x: Tensor[(n, 96), f32]) -> Tensor[(n, 80), f32] {\n  let %y = matmul(%x, "
         "f32[96, 80]{" +
         weights + "});\n  %y\n}\n";
}

TEST(CostModel, LearnsTheOrderOfAFunctionThatItNeverSaw) {
  std::mt19937_64 random(1);
  std::uniform_real_distribution<float> unit(0, 1);
  std::normal_distribution<double> noise(0, 0.02);
  const auto draw = [&](size_t n, std::vector<std::vector<float>>& x, std::vector<double>& y) {
    for (size_t i = 0; i < n; ++i) {
      x.push_back({unit(random), unit(random), unit(random), unit(random)});
      const auto& r = x.back();
      const double slow = 2 * std::abs(r[0] - 0.3) + r[1] * r[2] + noise(random);
      y.push_back(1000 * std::exp2(slow));
    }
  };
  std::vector<std::vector<float>> train_x, test_x;
  std::vector<double> train_y, test_y;
  draw(200, train_x, train_y);
  draw(200, test_x, test_y);
  CostModel model(5);
  EXPECT_FALSE(model.trained());
  model.train(train_x, train_y);
  ASSERT_TRUE(model.trained());
  const auto predicted = model.predict(test_x);
  EXPECT_GT(rank_correlation(predicted, test_y), 0.9);
  // In ns, not only in order.
  EXPECT_NEAR(median_of(predicted) / median_of(test_y), 1, 0.2);
}

TEST(CostModel, PredictsTheSameAfterItWasStoredAndLoaded) {
  std::mt19937_64 random(2);
  std::uniform_real_distribution<float> unit(0, 1);
  std::vector<std::vector<float>> x;
  std::vector<double> y;
  for (int i = 0; i < 60; ++i) {
    x.push_back({unit(random), unit(random), unit(random)});
    y.push_back(2.5e6 * std::exp2(x.back()[0] + x.back()[1] * x.back()[2]));
  }
  CostModel model(9);
  EXPECT_TRUE(model.serialised().empty());
  model.train(x, y);
  const std::vector<uint8_t> bytes = model.serialised();
  const auto known = [](std::span<const uint8_t>) {};  // whoever calls this has just made it
  const CostModel loaded = CostModel::load(bytes, known);
  EXPECT_TRUE(loaded.trained());
  EXPECT_EQ(loaded.predict(x), model.predict(x));
  EXPECT_EQ(loaded.serialised(), bytes);
  // What is not a model, or not of these features, is refused.
  for (size_t n : {size_t{0}, size_t{3}, size_t{12}, size_t{25}})
    EXPECT_THROW(CostModel::load(std::span(bytes).first(n), known), Error) << n;
  std::vector<uint8_t> other = bytes;
  other[4] += 1;
  try {
    CostModel::load(other, known);
    FAIL() << "no error";
  } catch (const Error& e) {
    EXPECT_EQ(e.status(), Status::kIncompatible);
  }
}

// Nothing is read of bytes that nobody answers for, not even whether they are a model.
TEST(CostModel, OfUnknownOriginIsNotRead) {
  const std::vector<uint8_t> crafted = {1, 2, 3};
  try {
    CostModel::load(crafted, [&](std::span<const uint8_t> bytes) {
      EXPECT_TRUE(std::ranges::equal(bytes, crafted));
      throw Error(Status::kInvalidArgument, "cost model", "is not signed", "");
    });
    FAIL() << "no error";
  } catch (const Error& e) {
    EXPECT_EQ(e.problem(), "is not signed");
  }
}

TEST(CostModel, IsTheSameForTheSameDataAndSeed) {
  std::vector<std::vector<float>> x;
  std::vector<double> y;
  for (int i = 0; i < 30; ++i) {
    x.push_back({static_cast<float>(i % 7), static_cast<float>(i % 4)});
    y.push_back(100 + i % 7 * 10 + i % 4);
  }
  CostModel a(1), b(1);
  a.train(x, y);
  b.train(x, y);
  EXPECT_EQ(a.predict(x), b.predict(x));
  EXPECT_EQ(a.serialised(), b.serialised());
}

TEST(CostModel, TooFewPointsTeachNothing) {
  CostModel m(1);
  m.train({{1}, {2}, {3}}, std::vector<double>{1, 2, 3});
  EXPECT_FALSE(m.trained());
}

class SearchTest : public testing::Test {
 protected:
  SearchTest() {
    target = kernels::target_by_name("x86-64-v3");
    passes::PassContext context;
    context.target = target;
    const ir::Module lowered =
        passes::run_pipeline(ir::infer_types(ir::parse_module(product_text())), context);
    workload = driver::workloads_of(lowered).at(0).workload;
    space = std::make_unique<Space>(workload, target);
    options.shapes = {std::vector<int64_t>(workload.contract.symbols.size(), 64)};
  }
  // A made-up machine: smooth in the knobs, with one best corner.
  double time_of(const tuned::Candidate& c) const {
    const std::vector<double> at = space->coordinates(c);
    double slow = 0;
    for (size_t i = 0; i < at.size(); ++i)
      slow += (at[i] - 0.7) * (at[i] - 0.7) * static_cast<double>(1 + i % 3);
    return 1000 * (1 + slow);
  }
  double run(Search& search, int rounds, size_t per_round) const {
    double best = HUGE_VAL;
    for (int r = 0; r < rounds; ++r) {
      for (const Proposal& p : search.propose(per_round)) {
        const double t = time_of(p.candidate);
        best = std::min(best, t);
        search.tell(p.candidate, t);
      }
      search.learn();
    }
    return best;
  }
  kernels::TargetInfo target;
  kernels::Workload workload;
  std::unique_ptr<Space> space;
  SearchOptions options;
};

TEST_F(SearchTest, FeaturesAreFiniteAndTellConfigurationsApart) {
  Random random(1);
  std::set<std::vector<float>> distinct;
  for (int i = 0; i < 30; ++i) {
    const tuned::Candidate c = *space->sample(random);
    const kernels::Template* t = kernels::find_template(c.template_name);
    const kernels::Lowered l = t->lower(workload, c.config, target, "k");
    const auto f = features_of(l.functions.at(l.tails.choose(options.shapes[0], 2)),
                               options.shapes[0], 2, target);
    ASSERT_EQ(f.size(), feature_names().size());
    for (size_t j = 0; j < f.size(); ++j) EXPECT_TRUE(std::isfinite(f[j])) << feature_names()[j];
    distinct.insert(f);
  }
  EXPECT_GT(distinct.size(), 15u);
}

TEST_F(SearchTest, FlopsAreCountedAsTheProductHasThem) {
  const tuned::Candidate c = space->default_candidate();
  const kernels::Lowered l =
      kernels::find_template(c.template_name)->lower(workload, c.config, target, "k");
  const auto f = features_of(l.functions.at(l.tails.choose(options.shapes[0], 1)),
                             options.shapes[0], 1, target);
  // 2 * 64 * 96 * 80, panels padded to whole vectors and rows to whole tiles.
  const double flops = std::exp2(f[0]);
  EXPECT_GE(flops, 2.0 * 64 * 96 * 80 * 0.8);
  EXPECT_LE(flops, 2.0 * 64 * 96 * 80 * 1.7);
}

// A dot is all products of its groups, in the time of one where there is an instruction for it.
TEST(Features, CountDots) {
  using namespace kir::build;  // NOLINT
  constexpr kir::Fragment kPairs = kir::Fragment::kBf16Pairs;
  kir::Function f;
  f.name = "dots";
  const kir::BufferRef a = buffer("a", kir::Scope::kArgument, DType::kBF16, 32);
  auto y = std::make_shared<kir::Buffer>(*buffer("y", kir::Scope::kArgument, DType::kF32, 16));
  y->writable = true;
  f.arguments = {a, y};
  f.body = loop(kir::LoopKind::kSerial, "k", 0, 1000,
                store(y, 0, dot(kPairs, load(a, 0, 32), load(a, 0, 32), kir::build::f32(0, 16))));
  const auto feature = [&](const char* level, const std::string& name) {
    const auto& names = feature_names();
    const auto at = std::find(names.begin(), names.end(), name) - names.begin();
    return features_of(f, {}, 1, kernels::target_by_name(level)).at(static_cast<size_t>(at));
  };
  EXPECT_NEAR(std::exp2(feature("x86-64-v4", "flops")), 2.0 * 32 * 1000, 100);
  EXPECT_EQ(feature("x86-64-v4-bf16", "flops"), feature("x86-64-v4", "flops"));
  EXPECT_LT(feature("x86-64-v4-bf16", "bound compute"), feature("x86-64-v4", "bound compute"));
}

// One of matrix registers is all products of its tiles, in a cycle a row where there are registers.
TEST(Features, CountDotsOfTiles) {
  using namespace kir::build;  // NOLINT
  kir::Function f;
  f.name = "dots";
  f.contract.symbols = {"m"};
  const ir::Dim m = ir::Dim::symbol("m");
  const kir::BufferRef a = buffer("a", kir::Scope::kArgument, DType::kBF16, 512),
                       b = buffer("b", kir::Scope::kArgument, DType::kBF16, 512);
  auto y = std::make_shared<kir::Buffer>(*buffer("y", kir::Scope::kArgument, DType::kF32, 256));
  y->writable = true;
  f.arguments = {a, b, y};
  const kir::BufferRef sum = tile_buffer("sum", DType::kF32, 16, 16, 1),
                       lhs = tile_buffer("lhs", DType::kBF16, 16, 32, 1),
                       rhs = tile_buffer("rhs", DType::kBF16, 16, 32, 1);
  f.registers = {sum, lhs, rhs};
  f.body =
      with_tiles({{sum, m}, {lhs, m}, {rhs, 16}},
                 seq({tile_zero(sum, 0),
                      loop(kir::LoopKind::kSerial, "k", 0, 1000,
                           seq({tile_load(lhs, 0, a, 0, 32), tile_load(rhs, 0, b, 0, 32),
                                tile_dot(kir::TileFragment::kBf16Tiles, sum, 0, lhs, 0, rhs, 0)})),
                      tile_store(y, 0, 16, sum, 0)}));
  const auto feature = [&](const char* level, const std::string& name, int64_t rows) {
    const auto& names = feature_names();
    const auto at = std::find(names.begin(), names.end(), name) - names.begin();
    return std::exp2(features_of(f, {{rows}}, 1, kernels::target_by_name(level))
                         .at(static_cast<size_t>(at))) -
           1;
  };
  for (const int64_t rows : {1, 5, 16}) {
    const double flops = 2.0 * static_cast<double>(rows) * 16 * 32 * 1000;
    EXPECT_NEAR(feature("x86-64-v4", "flops", rows), flops, flops / 1000);
    EXPECT_NEAR(feature("x86-64-v4-amx", "flops", rows), flops, flops / 1000);
    const double cycles = static_cast<double>(rows) * 1000;
    EXPECT_NEAR(feature("x86-64-v4-amx", "bound compute", rows), cycles, cycles / 100);
    EXPECT_NEAR(feature("x86-64-v4", "bound compute", rows), 16 * cycles, cycles / 10);
    const double loaded = 1000.0 * (static_cast<double>(rows) + 16);
    EXPECT_NEAR(feature("x86-64-v4-amx", "loads", rows), loaded, loaded / 100);
    EXPECT_NEAR(feature("x86-64-v4-amx", "stores", rows), static_cast<double>(rows), 0.1);
  }
}

TEST_F(SearchTest, NeverProposesAPointTwice) {
  Search search(*space, options);
  std::set<std::string> seen;
  for (int r = 0; r < 8; ++r) {
    for (const Proposal& p : search.propose(12)) {
      EXPECT_TRUE(space->contains(p.candidate));
      EXPECT_TRUE(seen.insert(text_of(p.candidate)).second) << text_of(p.candidate);
      search.tell(p.candidate, time_of(p.candidate));
    }
    search.learn();
  }
  EXPECT_EQ(seen.size(), 96u);
}

TEST_F(SearchTest, TheFirstRoundHoldsTheDefaultAndTheVendorsRoutine) {
  Search search(*space, options);
  const auto first = search.propose(8);
  ASSERT_FALSE(first.empty());
  EXPECT_EQ(text_of(first[0].candidate), text_of(space->default_candidate()));
  ASSERT_TRUE(space->vendor_candidate());
  EXPECT_EQ(text_of(first[1].candidate), text_of(*space->vendor_candidate()));
}

TEST_F(SearchTest, TheFirstRoundHoldsWhatWasGoodElsewhere) {
  Random random(3);
  const tuned::Candidate good = *space->sample(random);
  tuned::Candidate none = good;
  none.template_name = "no such template";
  options.seeds = {none, good, good};
  Search search(*space, options);
  const std::vector<Proposal> first = search.propose(4);
  ASSERT_EQ(first.size(), 4u);
  EXPECT_EQ(text_of(first[1].candidate), text_of(good));
  for (size_t i = 2; i < 4; ++i) EXPECT_NE(text_of(first[i].candidate), text_of(good));
  for (const Proposal& p : first) EXPECT_NE(p.candidate.template_name, none.template_name);
}

TEST_F(SearchTest, BegunAnewItIsANewSearchOfThatSeed) {
  options.seed = 5;
  Search fresh(*space, options), used(*space, options);
  for (const Proposal& p : used.propose(6)) used.tell(p.candidate, 100);
  used.learn();
  used.begin_anew(5);
  EXPECT_EQ(used.tried(), 0u);
  EXPECT_FALSE(used.model().trained());
  const auto a = fresh.propose(6), b = used.propose(6);
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) EXPECT_EQ(text_of(a[i].candidate), text_of(b[i].candidate));
}

TEST_F(SearchTest, BeatsChance) {
  Search search(*space, options);
  const double found = run(search, 8, 12);
  // The median of what as many random draws find.
  std::vector<double> chance;
  for (uint64_t seed = 0; seed < 9; ++seed) {
    Random random(seed);
    double best = HUGE_VAL;
    for (int i = 0; i < 96; ++i) best = std::min(best, time_of(*space->sample(random)));
    chance.push_back(best);
  }
  EXPECT_LT(found, median_of(chance));
}

// What it has been told changes nothing, and no point comes twice.
TEST_F(SearchTest, ARandomOneDrawsWhateverItLearnt) {
  options.random = true;
  options.seed = 4;
  Search told(*space, options), untold(*space, options);
  std::set<std::string> seen;
  for (int r = 0; r < 4; ++r) {
    const std::vector<Proposal> a = told.propose(12), b = untold.propose(12);
    ASSERT_EQ(a.size(), 12u);
    ASSERT_EQ(b.size(), 12u);
    for (size_t i = 0; i < 12; ++i) {
      EXPECT_EQ(text_of(a[i].candidate), text_of(b[i].candidate));
      EXPECT_TRUE(seen.insert(text_of(a[i].candidate)).second);
      EXPECT_TRUE(a[i].predicted_ns.empty());
      told.tell(a[i].candidate, time_of(a[i].candidate));
      untold.tell(b[i].candidate, std::nullopt);
    }
    told.learn();
  }
  EXPECT_TRUE(seen.contains(text_of(space->default_candidate())));
  EXPECT_TRUE(told.model().trained());
  options.seed = 5;
  Search other(*space, options);
  const std::vector<Proposal> a = other.propose(12);
  EXPECT_EQ(text_of(a[0].candidate), text_of(space->default_candidate()));
  EXPECT_TRUE(std::any_of(a.begin(), a.end(),
                          [&](const Proposal& p) { return !seen.contains(text_of(p.candidate)); }));
}

TEST_F(SearchTest, PredictionsAreCheckedAgainstWhatWasMeasured) {
  Search search(*space, options);
  run(search, 6, 12);
  for (const Proposal& p : search.propose(12)) {
    ASSERT_EQ(p.predicted_ns.size(), 1u);
    EXPECT_TRUE(p.predicted_ns[0]);
    search.tell(p.candidate, time_of(p.candidate));
  }
  const auto correlation = search.learn();
  ASSERT_TRUE(correlation);
  EXPECT_GT(*correlation, 0.2);
}

// What another search learnt of the same points ranks the first round; the default and the seeds
// still come before all others.
TEST_F(SearchTest, BegunWithAnEarlierModelItsFirstRoundIsNoChance) {
  Search before(*space, options);
  run(before, 6, 16);
  const auto mean_of_first_round = [&](uint64_t seed, bool with) {
    options.seed = seed;
    Search search(*space, options);
    if (with) search.begin_with(before.model());
    search.begin_anew(seed);
    const std::vector<Proposal> round = search.propose(16);
    EXPECT_EQ(round.size(), 16u);
    EXPECT_EQ(text_of(round[0].candidate), text_of(space->default_candidate()));
    double sum = 0;
    for (const Proposal& p : round) {
      sum += time_of(p.candidate);
      EXPECT_EQ(!p.predicted_ns.empty(), with && &p != round.data() && p.candidate.vendor.empty());
    }
    return sum / 16;
  };
  double with = 0, without = 0;
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    with += mean_of_first_round(seed, true);
    without += mean_of_first_round(seed, false);
  }
  EXPECT_LT(with, without);

  CostModel other(1);
  other.train({{1}, {2}, {3}, {4}}, std::vector<double>{1, 2, 3, 4});
  Search search(*space, options);
  EXPECT_THROW(search.begin_with(other), Error);
}

// Two shapes at which opposite corners are best, one of them a thousand times the other's time.
TEST_F(SearchTest, SearchesSeveralShapesAtOnce) {
  const auto far_time = [&](const tuned::Candidate& c) {
    double slow = 0;
    for (const double x : space->coordinates(c)) slow += (x - 0.1) * (x - 0.1);
    return 1e6 * (1 + slow);
  };
  options.shapes.push_back(std::vector<int64_t>(workload.contract.symbols.size(), 5));
  Search both(*space, options);
  double near_best = HUGE_VAL, far_best = HUGE_VAL;
  std::optional<double> correlation;
  for (int r = 0; r < 10; ++r) {
    for (const Proposal& p : both.propose(12)) {
      if (r > 2) {
        ASSERT_EQ(p.predicted_ns.size(), 2u);
        // Each in the scale of its shape.
        EXPECT_LT(*p.predicted_ns[0], 1e5);
        EXPECT_GT(*p.predicted_ns[1], 1e5);
      }
      const double here = time_of(p.candidate), there = far_time(p.candidate);
      near_best = std::min(near_best, here);
      far_best = std::min(far_best, there);
      both.tell(p.candidate, here, 0);
      both.tell(p.candidate, there, 1);
    }
    if (const auto c = both.learn()) correlation = c;
  }
  ASSERT_TRUE(correlation);
  EXPECT_GT(*correlation, 0.2);
  EXPECT_EQ(both.best(1, 0).at(0).second, near_best);
  EXPECT_EQ(both.best(1, 1).at(0).second, far_best);
  std::vector<double> near_chance, far_chance;
  for (uint64_t seed = 0; seed < 9; ++seed) {
    Random random(seed);
    double a = HUGE_VAL, b = HUGE_VAL;
    for (int i = 0; i < 120; ++i) {
      const tuned::Candidate c = *space->sample(random);
      a = std::min(a, time_of(c));
      b = std::min(b, far_time(c));
    }
    near_chance.push_back(a);
    far_chance.push_back(b);
  }
  EXPECT_LT(near_best, median_of(near_chance));
  EXPECT_LT(far_best, median_of(far_chance));
}

// A point may be known at one shape alone, and a shape may have no times at all.
TEST_F(SearchTest, AShapeWithoutTimesIsNoneAndAskedForAllTheSame) {
  options.shapes.push_back(std::vector<int64_t>(workload.contract.symbols.size(), 5));
  Search search(*space, options);
  for (int r = 0; r < 3; ++r) {
    for (const Proposal& p : search.propose(12)) {
      if (r > 0) {
        ASSERT_EQ(p.predicted_ns.size(), 2u);
        EXPECT_TRUE(p.predicted_ns[0]);
        EXPECT_FALSE(p.predicted_ns[1]);
      }
      search.tell(p.candidate, time_of(p.candidate), 0);
      search.tell(p.candidate, std::nullopt, 1);
    }
    search.learn();
  }
  EXPECT_EQ(search.measured(), 36u);
  EXPECT_TRUE(search.best(5, 1).empty());
  EXPECT_EQ(search.best(5, 0).size(), 5u);
}

TEST_F(SearchTest, FailedPointsAreRememberedAndNotLearnt) {
  Search search(*space, options);
  for (const Proposal& p : search.propose(8)) search.tell(p.candidate, std::nullopt);
  EXPECT_EQ(search.tried(), 8u);
  EXPECT_EQ(search.measured(), 0u);
  EXPECT_FALSE(search.learn());
  EXPECT_EQ(search.propose(8).size(), 8u);
}

}  // namespace
}  // namespace nimble::tuner
