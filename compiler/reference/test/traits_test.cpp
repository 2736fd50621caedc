// What Ops.def claims of an operator's arithmetic, bit by bit, against what it computes.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "compiler/ir/op.h"
#include "compiler/reference/reference.h"

namespace nimble::reference {
namespace {

const std::vector<float> kFloats = {0.0F,
                                    -0.0F,
                                    1.0F,
                                    -1.0F,
                                    0.1F,
                                    -7.5F,
                                    3.0e38F,
                                    1.0e-40F,
                                    std::numeric_limits<float>::infinity(),
                                    -std::numeric_limits<float>::infinity()};
const std::vector<int64_t> kIntegers = {0, 1, -1, 2, -7, 1000, INT64_MAX, INT64_MIN};
const std::vector<uint8_t> kBools = {0, 1};

// The result of `op` on two vectors; nothing where it does not take such operands.
std::optional<std::vector<uint8_t>> result(const ir::OpInfo& op, const ir::TensorRef& x,
                                           const ir::TensorRef& y) {
  const auto e = ir::make_call(op.name, {ir::Atom::of(x), ir::Atom::of(y)});
  try {
    const ir::TensorRef z = evaluate_op(*e, {x, y}, {}).at(0);
    return std::vector<uint8_t>(z->bytes.begin(), z->bytes.end());
  } catch (const Error&) {
    return std::nullopt;
  }
}

// All pairs of the values, as two vectors.
template <class T>
std::pair<ir::TensorRef, ir::TensorRef> pairs(DType t, const std::vector<T>& values) {
  std::vector<T> x, y;
  for (T a : values)
    for (T b : values) x.push_back(a), y.push_back(b);
  const auto n = static_cast<int64_t>(x.size());
  return {ir::Tensor::of<T>(t, {n}, x), ir::Tensor::of<T>(t, {n}, y)};
}

TEST(Traits, CommutativeOperatorsCommute) {
  for (const ir::OpInfo& op : ir::all_ops()) {
    if (!op.traits.commutative) continue;
    int served = 0;
    for (const auto& [x, y] : {pairs(DType::kF32, kFloats), pairs(DType::kI64, kIntegers),
                               pairs(DType::kBool, kBools)}) {
      const auto there = result(op, x, y), back = result(op, y, x);
      served += there.has_value();
      EXPECT_EQ(there, back) << op.name;
    }
    EXPECT_GT(served, 0) << op.name;
  }
}

template <class T>
void check_neutral(const ir::OpInfo& op, DType t, const std::vector<T>& values) {
  const auto n = static_cast<int64_t>(values.size());
  const ir::TensorRef x = ir::Tensor::of<T>(t, {n}, values);
  const ir::TensorRef neutral =
      ir::Tensor::of<T>(t, {n}, std::vector<T>(values.size(), static_cast<T>(*op.traits.neutral)));
  const std::vector<uint8_t> same(x->bytes.begin(), x->bytes.end());
  EXPECT_EQ(result(op, x, neutral), same) << op.name;
  if (op.traits.commutative) {
    EXPECT_EQ(result(op, neutral, x), same) << op.name;
  }
}

TEST(Traits, NeutralElementsChangeNoBit) {
  int rows = 0;
  for (const ir::OpInfo& op : ir::all_ops()) {
    if (!op.traits.neutral) continue;
    ++rows;
    check_neutral(op, DType::kF32, kFloats);
    check_neutral(op, DType::kI64, kIntegers);
  }
  EXPECT_GT(rows, 0);
}

}  // namespace
}  // namespace nimble::reference
