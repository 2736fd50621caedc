// Where a model is tuned: on the line and beside it.
#include "tuner/service/points.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "compiler/ir/infer.h"
#include "compiler/ir/text.h"
#include "vm/base/error.h"

namespace nimble::tuner {
namespace {

using Names = std::vector<std::string>;

ir::Module typed(const std::string& text) {
  return ir::infer_types(ir::parse_module(text));
}
// A model whose inputs have these shapes.
ir::Module with_inputs(const Names& shapes) {
  std::string parameters;
  for (size_t i = 0; i < shapes.size(); ++i)
    parameters += fmt::format("{}%x{}: Tensor[({}), f32]", i ? ", " : "", i, shapes[i]);
  return typed(fmt::format("fn @main({0}) -> Tensor[({1}), f32] {{ let %y = exp(%x0); %y }}",
                           parameters, shapes[0]));
}

const char kBatched[] = R"(
fn @main(%x: Tensor[(b, n, 16), f32], %ids: Tensor[(b, n), i64], %t: Tensor[(50, 16), f32])
    -> Tensor[(b, n, 16), f32] {
  let %e = gather(%t, %ids) {axis = 0};
  let %s = add(%e, %x);
  let %y = softmax(%s) {axis = 2};
  %y
})";

double mass_of(const std::vector<WeightedPoint>& points) {
  double sum = 0;
  for (const WeightedPoint& p : points) sum += p.weight;
  return sum;
}

TEST(Points, AreThePapersSizesOddOnesAndTheTraces) {
  const ir::Module m = typed(kBatched);
  EXPECT_EQ(model_symbols(m), (std::vector<std::string>{"b", "n"}));
  PointOptions o;
  o.trace = parse_trace("n\n40\n40\n40\n90\n", "t", {"n"});
  const auto points = model_points(m, o);
  std::set<int64_t> sizes, powers, held_out;
  double sum = 0;
  for (const WeightedPoint& p : points) {
    EXPECT_EQ(p.at.at("b"), 1);
    if (p.held_out) {
      held_out.insert(p.at.at("n"));
      EXPECT_EQ(p.weight, 0);
      continue;
    }
    sizes.insert(p.at.at("n"));
    if (p.power_of_two) powers.insert(p.at.at("n"));
    EXPECT_EQ(p.representative, p.at.at("n") == 64);
    EXPECT_GT(p.weight, 0);
    sum += p.weight;
  }
  EXPECT_NEAR(sum, 1, 1e-9);
  EXPECT_EQ(held_out.size(), 3u);
  for (int64_t size : held_out) {
    EXPECT_FALSE(sizes.contains(size)) << size;
    EXPECT_GT(size, 1);
    EXPECT_LE(size, 256);
  }
  EXPECT_EQ(powers, (std::set<int64_t>{1, 2, 4, 8, 16, 32, 64, 128, 256}));
  for (int64_t odd : {13, 37, 101}) EXPECT_TRUE(sizes.contains(odd));
  EXPECT_TRUE(sizes.contains(40) && sizes.contains(90));
  const auto heavy = std::max_element(points.begin(), points.end(),
                                      [](auto& a, auto& b) { return a.weight < b.weight; });
  EXPECT_EQ(heavy->at.at("n"), 40);
  EXPECT_GT(heavy->weight, 0.6);
}

TEST(Points, LikelyRowsOfATraceArePointsAndKnowTheirExactPart) {
  const ir::Module m = typed(kBatched);
  PointOptions o;
  // 41 is likely, as is 90; 40 and 44 are not, and are counted for the nearest.
  o.trace = parse_trace("n\tcount\n40\t2\n41\t50\n44\t4\n90\t12\n7\t8\n", "t", {"n"});
  double exact = 0;
  for (const WeightedPoint& p : model_points(m, o)) {
    const int64_t n = p.at.at("n");
    EXPECT_LE(p.exact, p.weight + 1e-12);
    EXPECT_EQ(p.exact > 0, n == 41 || n == 90 || n == 7) << n;
    exact += p.exact;
    if (n == 41) {
      EXPECT_NEAR(p.exact, 0.9 * 50 / 76, 1e-9);
    }
  }
  EXPECT_NEAR(exact, 0.9 * 70 / 76, 1e-9);
  o.trace.reset();
  for (const WeightedPoint& p : model_points(m, o)) EXPECT_EQ(p.exact, 0);
}

TEST(Points, UnknownSymbolsAreNamed) {
  const ir::Module m = typed(kBatched);
  PointOptions o;
  o.fixed = {{"q", 3}};
  EXPECT_THROW(model_points(m, o), Error);
  o.fixed = {{"b", 4}};
  EXPECT_EQ(model_points(m, o)[0].at.at("b"), 4);
  o.symbols = {"z"};
  EXPECT_THROW(model_points(m, o), Error);
}

TEST(Points, ABatchIsCalledSoOrLeadsEveryInput) {
  const auto batches = [](const Names& shapes) { return batch_symbols(with_inputs(shapes)); };
  EXPECT_EQ(batches({"b, n"}), Names{"b"});
  EXPECT_EQ(batches({"n, batch, 8"}), Names{"batch"});
  EXPECT_EQ(batches({"s10, s21", "s10, s21, 8"}), Names{"s10"});
  EXPECT_EQ(batches({"s10, 3, h, w"}), Names{"s10"});
  EXPECT_EQ(batches({"s10, s21", "4, 8"}), Names{"s10"});  // constants say nothing
  EXPECT_EQ(batches({"s10, s21", "s21, s10"}), Names{});   // which of them?
  EXPECT_EQ(batches({"s10, s21", "s21"}), Names{});
  EXPECT_EQ(batches({"n, 8"}), Names{});  // nothing varies behind it
}

TEST(Points, WithoutATraceBatchesAreMetBesideTheLine) {
  const auto points = model_points(typed(kBatched), {});
  EXPECT_NEAR(mass_of(points), 1, 1e-9);
  double on_line = 0;
  size_t beside = 0;
  for (const WeightedPoint& p : points) {
    const int64_t b = p.at.at("b"), n = p.at.at("n");
    EXPECT_LE(b, 16);
    EXPECT_LE(b * n, 4 * 256);
    EXPECT_EQ(p.representative, b == 1 && n == 64);
    if (b == 1) on_line += p.weight;
    if (b > 1 && !p.held_out) ++beside;
  }
  EXPECT_GE(on_line, 0.5 - 1e-9);
  EXPECT_GE(beside, 6u);
  EXPECT_LE(points.size(), 40u);
}

TEST(Points, SymbolsOfExportersAreNoDiagonal) {
  const auto points = model_points(with_inputs({"s10, s21, 8"}), {});
  for (const WeightedPoint& p : points) EXPECT_LE(p.at.at("s10") * p.at.at("s21"), 4 * 256);
  const auto search = std::find_if(points.begin(), points.end(),
                                   [](const WeightedPoint& p) { return p.representative; });
  ASSERT_NE(search, points.end());
  EXPECT_EQ(search->at, (ModelPoint{{"s10", 1}, {"s21", 64}}));
}

TEST(Points, RowsOfATraceAreMetTogether) {
  PointOptions o;
  // Large batches of short texts, single long ones: never large batches of long ones.
  o.trace = parse_trace("b\tn\tcount\n16\t20\t50\n8\t30\t30\n1\t200\t20\n", "t", {"b", "n"});
  const auto points = model_points(typed(kBatched), o);
  EXPECT_NEAR(mass_of(points), 1, 1e-9);
  const auto weight_at = [&](int64_t b, int64_t n) {
    double sum = 0;
    for (const WeightedPoint& p : points)
      if (p.at.at("b") == b && p.at.at("n") == n) sum += p.weight;
    return sum;
  };
  EXPECT_GT(weight_at(16, 20), 0.45);
  EXPECT_GT(weight_at(8, 30), 0.27);
  EXPECT_EQ(weight_at(16, 200), 0);
  EXPECT_EQ(weight_at(8, 200), 0);
}

TEST(Points, OfALongTraceMedoidsStand) {
  std::string text = "h,w\n";
  for (int h = 100; h < 140; ++h)
    for (int w = 200; w < 240; ++w) text += fmt::format("{},{}\n", h, w);
  PointOptions o;
  o.trace = parse_trace(text, "t", {"h", "w"});
  const auto points = model_points(with_inputs({"1, 3, h, w"}), o);
  EXPECT_LE(points.size(), 50u);
  double near = 0;
  for (const WeightedPoint& p : points)
    if (p.at.at("h") >= 100 && p.at.at("h") < 140 && p.at.at("w") >= 200) near += p.weight;
  EXPECT_GT(near, 0.9);
}

TEST(Points, ATraceOfLengthsAloneMeansBatchesOfOne) {
  PointOptions o;
  o.trace = parse_trace("pair\n40\n90\n", "t", {"pair"});
  for (const WeightedPoint& p : model_points(typed(kBatched), o)) EXPECT_EQ(p.at.at("b"), 1);
  o.symbols = {"b"};  // it is of batches, then
  bool batches = false;
  for (const WeightedPoint& p : model_points(typed(kBatched), o))
    batches |= p.at.at("b") == 40 && p.weight > 0.3;
  EXPECT_TRUE(batches);
  o.symbols = {"b", "n"};
  EXPECT_THROW(model_points(typed(kBatched), o), Error);
  o.trace = parse_trace("p,q\n1,2\n", "t", {"p", "q"});
  o.symbols = {};
  EXPECT_THROW(model_points(typed(kBatched), o), Error);
  o.symbols = {"n", "n"};
  EXPECT_THROW(model_points(typed(kBatched), o), Error);
}

TEST(Points, AModelOfBatchesAloneVariesThem) {
  std::set<int64_t> sizes;
  for (const WeightedPoint& p : model_points(with_inputs({"b, 8"}), {})) sizes.insert(p.at.at("b"));
  EXPECT_TRUE(sizes.contains(1) && sizes.contains(256) && sizes.contains(37));
}

TEST(Points, TheSameSeedGivesTheSame) {
  const ir::Module m = typed(kBatched);
  const auto shapes = [&](uint64_t seed) {
    PointOptions o;
    o.seed = seed;
    std::set<ModelPoint> out;
    for (const WeightedPoint& p : model_points(m, o)) out.insert(p.at);
    return out;
  };
  EXPECT_EQ(shapes(1), shapes(1));
  EXPECT_NE(shapes(1), shapes(2));
}

}  // namespace
}  // namespace nimble::tuner
