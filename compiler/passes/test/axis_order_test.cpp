// Orders of axes against the operators themselves: what an operator makes of a transposed operand
// is the transposed result, in the order that is said of it.
#include "compiler/passes/support/axis_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <random>

#include "compiler/ir/dim.h"
#include "compiler/reference/reference.h"

namespace nimble::passes {
namespace {

using Dims = std::vector<ir::Dim>;

ir::TensorRef counted(const Dims& dims) {
  std::vector<int64_t> shape;
  for (const ir::Dim& d : dims) shape.push_back(*d.as_constant());
  const int64_t n =
      std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<int64_t>());
  std::vector<int64_t> values(static_cast<size_t>(n));
  std::iota(values.begin(), values.end(), 0);
  return ir::Tensor::of(DType::kI64, shape, values);
}

ir::TensorRef evaluate(const char* op, const ir::TensorRef& x, const ir::Attrs& attrs) {
  return reference::evaluate_op(*ir::make_call(op, {ir::Atom::of(x)}, attrs), {x}, {})[0];
}
ir::TensorRef transposed(const ir::TensorRef& x, const Axes& order) {
  return evaluate("transpose", x, {{"axes", order}});
}
ir::TensorRef reshaped_to(const ir::TensorRef& x, const Dims& dims) {
  return evaluate("reshape", x, {{"shape", dims}, {"allow_zero", true}});
}

bool same(const ir::TensorRef& a, const ir::TensorRef& b) {
  const auto x = a->as<int64_t>(), y = b->as<int64_t>();
  return a->shape == b->shape && std::equal(x.begin(), x.end(), y.begin(), y.end());
}

TEST(AxisOrder, OfImages) {
  EXPECT_EQ(channels_last_order(4), (Axes{0, 2, 3, 1}));
  EXPECT_EQ(channels_last_order(3), (Axes{0, 2, 1}));
  EXPECT_TRUE(is_natural(channels_last_order(2)));
  EXPECT_EQ(inverse({0, 2, 3, 1}), (Axes{0, 3, 1, 2}));
  const ir::Dim n = ir::Dim::symbol("n"), c = ir::Dim::symbol("c");
  EXPECT_TRUE(keeps_elements({n, c, 1, 1}, {0, 2, 3, 1}));
  EXPECT_TRUE(keeps_elements({n, 1, c, c}, {0, 2, 3, 1}));
  EXPECT_FALSE(keeps_elements({n, c, c, 1}, {0, 2, 3, 1}));
}

TEST(AxisOrder, OfResultsWithFewerAndMoreAxes) {
  EXPECT_EQ(without_axes({0, 2, 3, 1}, {2, 3}), (Axes{0, 1}));
  EXPECT_EQ(without_axes({0, 2, 3, 1}, {1}), (Axes{0, 1, 2}));
  EXPECT_EQ(without_axes({0, 2, 3, 1}, {3}), (Axes{0, 2, 1}));
  // Where it can be, the channels are last.
  EXPECT_EQ(with_axes({0, 3, 1}, {2}, 4), (Axes{0, 2, 3, 1}));
  EXPECT_EQ(with_axes({1, 2, 0}, {3}, 4), (Axes{1, 2, 3, 0}));
  EXPECT_EQ(with_axes({2, 1}, {0, 3}, 4), (Axes{0, 2, 3, 1}));
}

TEST(AxisOrder, GroupsOfAReshape) {
  const ir::Dim n = ir::Dim::symbol("n"), h = ir::Dim::symbol("h"), w = ir::Dim::symbol("w");
  const ir::DimContext facts{};
  const auto text = [&](const Dims& from, const Dims& to) {
    const auto groups = groups_of_reshape(from, to, facts);
    if (!groups) return std::string("none");
    std::string out;
    for (const AxisGroup& g : *groups) {
      out += "(";
      for (int64_t a : g.from) out += std::to_string(a);
      out += ">";
      for (int64_t a : g.to) out += std::to_string(a);
      out += ")";
    }
    return out;
  };
  EXPECT_EQ(text({n, 58, h, w}, {n, 2, 29, h, w}), "(0>0)(1>12)(2>3)(3>4)");
  EXPECT_EQ(text({n, 24, h, w}, {n, 24, h * w}), "(0>0)(1>1)(23>2)");
  EXPECT_EQ(text({n, 24, 1, 1}, {n, 24}), "(0>0)(1>1)(2>)(3>)");
  EXPECT_EQ(text({n, 24}, {n, 24, 1, 1}), "(0>0)(1>1)(>2)(>3)");
  EXPECT_EQ(text({4, 6}, {8, 3}), "(01>01)");
  EXPECT_EQ(text({n, 24, h}, {h, 24, n}), "(012>012)");
  EXPECT_EQ(text({n, h}, {n, w}), "none");
  EXPECT_EQ(text({n, h}, {n}), "none");
}

// Random cuts of axes into parts, and joins of neighbours, in random orders.
TEST(AxisOrder, ReshapesFollow) {
  std::mt19937 random(5);
  const auto below = [&](size_t n) { return random() % n; };
  constexpr int64_t kExtents[] = {1, 2, 3, 5};
  int followed = 0;
  for (int trial = 0; trial < 2000; ++trial) {
    Dims fine;  // what both shapes are joins of
    for (size_t r = 1 + below(5); r > 0; --r) fine.emplace_back(kExtents[below(4)]);
    const auto joined = [&] {
      Dims out;
      for (const ir::Dim& d : fine) {
        if (out.empty() || below(2))
          out.push_back(d);
        else
          out.back() = out.back() * d;
      }
      return out;
    };
    const Dims from = joined(), to = joined();
    const auto groups = groups_of_reshape(from, to, {});
    ASSERT_TRUE(groups);
    Axes order = natural_order(from.size());
    std::shuffle(order.begin(), order.end(), random);
    const Axes operand = gathered(order, *groups);
    ASSERT_EQ(natural_order(from.size()), [&] {
      Axes sorted = operand;
      std::sort(sorted.begin(), sorted.end());
      return sorted;
    }());
    EXPECT_EQ(gathered(operand, *groups), operand);
    followed += operand == order;
    const Axes result = reshaped(operand, *groups, to.size());
    ASSERT_EQ(result.size(), to.size());
    const ir::TensorRef x = counted(from);
    const ir::TensorRef want = transposed(reshaped_to(x, to), result);
    EXPECT_TRUE(same(reshaped_to(transposed(x, operand), permuted(to, result)), want)) << trial;
  }
  EXPECT_GT(followed, 100);
}

}  // namespace
}  // namespace nimble::passes
