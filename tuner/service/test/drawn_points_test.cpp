// Shapes at random.
#include "tuner/service/drawn_points.h"

#include <gmock/gmock.h>

#include <set>

#include "compiler/ir/infer.h"
#include "compiler/ir/text.h"
#include "vm/base/error.h"

namespace nimble::tuner {
namespace {

using testing::HasSubstr;

ir::Module model(const std::string& shape, const std::string& body = "exp(%x)") {
  return ir::infer_types(
      ir::parse_module("fn @main(%x: Tensor[(" + shape + "), f32]) { let %y = " + body + "; %y }"));
}

std::string refused(const ir::Module& m, const DrawOptions& options) {
  try {
    drawn_points(m, options);
  } catch (const Error& e) {
    EXPECT_EQ(e.status(), Status::kInvalidArgument);
    return e.what();
  }
  return "";
}

TEST(DrawnPoints, MoveEachSymbolByItselfWithinItsRange) {
  DrawOptions o;
  o.ranges["h"] = {3, 200};
  const auto points = drawn_points(model("h, w"), o);
  ASSERT_EQ(points.size(), 300u);
  std::set<ModelPoint> distinct;
  std::set<int64_t> ratios;
  int small = 0, representative = 0;
  double mass = 0;
  for (const WeightedPoint& p : points) {
    distinct.insert(p.at);
    ASSERT_EQ(p.at.size(), 2u);
    EXPECT_TRUE(p.at.at("h") >= 3 && p.at.at("h") <= 200) << p.at.at("h");
    EXPECT_TRUE(p.at.at("w") >= 1 && p.at.at("w") <= 512) << p.at.at("w");
    ratios.insert(16 * p.at.at("h") / p.at.at("w"));
    small += p.at.at("w") < 23;  // half of the range by ratio
    representative += p.representative;
    mass += p.weight;
  }
  EXPECT_EQ(distinct.size(), points.size());
  EXPECT_GT(ratios.size(), 50u) << "no diagonal";
  EXPECT_TRUE(small > 100 && small < 200) << small;
  EXPECT_EQ(representative, 1);
  EXPECT_NEAR(mass, 1, 1e-9);
}

TEST(DrawnPoints, ReachBothEndsOfARange) {
  DrawOptions o;
  o.ranges["n"] = {5, 9};
  std::set<int64_t> sizes;
  // Fewer than asked for: there are no more.
  for (const WeightedPoint& p : drawn_points(model("n"), o)) sizes.insert(p.at.at("n"));
  EXPECT_EQ(sizes, (std::set<int64_t>{5, 6, 7, 8, 9}));
}

TEST(DrawnPoints, AreTheSameForOneSeed) {
  DrawOptions o, other;
  o.count = other.count = 20;
  other.seed = 2;
  const auto sizes = [&](const DrawOptions& options) {
    std::vector<int64_t> out;
    for (const WeightedPoint& p : drawn_points(model("n"), options)) out.push_back(p.at.at("n"));
    return out;
  };
  EXPECT_EQ(sizes(o), sizes(o));
  EXPECT_NE(sizes(o), sizes(other));
}

TEST(DrawnPoints, RefuseSymbolsAndRangesThatAreNone) {
  DrawOptions o;
  o.ranges["k"] = {1, 4};
  EXPECT_THAT(refused(model("b, n"), o), HasSubstr("has no symbol k; it has b, n"));
  o.ranges = {{"n", {0, 4}}};
  EXPECT_THAT(refused(model("n"), o), HasSubstr("n=0..4 holds no size"));
  o.ranges = {{"n", {5, 4}}};
  EXPECT_THAT(refused(model("n"), o), HasSubstr("n=5..4 holds no size"));
}

}  // namespace
}  // namespace nimble::tuner
