// Which shapes a search runs at.
#include "tuner/service/representatives.h"

#include <gmock/gmock.h>

#include <cmath>

#include "tuner/service/search_end.h"

namespace nimble::tuner {
namespace {

// A product of n rows by a matrix of 64 × 64, at sizes of these weights.
TuningTask product(const std::vector<std::pair<int64_t, double>>& sizes) {
  TuningTask t;
  for (const auto& [n, weight] : sizes) {
    WorkloadPoint p;
    p.symbols = {n};
    p.weight = weight;
    p.flops = 2 * n * 64 * 64;
    p.bytes = 4 * (64 * 64 + 2 * n * 64);
    t.points.push_back(p);
  }
  return t;
}

std::vector<int64_t> marked(const TuningTask& t) {
  std::vector<int64_t> out;
  for (const WorkloadPoint& p : t.points)
    if (p.representative) out.push_back(p.symbols[0]);
  return out;
}

TEST(Representatives, TheDistanceIsInOctavesOfWorkAndOfMemory) {
  WorkloadPoint a, b;
  a.flops = 1000, a.bytes = 64;
  b.flops = 4000, b.bytes = 64;
  EXPECT_DOUBLE_EQ(roofline_distance(a, a), 0);
  EXPECT_DOUBLE_EQ(roofline_distance(a, b), 1);
  EXPECT_DOUBLE_EQ(roofline_distance(b, a), 1);
  b.bytes = 16;
  EXPECT_DOUBLE_EQ(roofline_distance(a, b), 2) << "another intensity is another shape";
  b.flops = 0, b.bytes = 0;
  EXPECT_TRUE(std::isfinite(roofline_distance(a, b)));
}

TEST(Representatives, SizesThatAreAlikeHaveOneInTheirMiddle) {
  TuningTask t = product({{30, 1}, {33, 1}, {36, 1}, {39, 1}, {42, 1}});
  choose_representatives(t);
  EXPECT_EQ(marked(t), (std::vector<int64_t>{36}));
}

TEST(Representatives, EachOfTwoGroupsHasItsOwn) {
  TuningTask t = product({{4, 0.3}, {5, 0.1}, {6, 0.1}, {1000, 0.1}, {1100, 0.3}, {1200, 0.1}});
  choose_representatives(t);
  EXPECT_EQ(marked(t), (std::vector<int64_t>{4, 1100}));
  const auto stand = representatives_of(t);
  ASSERT_EQ(stand.size(), 2u);
  EXPECT_NEAR(stand[0].share, 0.5, 1e-9);
  EXPECT_NEAR(stand[0].share + stand[1].share, 1, 1e-9);
}

// A submission may say so of sizes that are held out, all of them.
TEST(Representatives, SharesAddUpToOneWhateverIsHeldOut) {
  TuningTask t = product({{4, 1}, {64, 1}, {64, 1}, {1024, 1}});
  for (const bool all : {false, true}) {
    for (WorkloadPoint& p : t.points) p.representative = true, p.held_out = all;
    double sum = 0;
    for (const Representative& r : representatives_of(t)) sum += r.share;
    EXPECT_NEAR(sum, 1, 1e-9);
  }
}

TEST(Representatives, WhatIsHardlyMetHasNone) {
  TuningTask t = product({{64, 0.98}, {1, 0.01}, {4096, 0.01}});
  choose_representatives(t);
  EXPECT_EQ(marked(t), (std::vector<int64_t>{64}));
}

TEST(Representatives, AreFewHoweverFarSizesReach) {
  std::vector<std::pair<int64_t, double>> sizes;
  for (int i = 0; i < 40; ++i) sizes.emplace_back(int64_t{1} << i, 1);
  TuningTask t = product(sizes);
  for (WorkloadPoint& p : t.points) p.bytes = p.flops;
  choose_representatives(t);
  EXPECT_EQ(marked(t).size(), kMostRepresentatives);
  choose_representatives(t, 2);
  EXPECT_EQ(marked(t).size(), 2u);
  const std::vector<int64_t> two = marked(t);
  choose_representatives(t, 0);
  EXPECT_EQ(marked(t), two) << "they are left as they are";
}

TEST(Representatives, TheSameTaskHasTheSameOnesAndWhatIsHeldOutIsNone) {
  std::vector<std::pair<int64_t, double>> sizes;
  for (int64_t n : {1, 3, 8, 21, 55, 144, 377}) sizes.emplace_back(n, 0);
  TuningTask a = product(sizes), b = a;
  choose_representatives(a);
  choose_representatives(b);
  EXPECT_EQ(marked(a), marked(b));
  EXPECT_FALSE(marked(a).empty()) << "without weights all count alike";
  for (WorkloadPoint& p : b.points)
    if (p.representative) p.held_out = true, p.representative = false;
  choose_representatives(b);
  for (const WorkloadPoint& p : b.points) EXPECT_FALSE(p.representative && p.held_out);
}

TEST(Representatives, AreNoMoreThanThereIsTimeFor) {
  EXPECT_EQ(shapes_in_time(0, {1}), 1u);
  EXPECT_EQ(shapes_in_time(0, {1, 0.1, 0.1}), 1u) << "the first one always";
  EXPECT_EQ(shapes_in_time(110.01, {1, 0.1, 0.1}), 2u);
  EXPECT_EQ(shapes_in_time(120.01, {1, 0.1, 0.1}), 3u);
  EXPECT_EQ(shapes_in_time(1e6, {1, 0.1, 0.1}), 3u);
}

TEST(Representatives, WorkIsThatOfWhatIsMet) {
  TuningTask t = product({{1, 3}, {4, 1}, {1000, 9}});
  t.points[2].held_out = true;
  EXPECT_NEAR(mean_work(t), (3 * work_of(t.points[0]) + work_of(t.points[1])) / 4, 1e-6);
  WorkloadPoint none;
  EXPECT_EQ(work_of(none), 1);
}

TEST(Representatives, OneOfNoOtherStandsForAll) {
  TuningTask t = product({{1, 1}, {64, 1}, {128, 8}});
  t.points[1].representative = true;
  const auto stand = representatives_of(t);
  ASSERT_EQ(stand.size(), 1u);
  EXPECT_EQ(stand[0].point, 1u);
  EXPECT_EQ(stand[0].share, 1);
  // Of an earlier campaign that searched elsewhere.
  const auto other = representatives_of(t, {0, 2});
  ASSERT_EQ(other.size(), 2u);
  EXPECT_EQ(other[0].point, 2u) << "what stands for most comes first";
}

}  // namespace
}  // namespace nimble::tuner
