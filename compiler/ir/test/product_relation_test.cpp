// Relations of products, convolutions and cells: what they take, in which form, and what they make.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "compiler/ir/test/relation.h"

namespace nimble::ir {
namespace {

TEST(Relation, ProductsAndCells) {
  const Dim b = Dim::symbol("b"), n = Dim::symbol("n");
  const Attrs conv = {{"strides", Ints{2, 2}},
                      {"pads", Ints{1, 1, 1, 1}},
                      {"dilations", Ints{1, 1}},
                      {"groups", int64_t{1}}};
  EXPECT_EQ(str(relate("conv2d", {f32({b, 3, 224, n}), f32({8, 3, 3, 3}), f32({8})}, conv).type),
            "Tensor[(b, 8, 112, floordiv(n + 1, 2)), f32]");
  EXPECT_TRUE(relate("conv2d", {f32({b, 4, 8, 8}), f32({8, 3, 3, 3})}, conv).refused);
  Attrs last = conv;
  last["layout"] = std::string("nhwc");
  EXPECT_EQ(str(relate("conv2d", {f32({b, 224, n, 3}), f32({3, 3, 3, 8}), f32({8})}, last).type),
            "Tensor[(b, 112, floordiv(n + 1, 2), 8), f32]");
  EXPECT_TRUE(relate("conv2d", {f32({b, 3, 224, 224}), f32({8, 3, 3, 3})}, last).refused);
  last["groups"] = int64_t{3};
  EXPECT_EQ(str(relate("conv2d", {f32({b, 8, 9, 3}), f32({3, 2, 1, 6}), f32({6})}, last).type),
            "Tensor[(b, 4, 5, 6), f32]");
  EXPECT_TRUE(relate("conv2d", {f32({b, 8, 9, 3}), f32({3, 2, 1, 7})}, last).refused);
  last["layout"] = std::string("nchw");
  last["groups"] = int64_t{1};
  EXPECT_EQ(str(relate("conv2d", {f32({b, 3, 224, n}), f32({8, 3, 3, 3})}, last).type),
            "Tensor[(b, 8, 112, floordiv(n + 1, 2)), f32]");
  Attrs pool = {{"kernel", Ints{3, 2}},     {"strides", Ints{2, 1}},
                {"pads", Ints{1, 0, 1, 0}}, {"dilations", Ints{1, 1}},
                {"ceil_mode", false},       {"layout", std::string("nhwc")}};
  EXPECT_EQ(str(relate("max_pool2d", {f32({b, 9, n, 24})}, pool).type),
            "Tensor[(b, 5, n - 1, 24), f32]");
  EXPECT_EQ(
      str(relate("lstm_cell", {f32({b, 2048}), f32({b, 512}), f32({b, 512}), f32({512, 2048})})
              .type),
      "(Tensor[(b, 512), f32], Tensor[(b, 512), f32])");
  EXPECT_TRUE(relate("lstm_cell", {f32({b, 2047}), f32({b, 512}), f32({b, 512}), f32({512, 2048})})
                  .refused);
  const std::vector<Type> layer = {f32({n, b, 2048}), f32({b, 512}), f32({b, 512}),
                                   f32({512, 2048})};
  EXPECT_EQ(str(relate("lstm_steps", layer, {{"reverse", false}}).type),
            "(Tensor[(n, b, 512), f32], Tensor[(b, 512), f32], Tensor[(b, 512), f32])");
  EXPECT_EQ(str(relate("gru_steps", {f32({n, b, 51}), f32({b, 17}), f32({17, 51}), f32({51})},
                       {{"reverse", true}, {"linear_before_reset", true}})
                    .type),
            "(Tensor[(n, b, 17), f32], Tensor[(b, 17), f32])");
  EXPECT_TRUE(relate("gru_steps", {f32({b, 51}), f32({b, 17}), f32({17, 51}), f32({51})},
                     {{"reverse", true}, {"linear_before_reset", true}})
                  .refused);
  const Type step = tensor_type({}, DType::kI64);
  Attrs packed = {
      {"linear_before_reset", true}, {"hidden", int64_t{17}}, {"layout", std::string("gate16")}};
  const std::vector<Type> gru = {f32({b, 51}), f32({b, 17}), f32({2, 17, 3, 16}), f32({51}), step};
  EXPECT_EQ(str(relate("packed_gru_cell", gru, packed).type), "Tensor[(b, 17), f32]");
  packed["hidden"] = int64_t{18};
  EXPECT_TRUE(relate("packed_gru_cell", gru, packed).refused);
  packed["hidden"] = int64_t{17};
  packed["layout"] = std::string("panel16");
  EXPECT_TRUE(relate("packed_gru_cell", gru, packed).refused);
  packed["layout"] = std::string("gate8");
  EXPECT_TRUE(relate("packed_gru_cell", gru, packed).refused);  // 3 panels of 8
  EXPECT_EQ(str(relate("pack", {f32({300, 70})}, {{"layout", std::string("panel32")}}).type),
            "Tensor[(3, 300, 32), f32]");
  EXPECT_EQ(
      str(relate("packed_matmul", {f32({n, 300}), f32({3, 300, 32})},
                 {{"n", int64_t{70}}, {"k", int64_t{300}}, {"layout", std::string("panel32")}})
              .type),
      "Tensor[(n, 70), f32]");
  const Attrs heads = {{"heads", int64_t{12}}, {"scale", 0.125}};
  EXPECT_EQ(
      str(relate("attention",
                 {f32({b, n, 384}), f32({b, n, 384}), f32({b, n, 384}), f32({b, 1, 1, n})}, heads)
              .type),
      "Tensor[(b, n, 384), f32]");
  EXPECT_TRUE(
      relate("attention", {f32({b, n, 100}), f32({b, n, 100}), f32({b, n, 100})}, heads).refused);
}

TEST(Relation, WeightsInBlocksHaveTheFormThatTheyState) {
  const Dim m = Dim::symbol("m");
  const auto u8 = [](Dims d) { return tensor_type(std::move(d), DType::kU8); };
  const Attrs four = {
      {"bits", int64_t{4}}, {"block", int64_t{32}}, {"k", int64_t{70}}, {"n", int64_t{50}}};
  const auto with = [&](const std::string& name, AttrValue value) {
    Attrs attrs = four;
    attrs[name] = std::move(value);
    return attrs;
  };
  const std::vector<Type> stated = {f32({m, 70}), u8({50, 3, 16}), f32({50, 3})};
  EXPECT_EQ(str(relate("blockwise_matmul", stated, four).type), "Tensor[(m, 50), f32]");
  std::vector<Type> zeros = stated;
  zeros.push_back(u8({50, 3}));
  EXPECT_FALSE(relate("blockwise_matmul", zeros, four).refused);
  zeros.back() = f32({50, 3});
  EXPECT_FALSE(relate("blockwise_matmul", zeros, four).refused);
  const Attrs packed = with("layout", std::string("panel48x8"));
  EXPECT_EQ(str(relate("blockwise_matmul",
                       {f32({m, 70}), u8({2, 9, 48, 4}), f32({2, 3, 48}), u8({2, 3, 48})}, packed)
                    .type),
            "Tensor[(m, 50), f32]");
  EXPECT_FALSE(relate("blockwise_matmul", stated, with("activations", DType::kI8)).refused);

  // Other forms, and other numbers.
  EXPECT_TRUE(relate("blockwise_matmul", stated, packed).refused);
  EXPECT_TRUE(relate("blockwise_matmul", stated, with("bits", int64_t{8})).refused);
  EXPECT_TRUE(relate("blockwise_matmul", stated, with("bits", int64_t{3})).refused);
  for (const int64_t block : {int64_t{0}, int64_t{8}, int64_t{24}, int64_t{1} << 17})
    EXPECT_TRUE(relate("blockwise_matmul", stated, with("block", block)).refused) << block;
  for (const int64_t extent : {int64_t{0}, int64_t{-1}, INT64_MAX}) {
    EXPECT_TRUE(relate("blockwise_matmul", stated, with("k", extent)).refused) << extent;
    EXPECT_TRUE(relate("blockwise_matmul", stated, with("n", extent)).refused) << extent;
  }
  for (const char* layout : {"panel48", "panel48x4", "gate16", "rows"})
    EXPECT_TRUE(relate("blockwise_matmul", stated, with("layout", std::string(layout))).refused)
        << layout;
  EXPECT_TRUE(relate("blockwise_matmul", stated, with("activations", DType::kU8)).refused);
  const std::vector<std::vector<Type>> refused = {
      {f32({m, 71}), u8({50, 3, 16}), f32({50, 3})},
      {f32({m, 70}), u8({50, 3, 32}), f32({50, 3})},
      {f32({m, 70}), u8({50, 48}), f32({50, 3})},
      {f32({m, 70}), u8({50, 3, 16}), f32({50, 2})},
      {f32({m, 70}), f32({50, 3, 16}), f32({50, 3})},
      {u8({m, 70}), u8({50, 3, 16}), f32({50, 3})},
      {f32({m, 70}), u8({50, 3, 16}), f32({50, 3}), u8({50, 2})},
      {f32({m, 70}), u8({50, 3, 16}), f32({50, 3}), i64({50, 3})},
  };
  for (size_t i = 0; i < refused.size(); ++i)
    EXPECT_TRUE(relate("blockwise_matmul", refused[i], four).refused) << i;
}

TEST(Relation, GroupsOfBytesHaveTheFormThatTheyState) {
  const Dim m = Dim::symbol("m");
  const auto i8 = [](Dims d) { return tensor_type(std::move(d), DType::kI8); };
  const Attrs groups = {{"group", int64_t{64}},
                        {"k", int64_t{192}},
                        {"n", int64_t{50}},
                        {"layout", std::string("panel48x4")}};
  const auto with = [&](const std::string& name, AttrValue value) {
    Attrs attrs = groups;
    attrs[name] = std::move(value);
    return attrs;
  };
  const std::vector<Type> stated = {f32({m, 192}), i8({2, 48, 48, 4}), f32({3, 96}), f32({3, 96})};
  EXPECT_EQ(str(relate("packed_groupwise_matmul", stated, groups).type), "Tensor[(m, 50), f32]");
  const std::vector<Type> batch = {f32({m, 7, 192}), stated[1], stated[2], stated[3]};
  EXPECT_EQ(str(relate("packed_groupwise_matmul", batch, groups).type), "Tensor[(m, 7, 50), f32]");
  const std::vector<Type> whole = {stated[0], stated[1], f32({1, 96}), f32({1, 96})};
  EXPECT_FALSE(relate("packed_groupwise_matmul", whole, with("group", int64_t{192})).refused);
  const std::vector<Type> words = {stated[0], i8({2, 96, 48, 2}), stated[2], stated[3]};
  EXPECT_FALSE(
      relate("packed_groupwise_matmul", words, with("layout", std::string("panel48x2"))).refused);

  for (const int64_t group : {0, -64, 32, 96, 128, 384, 1024})
    EXPECT_TRUE(relate("packed_groupwise_matmul", stated, with("group", group)).refused) << group;
  for (const int64_t extent : {int64_t{0}, int64_t{-1}, INT64_MAX}) {
    EXPECT_TRUE(relate("packed_groupwise_matmul", stated, with("k", extent)).refused) << extent;
    EXPECT_TRUE(relate("packed_groupwise_matmul", stated, with("n", extent)).refused) << extent;
  }
  for (const int64_t steps : {1, 181, 255})
    EXPECT_FALSE(relate("packed_groupwise_matmul", stated, with("steps", steps)).refused) << steps;
  for (const int64_t steps : {0, -1, 256})
    EXPECT_TRUE(relate("packed_groupwise_matmul", stated, with("steps", steps)).refused) << steps;
  EXPECT_FALSE(relate("packed_groupwise_matmul", stated, with("max_weight", int64_t{90})).refused);
  EXPECT_TRUE(relate("packed_groupwise_matmul", stated, with("max_weight", int64_t{129})).refused);
  for (const char* layout : {"panel48", "panel48x8", "panel32x4", "gate16", "rows"})
    EXPECT_TRUE(
        relate("packed_groupwise_matmul", stated, with("layout", std::string(layout))).refused)
        << layout;
  const std::vector<std::vector<Type>> refused = {
      {f32({m, 191}), stated[1], stated[2], stated[3]},
      {i8({m, 192}), stated[1], stated[2], stated[3]},
      {stated[0], f32({2, 48, 48, 4}), stated[2], stated[3]},
      {stated[0], i8({2, 192, 48}), stated[2], stated[3]},
      {stated[0], stated[1], f32({3, 50}), stated[3]},
      {stated[0], stated[1], stated[2], f32({2, 96})},
      {stated[0], stated[1], i8({3, 96}), stated[3]},
  };
  for (size_t i = 0; i < refused.size(); ++i)
    EXPECT_TRUE(relate("packed_groupwise_matmul", refused[i], groups).refused) << i;
}

TEST(Relation, ProductsOfNarrowOperandsMayBeWide) {
  const Dim n = Dim::symbol("n");
  const auto narrow = [](Dims d, DType t = DType::kBF16) { return tensor_type(std::move(d), t); };
  const Attrs wide = {{"out", DType::kF32}};
  EXPECT_EQ(str(relate("matmul", {narrow({n, 300}), narrow({300, 70})}, wide).type),
            "Tensor[(n, 70), f32]");
  EXPECT_EQ(str(relate("matmul", {narrow({n, 300}), narrow({300, 70})}).type),
            "Tensor[(n, 70), bf16]");
  const DType half = DType::kF16;
  EXPECT_EQ(str(relate("matmul", {narrow({n, 300}, half), narrow({300, 70}, half)}, wide).type),
            "Tensor[(n, 70), f32]");
  EXPECT_EQ(str(relate("pack", {narrow({301, 70})}, {{"layout", std::string("panel32x2")}}).type),
            "Tensor[(3, 151, 32, 2), bf16]");
  Attrs packed = {{"n", int64_t{70}}, {"k", int64_t{301}}, {"layout", std::string("panel32x2")}};
  packed["out"] = DType::kF32;
  EXPECT_EQ(str(relate("packed_matmul", {narrow({n, 301}), narrow({3, 151, 32, 2})}, packed).type),
            "Tensor[(n, 70), f32]");
  EXPECT_TRUE(relate("packed_matmul", {narrow({n, 301}), narrow({3, 301, 32})}, packed).refused);
  // What is as wide as its operands, or narrower, or of other numbers.
  const std::vector<std::pair<DType, DType>> refused = {
      {DType::kF32, DType::kF32},  {DType::kF32, DType::kF64}, {DType::kBF16, DType::kBF16},
      {DType::kBF16, DType::kF64}, {DType::kF16, DType::kI32}, {DType::kI8, DType::kI64}};
  for (const auto& [in, out] : refused) {
    const Outcome o =
        relate("matmul", {narrow({n, 300}, in), narrow({300, 70}, in)}, {{"out", out}});
    EXPECT_TRUE(o.refused) << name_of(in) << " " << name_of(out);
    EXPECT_THAT(o.message, testing::HasSubstr("out = f32 for two operands of bf16 or of f16"));
  }
  EXPECT_TRUE(relate("matmul", {narrow({n, 300}), f32({300, 70})}, wide).refused);
  for (const DType a : {DType::kU8, DType::kI8})
    for (const DType b : {DType::kU8, DType::kI8})
      EXPECT_EQ(
          str(relate("matmul", {narrow({n, 300}, a), narrow({300, 70}, b)}, {{"out", DType::kI32}})
                  .type),
          "Tensor[(n, 70), i32]");
}

TEST(Relation, PromisesOfWeightsAreOfBytes) {
  const Dim n = Dim::symbol("n");
  const auto typed = [](Dims d, DType t) { return tensor_type(std::move(d), t); };
  Attrs packed = {{"n", int64_t{70}},
                  {"k", int64_t{300}},
                  {"layout", std::string("panel32x4")},
                  {"out", DType::kI32}};
  const std::vector<Type> bytes = {typed({n, 300}, DType::kU8), typed({3, 75, 32, 4}, DType::kI8)};
  for (const int64_t most : {0, 64, 128}) {
    packed["max_weight"] = most;
    EXPECT_EQ(str(relate("packed_matmul", bytes, packed).type), "Tensor[(n, 70), i32]") << most;
  }
  for (const int64_t most : {-1, 129}) {
    packed["max_weight"] = most;
    EXPECT_THAT(relate("packed_matmul", bytes, packed).message,
                testing::HasSubstr("no i8 exceeds 128 in size"));
  }
  packed["max_weight"] = int64_t{64};
  packed["out"] = DType::kF32;
  EXPECT_THAT(relate("packed_matmul",
                     {typed({n, 300}, DType::kBF16), typed({3, 75, 32, 4}, DType::kBF16)}, packed)
                  .message,
              testing::HasSubstr("max_weight is of weights of i8"));
  Attrs conv = {{"kernel", Ints{1, 1}},    {"filters", int64_t{8}},
                {"strides", Ints{1, 1}},   {"pads", Ints{0, 0, 0, 0}},
                {"dilations", Ints{1, 1}}, {"layout", std::string("panel8x4")},
                {"out", DType::kI32},      {"max_weight", int64_t{64}}};
  const std::vector<Type> image = {typed({n, 7, 7, 4}, DType::kU8),
                                   typed({1, 1, 8, 4}, DType::kI8)};
  EXPECT_EQ(str(relate("packed_conv2d", image, conv).type), "Tensor[(n, 7, 7, 8), i32]");
  conv["max_weight"] = int64_t{200};
  EXPECT_TRUE(relate("packed_conv2d", image, conv).refused);
}

TEST(Relation, ConvolutionsOfBytesAddUpInI32) {
  const Dim n = Dim::symbol("n");
  const auto typed = [](Dims d, DType t) { return tensor_type(std::move(d), t); };
  const DType image = DType::kU8, weights = DType::kI8, sums = DType::kI32;
  Attrs conv = {{"strides", Ints{1, 1}},
                {"pads", Ints{1, 1, 1, 1}},
                {"dilations", Ints{1, 1}},
                {"groups", int64_t{1}}};
  const std::vector<Type> operands = {typed({n, 4, 7, 7}, image), typed({8, 4, 3, 3}, weights),
                                      typed({8}, sums)};
  EXPECT_TRUE(relate("conv2d", operands, conv).refused);
  EXPECT_TRUE(
      relate("conv2d", {typed({n, 4, 7, 7}, sums), typed({8, 4, 3, 3}, sums)}, conv).refused);
  conv["out"] = sums;
  EXPECT_EQ(str(relate("conv2d", operands, conv).type), "Tensor[(n, 8, 7, 7), i32]");
  EXPECT_TRUE(relate("conv2d", {operands[0], operands[1], f32({8})}, conv).refused);
  Attrs packed = conv;
  packed["kernel"] = Ints{3, 3};
  packed["filters"] = int64_t{8};
  packed["layout"] = std::string("panel8x4");
  EXPECT_EQ(
      str(relate("packed_conv2d",
                 {typed({n, 7, 7, 4}, image), typed({1, 9, 8, 4}, weights), operands[2]}, packed)
              .type),
      "Tensor[(n, 7, 7, 8), i32]");
}

TEST(Relation, WinogradsTilesHaveTransformedWeights) {
  const Dim n = Dim::symbol("n"), h = Dim::symbol("h");
  Attrs attrs = {{"tile", int64_t{4}},
                 {"filters", int64_t{40}},
                 {"pads", Ints{1, 0, 2, 1}},
                 {"layout", std::string("panel32")}};
  const std::vector<Type> operands = {f32({n, h, 7, 24}), f32({2, 36, 24, 32}), f32({40})};
  EXPECT_EQ(str(relate("packed_winograd", operands, attrs).type), "Tensor[(n, h + 1, 6, 40), f32]");
  const auto refused = [&](const std::vector<Type>& given) {
    return relate("packed_winograd", given, attrs).refused;
  };
  EXPECT_TRUE(refused({f32({n, h, 7, 23}), operands[1], operands[2]}));
  EXPECT_TRUE(refused({operands[0], f32({2, 16, 24, 32}), operands[2]}));
  EXPECT_TRUE(refused({operands[0], f32({3, 36, 24, 32}), operands[2]}));
  EXPECT_TRUE(refused({operands[0], f32({2 * 36 * 24 * 32}), operands[2]}));
  EXPECT_TRUE(refused({operands[0], operands[1], f32({24})}));
  EXPECT_TRUE(refused({f32({n, h, 1, 24}), operands[1], operands[2]}));  // no window fits
  EXPECT_TRUE(refused({tensor_type({n, h, 7, 24}, DType::kF16), operands[1], operands[2]}));
  attrs["tile"] = int64_t{3};
  EXPECT_TRUE(refused(operands));
  attrs["tile"] = int64_t{2};
  EXPECT_FALSE(refused({operands[0], f32({2, 16, 24, 32}), operands[2]}));
  attrs["layout"] = std::string("panel32x2");
  EXPECT_TRUE(refused({operands[0], f32({2, 16, 24, 32}), operands[2]}));
}

}  // namespace
}  // namespace nimble::ir
