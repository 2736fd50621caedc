// The columns of Ops.def against each other, and the rules that count work against formulas.
#include <gmock/gmock.h>

#include <set>
#include <string>

#include "compiler/ir/op.h"

namespace nimble::ir {
namespace {

bool has_attr(const OpInfo& op, const std::string& name) {
  return std::any_of(op.attrs.begin(), op.attrs.end(),
                     [&](const AttrSpec& a) { return a.name == name; });
}

TEST(Traits, FitTheRestOfTheirRow) {
  for (const OpInfo& op : all_ops()) {
    SCOPED_TRACE(op.name);
    const Traits& t = op.traits;
    EXPECT_EQ(op.name.starts_with("memory."),
              op.fusion == FusionKind::kOutside && op.relation == find_op("memory.kill")->relation);
    EXPECT_TRUE(op.min_args == 2 || (!t.neutral && !t.commutative));
    EXPECT_TRUE(op.fusion == FusionKind::kElementwise || !t.cheap);
    EXPECT_TRUE(op.fusion == FusionKind::kElementwise || op.min_args == 0 || !t.scalar);
    EXPECT_TRUE(has_attr(op, "symbols") || !t.names_symbols);
    EXPECT_TRUE(has_attr(op, "device") || !t.placement);
    EXPECT_GE(op.min_args, t.indexes ? 2 : t.memory != Memory::kOwn || t.in_place || t.identity);
    EXPECT_TRUE(op.fusion == FusionKind::kInjective || !t.anchors);
    EXPECT_TRUE(op.fusion != FusionKind::kOutside || (!t.sums && !t.flops));
    switch (op.rows()) {
      case Rows::kMixed:
      case Rows::kPointwise:
      case Rows::kIndex:
        break;
      case Rows::kAxes:
      case Rows::kResultAxes:
        EXPECT_TRUE(has_attr(op, "axis") || has_attr(op, "axes"));
        break;
      case Rows::kShape:
      case Rows::kBroadcast:
      case Rows::kFill:
        EXPECT_TRUE(has_attr(op, "shape"));
        break;
      case Rows::kPermutation:
        EXPECT_TRUE(has_attr(op, "axes"));
        break;
      case Rows::kPads:
        EXPECT_TRUE(has_attr(op, "before") && has_attr(op, "after"));
        break;
      case Rows::kProduct:
      case Rows::kPackedProduct:
        EXPECT_EQ(op.fusion, FusionKind::kAnchor);
        break;
    }
  }
}

TEST(Traits, WhatMovesElementsComputesNone) {
  std::set<std::string> moving;
  for (const OpInfo& op : all_ops())
    if (op.moves_elements()) moving.insert(op.name);
  EXPECT_THAT(moving, ::testing::UnorderedElementsAre("reshape", "transpose", "squeeze",
                                                      "unsqueeze", "expand", "slice", "concat",
                                                      "gather", "gather_elements", "take_row"));
}

// Operators that differ only in what they compute, not in how.
TEST(Traits, OfTwinsAreAlike) {
  const std::pair<const char*, const char*> kTwins[] = {
      {"cumsum", "cumprod"},
      {"sum", "prod"},
      {"reduce_max", "reduce_min"},
      {"softmax", "log_softmax"},
      {"memory.kill", "memory.release"},
      {"lstm_cell", "packed_lstm_cell"},
      {"gru_cell", "packed_gru_cell"},
      {"equal", "not_equal"},
      {"less", "greater"},
  };
  for (const auto& [a, b] : kTwins) {
    SCOPED_TRACE(a);
    const OpInfo &x = *find_op(a), &y = *find_op(b);
    EXPECT_EQ(x.fusion, y.fusion);
    EXPECT_EQ(x.rows(), y.rows());
    EXPECT_EQ(x.traits.effect, y.traits.effect);
    EXPECT_EQ(x.traits.cheap, y.traits.cheap);
    EXPECT_EQ(x.traits.scalar, y.traits.scalar);
    EXPECT_EQ(x.traits.memory, y.traits.memory);
    EXPECT_EQ(x.traits.commutative, y.traits.commutative);
    EXPECT_EQ(x.traits.sums, y.traits.sums);
    EXPECT_EQ(x.traits.flops, y.traits.flops);
  }
}

// A cell and its packed form differ in the step's number alone, which stands last.
TEST(Traits, OfACellNameItsPackedForm) {
  int cells = 0;
  for (const OpInfo& op : all_ops()) {
    SCOPED_TRACE(op.name);
    EXPECT_EQ(op.traits.packs == Packs::kGates, op.traits.cell && !op.traits.cell->step);
    if (op.traits.packs != Packs::kGates) continue;
    ++cells;
    const CellOperands& plain = *op.traits.cell;
    ASSERT_NE(plain.packed, nullptr);
    const OpInfo* other = find_op(plain.packed);
    ASSERT_NE(other, nullptr);
    ASSERT_TRUE(other->traits.cell);
    const CellOperands& packed = *other->traits.cell;
    EXPECT_EQ(plain.gates, packed.gates);
    EXPECT_EQ(plain.c, packed.c);
    EXPECT_EQ(plain.weights, packed.weights);
    EXPECT_EQ(plain.bias, packed.bias);
    EXPECT_EQ(packed.packed, nullptr);
    EXPECT_EQ(packed.step, static_cast<size_t>(op.max_args));
    EXPECT_EQ(other->max_args, op.max_args + 1);
    for (const AttrSpec& a : op.attrs) EXPECT_TRUE(has_attr(*other, a.name)) << a.name;
  }
  EXPECT_EQ(cells, 2);
}

TEST(Traits, OfNoOperatorAreTheDefaults) {
  EXPECT_FALSE(traits_of(*make_tuple({})).effect);
  EXPECT_FALSE(traits_of(*make_call("no.such.operator", {})).effect);
  EXPECT_TRUE(traits_of(*make_call("memory.release", {})).effect);
}

using Extents = std::vector<std::vector<double>>;
double flops(const char* op, const Extents& operands, double results, const Attrs& attrs = {}) {
  return find_op(op)->traits.flops({attrs, operands, results});
}
double sums(const char* op, const Extents& operands, const Attrs& attrs = {}) {
  return find_op(op)->traits.sums({attrs, operands, 0});
}

TEST(Work, OfProductsIsTwoOperationsATerm) {
  EXPECT_EQ(flops("matmul", {{5, 7}, {7, 11}}, 55), 2 * 5 * 7 * 11);
  EXPECT_EQ(flops("matmul", {{7, 5}, {7, 11}}, 55, {{"transpose_a", true}}), 2 * 5 * 7 * 11);
  EXPECT_EQ(sums("matmul", {{7}, {7, 11}}), 7);
  EXPECT_EQ(flops("packed_matmul", {{5, 7}, {1, 7, 32}}, 55, {{"k", int64_t{7}}}), 2 * 5 * 7 * 11);
  EXPECT_EQ(flops("blockwise_matmul", {{5, 7}, {11, 1, 8}, {11, 1}}, 55, {{"k", int64_t{7}}}),
            2 * 5 * 7 * 11);
  EXPECT_EQ(flops("packed_groupwise_matmul", {{5, 64}, {1, 16, 32, 4}, {1, 32}, {1, 32}}, 55,
                  {{"k", int64_t{64}}}),
            2 * 5 * 64 * 11);
  // 4 filters of 3 channels, 2 by 5.
  EXPECT_EQ(flops("conv2d", {{1, 3, 9, 9}, {4, 3, 2, 5}}, 160), 2.0 * 160 * 3 * 2 * 5);
  const Attrs last = {{"layout", std::string("nhwc")}};
  EXPECT_EQ(flops("conv2d", {{1, 9, 9, 3}, {2, 5, 3, 4}}, 160, last), 2.0 * 160 * 3 * 2 * 5);
}

// 16 products for 4 pixels of a filter, and 36 for 16.
TEST(Work, OfWinogradsTilesIsThatOfTheirProducts) {
  const Extents operands = {{1, 8, 8, 3}, {1, 16, 3, 8}};
  EXPECT_EQ(flops("packed_winograd", operands, 8 * 8 * 5, {{"tile", int64_t{2}}}),
            2.0 * 16 * 16 * 3 * 5);
  EXPECT_EQ(flops("packed_winograd", operands, 8 * 8 * 5, {{"tile", int64_t{4}}}),
            2.0 * 4 * 36 * 3 * 5);
  EXPECT_EQ(sums("packed_winograd", operands, {{"tile", int64_t{4}}}), 36 * 3);
}

TEST(Work, OfCellsCountsTheirGates) {
  constexpr double b = 3, h = 10;
  // The recurrent product: (b, h) times (h, 4h), and (h, 3h).
  EXPECT_EQ(flops("lstm_cell", {{b, 4 * h}, {b, h}, {b, h}, {h, 4 * h}}, 2 * b * h),
            2 * b * h * 4 * h);
  EXPECT_EQ(flops("gru_cell", {{b, 3 * h}, {b, h}, {h, 3 * h}, {3 * h}}, b * h), 2 * b * h * 3 * h);
  EXPECT_EQ(sums("gru_cell", {{b, 3 * h}, {b, h}, {h, 3 * h}, {3 * h}}), h);
  constexpr double n = 7;
  EXPECT_EQ(flops("lstm_steps", {{n, b, 4 * h}, {b, h}, {b, h}, {h, 4 * h}}, (n + 2) * b * h),
            n * 2 * b * h * 4 * h);
}

TEST(Work, OfAttentionIsTwoProducts) {
  constexpr double b = 2, n = 3, m = 5, heads = 4, d = 8;
  const double scores = 2 * b * heads * n * m * d, values = 2 * b * heads * n * m * d;
  EXPECT_EQ(flops("attention", {{b, n, heads * d}, {b, m, heads * d}, {b, m, heads * d}},
                  b * n * heads * d),
            scores + values);
}

TEST(Work, OfReductionsIsWhatTheyRead) {
  const Attrs both = {{"axes", std::vector<int64_t>{0, 2}}, {"keepdims", false}};
  EXPECT_EQ(sums("sum", {{4, 6, 5}}, both), 20);
  EXPECT_EQ(flops("sum", {{4, 6, 5}}, 6, both), 120);
  EXPECT_EQ(flops("argmax", {{4, 6}}, 4), 24);
  EXPECT_EQ(sums("softmax", {{4, 6}}, {{"axis", int64_t{1}}}), 6);
  EXPECT_EQ(sums("layer_norm", {{4, 6, 5}, {30}, {30}}, {{"axis", int64_t{1}}}), 30);
  const Attrs window = {{"kernel", std::vector<int64_t>{3, 2}}};
  EXPECT_EQ(sums("avg_pool2d", {{1, 1, 8, 8}}, window), 6);
  EXPECT_EQ(flops("max_pool2d", {{1, 1, 8, 8}}, 42, window), 252);
}

}  // namespace
}  // namespace nimble::ir
