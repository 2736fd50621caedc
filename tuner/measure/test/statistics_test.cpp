#include "tuner/measure/statistics.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <random>

#include "tuner/measure/inputs.h"

namespace nimble::tuner {
namespace {

TEST(Statistics, MedianOfOddAndEven) {
  EXPECT_EQ(median_of({3, 1, 2}), 2);
  EXPECT_EQ(median_of({4, 1, 2, 3}), 2.5);
}

TEST(Statistics, FlagsOutliersAndKeepsThem) {
  const std::vector<double> v = {10, 11, 10, 12, 11, 10, 100};
  const Summary s = summarise(v, StopRule(6, 24));
  EXPECT_EQ(s.median, 11);
  EXPECT_TRUE(s.outliers.back());
  EXPECT_EQ(std::count(s.outliers.begin(), s.outliers.end(), true), 1);
}

TEST(Statistics, TheIntervalCoversTheMedianAsOftenAsItSays) {
  std::mt19937_64 random(1);
  std::lognormal_distribution<double> draw(0, 0.5);  // median 1
  for (int32_t n : {6, 9, 20}) {
    int covered = 0;
    constexpr int kTrials = 4000;
    for (int t = 0; t < kTrials; ++t) {
      std::vector<double> v(static_cast<size_t>(n));
      for (double& x : v) x = draw(random);
      const Summary s = summarise(v, StopRule(n, n));
      EXPECT_LE(s.ci_low, s.median);
      EXPECT_GE(s.ci_high, s.median);
      covered += s.ci_low <= 1 && 1 <= s.ci_high;
    }
    EXPECT_GE(covered, 0.94 * kTrials) << n;
  }
}

TEST(StopRule, LooksDoubleAndSpendFivePercent) {
  const StopRule rule(6, 24);
  EXPECT_THAT(rule.looks(), testing::ElementsAre(6, 12, 24));
  EXPECT_EQ(rule.rank(5), 0);
  EXPECT_EQ(rule.rank(6), 1);   // errs in 2 / 64
  EXPECT_EQ(rule.rank(12), 2);  // in 26 / 4096
  EXPECT_EQ(rule.rank(24), 6);  // in 0.66 %: 4.4 % together
  EXPECT_GE(rule.rank(18), rule.rank(12));
  EXPECT_TRUE(rule.is_look(12));
  EXPECT_FALSE(rule.is_look(13));
  EXPECT_THAT(StopRule(6, 6).looks(), testing::ElementsAre(6));
  EXPECT_THAT(StopRule(3, 7).looks(), testing::ElementsAre(3, 6, 7));
  EXPECT_EQ(StopRule(3, 7).rank(3), 0);  // [min, max] of three errs in a quarter
}

// Samples until the interval is narrow at one of the looks; whether that interval holds the median.
bool covers_where_it_stops(const StopRule& rule, double target,
                           const std::function<double()>& draw) {
  std::vector<double> v;
  for (;;) {
    v.push_back(draw());
    const auto n = static_cast<int32_t>(v.size());
    if (!rule.is_look(n)) continue;
    const Summary s = summarise(v, rule);
    if ((rule.rank(n) > 0 && s.relative_error() <= target) || n == rule.looks().back())
      return s.ci_low <= 1 && 1 <= s.ci_high;
  }
}

// The same, believing the interval of a fixed count after each sample.
bool covers_when_peeked_at(int32_t most, double target, const std::function<double()>& draw) {
  std::vector<double> v;
  for (;;) {
    v.push_back(draw());
    const auto n = static_cast<int32_t>(v.size());
    if (n < 6) continue;
    const Summary s = summarise(v, StopRule(n, n));
    if (s.relative_error() <= target || n == most) return s.ci_low <= 1 && 1 <= s.ci_high;
  }
}

TEST(StopRule, CoversTheMedianWhereverItStops) {
  std::mt19937_64 random(3);
  std::normal_distribution<double> normal(0, 1);
  constexpr int kTrials = 6000;
  // Three standard errors below 95 %.
  const double least = 0.95 - 3 * std::sqrt(0.95 * 0.05 / kTrials);
  double worst_peeked = 1;
  for (double spread : {0.005, 0.012, 0.02, 0.04, 0.1})
    for (bool skewed : {false, true}) {
      const auto draw = [&] {
        const double z = normal(random);
        // Times have a floor and a long tail.
        return skewed ? std::exp(spread * (z > 0 ? 4 * z : z)) : std::exp(spread * z);
      };
      int covered = 0, peeked = 0;
      for (int t = 0; t < kTrials; ++t) {
        covered += covers_where_it_stops(StopRule(6, 24), 0.015, draw);
        peeked += covers_when_peeked_at(24, 0.015, draw);
      }
      EXPECT_GE(covered, least * kTrials) << spread << (skewed ? " skewed" : "");
      worst_peeked = std::min(worst_peeked, static_cast<double>(peeked) / kTrials);
    }
  // The simulation tells the two apart.
  EXPECT_LT(worst_peeked, least);
}

TEST(Statistics, RankCorrelation) {
  EXPECT_DOUBLE_EQ(rank_correlation(std::vector<double>{1, 2, 3}, std::vector<double>{1, 4, 9}), 1);
  EXPECT_DOUBLE_EQ(rank_correlation(std::vector<double>{1, 2, 3}, std::vector<double>{3, 2, 1}),
                   -1);
  EXPECT_EQ(rank_correlation(std::vector<double>{1, 1, 1}, std::vector<double>{3, 2, 1}), 0);
}

TEST(Inputs, AreTheSameForTheSameSeedAndStayInRange) {
  std::vector<uint8_t> a(400), b(400), c(400);
  fill_tensor({-2, 3, false}, DType::kF32, 5, 1, a);
  fill_tensor({-2, 3, false}, DType::kF32, 5, 1, b);
  fill_tensor({-2, 3, false}, DType::kF32, 6, 1, c);
  EXPECT_EQ(a, b);
  EXPECT_NE(a, c);
  const auto* x = reinterpret_cast<const float*>(a.data());
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(x[i] >= -2 && x[i] < 3) << x[i];
  std::vector<uint8_t> ids(8 * 1000);
  fill_tensor({0, 9, false}, DType::kI64, 5, 0, ids);
  const auto* id = reinterpret_cast<const int64_t*>(ids.data());
  EXPECT_EQ(*std::min_element(id, id + 1000), 0);
  EXPECT_EQ(*std::max_element(id, id + 1000), 9);
}

TEST(Inputs, ComparisonSeesNaNsSignsAndSmallErrors) {
  const auto bytes = [](std::vector<float> v) {
    std::vector<uint8_t> out(v.size() * 4);
    std::memcpy(out.data(), v.data(), out.size());
    return out;
  };
  EXPECT_EQ(compare_tensors(DType::kF32, bytes({1, 2}), bytes({1, 2})), 0);
  EXPECT_NEAR(compare_tensors(DType::kF32, bytes({1, 2.5f}), bytes({1, 2})), 0.139, 0.001);
  EXPECT_TRUE(std::isnan(compare_tensors(DType::kF32, bytes({NAN}), bytes({1}))));
  EXPECT_EQ(compare_tensors(DType::kF32, bytes({NAN}), bytes({NAN})), 0);
  EXPECT_EQ(compare_tensors(DType::kF32, bytes({INFINITY}), bytes({INFINITY})), 0);
  EXPECT_TRUE(std::isinf(compare_tensors(DType::kF32, bytes({INFINITY}), bytes({1}))));
  int64_t worst = -1;
  for (const float got : {1.0f, -INFINITY, 3e38f})
    EXPECT_TRUE(
        std::isinf(compare_tensors(DType::kF32, bytes({5, got}), bytes({5, INFINITY}), &worst)))
        << got;
  EXPECT_EQ(worst, 1);
  EXPECT_TRUE(std::isinf(compare_tensors(DType::kF32, bytes({1}), bytes({1, 2}))));
}

}  // namespace
}  // namespace nimble::tuner
