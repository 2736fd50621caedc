// What transpositions, reshapes, slices and single indices make of a tensor's elements.
#include "compiler/passes/support/strided_view.h"

#include <gtest/gtest.h>

#include "compiler/ir/infer.h"
#include "compiler/ir/text.h"

namespace nimble::passes {
namespace {

using ir::Dim;

struct Viewed {
  ir::Module module;
  std::vector<StridedView> views;
};

// The views of the result of a function of %x: Tensor[(b, n, 24), f32].
Viewed views_in(const std::string& body) {
  Viewed v;
  v.module = ir::infer_types(
      ir::parse_module("fn @main(%x: Tensor[(b, n, 24), f32]) {\n" + body + "\n  %y\n}"));
  const ir::FunctionRef f = v.module.find("main");
  v.views = views_of(definitions_of(*f), f->body->result);
  return v;
}

std::string steps(const StridedView& v) {
  std::string out;
  for (size_t i = 0; i < v.axes.size(); ++i) {
    const auto axis = v.axis(i);
    out += axis ? axis->extent.str() + ":" + axis->stride.str() + " " : "? ";
  }
  return out;
}

TEST(StridedView, FollowsWhatMovesElements) {
  const Viewed v = views_in(R"(
  let %r = reshape(%x) {shape = (b, n, 3, 2, 4)};
  let %t = transpose(%r) {axes = [2, 0, 3, 1, 4]};
  let %s = slice(%t) {axes = [0], starts = (-2), ends = (2)};
  let %q = squeeze(%s) {axes = [0]};
  let %h = mul(%q, 0.5f32);
  let %y = div(%h, f32[1]{4});)");
  ASSERT_FALSE(v.views.empty());
  const StridedView& first = v.views.back();
  EXPECT_EQ(first.source.var, v.module.find("main")->parameters[0]);
  EXPECT_EQ(steps(first), "b:24*n 2:4 n:24 4:1 ");
  EXPECT_TRUE(first.offset.is_constant(8));
  EXPECT_EQ(first.scale, 0.125);
  EXPECT_EQ(v.views.front().scale, 1);
}

TEST(StridedView, IndicesCountFromTheEndToo) {
  const Viewed v = views_in(R"(
  let %r = reshape(%x) {shape = (b, n, 3, 8)};
  let %y = gather(%r, -1i64) {axis = 2};)");
  EXPECT_EQ(steps(v.views.back()), "b:24*n n:24 8:1 ");
  EXPECT_TRUE(v.views.back().offset.is_constant(16));
}

// A row is counted from the front alone: a negative one is an error of the run.
TEST(StridedView, RowsCountFromTheFront) {
  const std::string rows = R"(
  let %r = reshape(%x) {shape = (b, n, 3, 8)};
  let %t = transpose(%r) {axes = [2, 0, 1, 3]};)";
  const Viewed v = views_in(rows + "let %y = take_row(%t, 2i64);");
  EXPECT_EQ(steps(v.views.back()), "b:24*n n:24 8:1 ");
  EXPECT_TRUE(v.views.back().offset.is_constant(16));
  EXPECT_EQ(views_in(rows + "let %y = take_row(%t, -1i64);").views.size(), 1);
}

// (b, 2, n, 12) of which b and 2 do not lie in each other, joined and parted again.
TEST(StridedView, JoinedAxesComeApartAgain) {
  const std::string joined = R"(
  let %r = reshape(%x) {shape = (b, n, 2, 12)};
  let %t = transpose(%r) {axes = [0, 2, 1, 3]};
  let %j = reshape(%t) {shape = (2*b, n, 12)};
  let %u = transpose(%j) {axes = [0, 2, 1]};)";
  const Viewed together = views_in(joined + "let %y = neg(%u);");
  EXPECT_EQ(together.views.size(), 1);  // neg computes
  const Viewed apart = views_in(joined + "let %y = reshape(%u) {shape = (b, 2, 12, n)};");
  EXPECT_EQ(apart.views.back().source.var, apart.module.find("main")->parameters[0]);
  EXPECT_EQ(steps(apart.views.back()), "b:24*n 2:12 12:1 n:24 ");
  const Viewed still = views_in(joined + "let %y = transpose(%u) {axes = [0, 2, 1]};");
  EXPECT_EQ(steps(still.views.back()), "? n:24 12:1 ");
}

TEST(StridedView, StopsAtWhatIsNoView) {
  // Extents that cut across the tensor's axes, a step, and an index that only the run knows.
  EXPECT_EQ(views_in("let %t = transpose(%x) {axes = [1, 0, 2]};\n"
                     "let %y = reshape(%t) {shape = (24, b, n)};")
                .views.size(),
            2);
  EXPECT_EQ(views_in("let %y = slice(%x) {axes = [2], starts = (0), ends = (24), steps = (2)};")
                .views.size(),
            1);
  EXPECT_EQ(views_in("let %y = slice(%x) {axes = [1], starts = (b), ends = (b + 1)};").views.size(),
            1);
}

}  // namespace
}  // namespace nimble::passes
