#include "tuner/measure/statistics.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <cstring>
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
  const Summary s = summarise(v);
  EXPECT_EQ(s.median, 11);
  EXPECT_TRUE(s.outliers.back());
  EXPECT_EQ(std::count(s.outliers.begin(), s.outliers.end(), true), 1);
}

TEST(Statistics, TheIntervalCoversTheMedianAsOftenAsItSays) {
  std::mt19937_64 random(1);
  std::lognormal_distribution<double> draw(0, 0.5);  // median 1
  for (size_t n : {6, 9, 20}) {
    int covered = 0;
    constexpr int kTrials = 4000;
    for (int t = 0; t < kTrials; ++t) {
      std::vector<double> v(n);
      for (double& x : v) x = draw(random);
      const Summary s = summarise(v);
      EXPECT_LE(s.ci_low, s.median);
      EXPECT_GE(s.ci_high, s.median);
      covered += s.ci_low <= 1 && 1 <= s.ci_high;
    }
    EXPECT_GE(covered, 0.94 * kTrials) << n;
  }
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
  EXPECT_TRUE(std::isinf(compare_tensors(DType::kF32, bytes({1}), bytes({1, 2}))));
}

}  // namespace
}  // namespace nimble::tuner
