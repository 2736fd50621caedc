// Packed and narrow products and convolutions of the reference interpreter against the plain ones,
// or against values worked out by hand.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "compiler/ir/layout.h"
#include "compiler/ir/text.h"
#include "compiler/ir/winograd.h"
#include "compiler/reference/reference.h"
#include "vm/base/half.h"

namespace nimble::reference {
namespace {

// Runs @main on small whole numbers of these shapes: both of its results are the same.
void expect_equal_results(const ir::Module& m, const std::vector<std::vector<int64_t>>& shapes) {
  std::vector<ir::TensorRef> inputs;
  for (const std::vector<int64_t>& shape : shapes) {
    int64_t n = 1;
    for (int64_t d : shape) n *= d;
    std::vector<float> v;
    for (int64_t i = 0; i < n; ++i) v.push_back(static_cast<float>(i * 7 % 23 - 11));
    inputs.push_back(ir::Tensor::of<float>(DType::kF32, shape, v));
  }
  const std::vector<ir::TensorRef> r = Interpreter(m).run_tensors("main", inputs);
  ASSERT_EQ(r.size(), 2u);
  ASSERT_EQ(r[0]->shape, r[1]->shape);
  for (int64_t i = 0; i < r[0]->elements(); ++i) EXPECT_EQ(r[0]->value(i), r[1]->value(i)) << i;
}

// Two groups of 64 in two columns; the other elements of x and of the weights are zeros.
TEST(Operators, PackedGroupwiseProductsRoundEachGroupOverItsRange) {
  const int64_t k = 128, n = 2;
  const ir::Layout layout = *ir::parse_layout("panel2x4");
  const ir::Module m = ir::parse_module(
      R"(fn @main(%x: Tensor[(m, 128), f32], %w: Tensor[(1, 32, 2, 4), i8], %s: Tensor[(2, 2), f32], %t: Tensor[(2, 2), f32]) {
  let %y = packed_groupwise_matmul(%x, %w, %s, %t) {group = 64, k = 128, n = 2, layout = "panel2x4"};
  %y
})");
  std::vector<int8_t> w(static_cast<size_t>(k * n));
  const auto weigh = [&](int64_t row, int64_t column, int v) {
    w[static_cast<size_t>(layout.index_of(row, column, k))] = static_cast<int8_t>(v);
  };
  weigh(0, 0, 2), weigh(1, 0, 3), weigh(5, 0, -1), weigh(64, 0, 100), weigh(127, 1, -127);
  const std::vector<float> scales = {0.5F, 1, 2, 0.25F}, sums = {0.5F * 4, 0, 2.0F * 100, -31.75F};
  std::vector<float> x(static_cast<size_t>(5 * k));
  const auto set = [&](int64_t row, int64_t at, float v) {
    x[static_cast<size_t>(row * k + at)] = v;
  };
  // Steps of 1 from -10: 245 * 2 - 10 * 3. A fraction is rounded, ties to even.
  set(0, 0, 245), set(0, 1, -10), set(0, 5, 0.5F);
  // Steps of 1/255 from 0; a group of equal elements is exact.
  set(1, 127, 1), set(1, 64, 0.501F);
  for (int64_t i = 0; i < 64; ++i) set(1, i, 0.3F);
  // Not finite, or of a range that is not.
  set(2, 3, std::numeric_limits<float>::quiet_NaN());
  set(3, 70, -std::numeric_limits<float>::infinity());
  set(4, 0, 3e38F), set(4, 1, -3e38F);
  const std::vector<ir::TensorRef> r =
      Interpreter(m).run_tensors("main", {ir::Tensor::of<float>(DType::kF32, {5, k}, x),
                                          ir::Tensor::of<int8_t>(DType::kI8, {1, 32, 2, 4}, w),
                                          ir::Tensor::of<float>(DType::kF32, {2, 2}, scales),
                                          ir::Tensor::of<float>(DType::kF32, {2, 2}, sums)});
  ASSERT_EQ(r[0]->shape, (std::vector<int64_t>{5, 2}));
  EXPECT_EQ(r[0]->value(0), 0.5 * (245 * 2 - 10 * 3));
  EXPECT_EQ(r[0]->value(1), 0);
  EXPECT_NEAR(r[0]->value(2), 0.5 * 0.3 * 4 + 2.0 * 100 * 128 / 255, 2e-5);
  EXPECT_NEAR(r[0]->value(3), 0.25 * -127, 1e-5);
  for (int64_t i = 4; i < 10; ++i) EXPECT_TRUE(std::isnan(r[0]->value(i))) << i;
}

// To four steps: of a range of 8 each is 2. What is promised of weights is asked for.
TEST(Operators, PackedGroupwiseProductsTakeFewerSteps) {
  const ir::Module m = ir::parse_module(
      R"(fn @main(%x: Tensor[(1, 64), f32], %w: Tensor[(1, 16, 1, 4), i8], %s: Tensor[(1, 1), f32], %t: Tensor[(1, 1), f32]) {
  let %y = packed_groupwise_matmul(%x, %w, %s, %t) {group = 64, k = 64, n = 1, layout = "panel1x4", steps = 4, max_weight = 5};
  %y
})");
  std::vector<float> x(64);
  x[0] = 8, x[1] = 2.5F, x[2] = 5.5F;
  std::vector<int8_t> w(64);
  w[0] = 1, w[1] = 3, w[2] = -5;
  const auto run = [&] {
    return Interpreter(m).run_tensors("main", {ir::Tensor::of<float>(DType::kF32, {1, 64}, x),
                                               ir::Tensor::of<int8_t>(DType::kI8, {1, 16, 1, 4}, w),
                                               ir::Tensor::of<float>(DType::kF32, {1, 1}, {10}),
                                               ir::Tensor::of<float>(DType::kF32, {1, 1}, {0})});
  };
  EXPECT_EQ(run()[0]->value(0), 10 * (8 * 1 + 2 * 3 - 6 * 5));
  w[2] = -6;
  EXPECT_THROW(run(), Error);
}

TEST(Operators, PackedConvolutionsEqualPlainOnes) {
  ir::Module m = ir::parse_module(
      R"(fn @main(%x: Tensor[(2, 6, n, 3), f32], %w: Tensor[(3, 2, 3, 5), f32], %b: Tensor[(5), f32]) {
  let %k = reshape(%w) {shape = (18, 5)};
  let %p = pack(%k) {layout = "panel4"};
  let %y = packed_conv2d(%x, %p, %b) {kernel = [3, 2], filters = 5, strides = [2, 1], pads = [1, 2, 0, 1], dilations = [1, 2], layout = "panel4"};
  let %z = conv2d(%x, %w, %b) {strides = [2, 1], pads = [1, 2, 0, 1], dilations = [1, 2], groups = 1, layout = "nhwc"};
  let %r = (%y, %z);
  %r
})");
  expect_equal_results(m, {{2, 6, 7, 3}, {3, 2, 3, 5}, {5}});
}

// Panels of several groups lie one behind the other, each filled up with zeros.
TEST(Operators, PackedConvolutionsOfGroupsEqualPlainOnes) {
  ir::Module m = ir::parse_module(
      R"(fn @main(%x: Tensor[(2, 6, n, 6), f32], %w: Tensor[(3, 2, 3, 10), f32], %b: Tensor[(10), f32]) {
  let %k = reshape(%w) {shape = (18, 2, 5)};
  let %f = pad(%k) {before = (0, 0, 0), after = (0, 0, 3), value = 0.0};
  let %g = reshape(%f) {shape = (18, 16)};
  let %p = pack(%g) {layout = "panel4"};
  let %y = packed_conv2d(%x, %p, %b) {kernel = [3, 2], filters = 10, groups = 2, strides = [2, 1], pads = [1, 2, 0, 1], dilations = [1, 2], layout = "panel4"};
  let %z = conv2d(%x, %w, %b) {strides = [2, 1], pads = [1, 2, 0, 1], dilations = [1, 2], groups = 2, layout = "nhwc"};
  let %r = (%y, %z);
  %r
})");
  expect_equal_results(m, {{2, 6, 7, 6}, {3, 2, 3, 10}, {10}});
}

// Images with channels first: rows of the weights' matrix have the channel first, too.
TEST(Operators, PackedConvolutionsOfChannelsFirstEqualPlainOnes) {
  ir::Module m = ir::parse_module(
      R"(fn @main(%x: Tensor[(2, 3, n, 6), f32], %w: Tensor[(5, 3, 3, 2), f32], %b: Tensor[(5), f32]) {
  let %k = reshape(%w) {shape = (5, 18)};
  let %p = pack(%k) {layout = "panel4", transpose = true};
  let %y = packed_conv2d(%x, %p, %b) {kernel = [3, 2], filters = 5, strides = [2, 1], pads = [1, 2, 0, 1], dilations = [1, 2], layout = "panel4", image_layout = "nchw"};
  let %c = conv2d(%x, %w, %b) {strides = [2, 1], pads = [1, 2, 0, 1], dilations = [1, 2], groups = 1};
  let %z = transpose(%c) {axes = [0, 2, 3, 1]};
  let %r = (%y, %z);
  %r
})");
  expect_equal_results(m, {{2, 3, 7, 6}, {5, 3, 3, 2}, {5}});
}

// In groups of rows, neighbouring channels of a tap stand side by side; the third has none.
TEST(Operators, PackedConvolutionsOfGroupedPlanesEqualPlainOnes) {
  ir::Module m = ir::parse_module(
      R"(fn @main(%x: Tensor[(2, 3, n, 6), f32], %w: Tensor[(5, 3, 3, 2), f32], %b: Tensor[(5), f32]) {
  let %f = pad(%w) {before = (0, 0, 0, 0), after = (0, 1, 0, 0), value = 7.0};
  let %g = reshape(%f) {shape = (5, 2, 2, 6)};
  let %t = transpose(%g) {axes = [0, 1, 3, 2]};
  let %k = reshape(%t) {shape = (5, 24)};
  let %p = pack(%k) {layout = "panel4x2", transpose = true};
  let %y = packed_conv2d(%x, %p, %b) {kernel = [3, 2], filters = 5, strides = [2, 1], pads = [1, 2, 0, 1], dilations = [1, 2], layout = "panel4x2", image_layout = "nchw"};
  let %c = conv2d(%x, %w, %b) {strides = [2, 1], pads = [1, 2, 0, 1], dilations = [1, 2], groups = 1};
  let %z = transpose(%c) {axes = [0, 2, 3, 1]};
  let %r = (%y, %z);
  %r
})");
  expect_equal_results(m, {{2, 3, 7, 6}, {5, 3, 3, 2}, {5}});
}

// Of whole numbers and weights that are multiples of what the tiles divide by, all of it is exact.
TEST(Operators, WinogradsTilesEqualPlainConvolutions) {
  for (const int64_t tile : {2, 4})
    for (const auto& [h, w] :
         {std::pair<int64_t, int64_t>{1, 1}, {2, 2}, {3, 5}, {4, 7}, {9, 11}}) {
      SCOPED_TRACE(fmt::format("{}: {} x {}", tile, h, w));
      const int64_t channels = 3, filters = 5;
      std::vector<float> image, weights, bias;
      for (int64_t i = 0; i < 2 * h * w * channels; ++i)
        image.push_back(static_cast<float>(i * 7 % 23 - 11));
      for (int64_t i = 0; i < 9 * channels * filters; ++i)
        weights.push_back(static_cast<float>((i * 5 % 19 - 9) * 576));
      for (int64_t i = 0; i < filters; ++i) bias.push_back(static_cast<float>(i - 2));
      const ir::TensorRef k =
          ir::Tensor::of<float>(DType::kF32, {3, 3, channels, filters}, weights);
      const ir::Layout layout = *ir::parse_layout("panel4");
      const ir::TensorRef u = ir::winograd_weights(*k, *ir::find_winograd(tile), layout);
      ASSERT_EQ(u->shape, (std::vector<int64_t>{2, (tile + 2) * (tile + 2), channels, 4}));
      const ir::Module m = ir::parse_module(fmt::format(
          R"(fn @main(%x: Tensor[(2, {0}, {1}, 3), f32], %k: Tensor[(3, 3, 3, 5), f32], %u: Tensor[(2, {2}, 3, 4), f32], %b: Tensor[(5), f32]) {{
  let %y = conv2d(%x, %k, %b) {{strides = [1, 1], pads = [1, 2, 1, 0], dilations = [1, 1], groups = 1, layout = "nhwc"}};
  let %z = packed_winograd(%x, %u, %b) {{tile = {3}, filters = 5, pads = [1, 2, 1, 0], layout = "panel4"}};
  let %r = (%y, %z);
  %r
}})",
          h, w, u->shape[1], tile));
      const std::vector<ir::TensorRef> r = Interpreter(m).run_tensors(
          "main", {ir::Tensor::of<float>(DType::kF32, {2, h, w, channels}, image), k, u,
                   ir::Tensor::of<float>(DType::kF32, {filters}, bias)});
      ASSERT_EQ(r[0]->shape, r[1]->shape);
      for (int64_t i = 0; i < r[0]->elements(); ++i) EXPECT_EQ(r[0]->value(i), r[1]->value(i)) << i;
    }
}

// An element of the transformed weights that f32 does not hold: the taps' sum.
TEST(Operators, WinogradsWeightsMustBeFinite) {
  const ir::Layout layout = *ir::parse_layout("panel1");
  for (const float w : {1e38F, 3e38F, std::numeric_limits<float>::infinity()})
    for (const int64_t tile : {2, 4}) {
      const ir::TensorRef k =
          ir::Tensor::of<float>(DType::kF32, {3, 3, 1, 1}, std::vector<float>(9, w));
      // 9/4 of a weight at the most, or as much as it.
      EXPECT_EQ(ir::winograd_weights(*k, *ir::find_winograd(tile), layout) != nullptr,
                tile == 2 ? w < 1.5e38F : std::isfinite(w))
          << tile << ", " << w;
    }
  EXPECT_EQ(ir::find_winograd(3), nullptr);
}

// Padding is zeros, which times an infinite weight are NaN, unless it is skipped.
TEST(Operators, PaddingOfConvolutionsMayBeSkipped) {
  ir::Module m = ir::parse_module(
      R"(fn @main(%x: Tensor[(1, 1, 2, 1), f32], %w: Tensor[(1, 2, 1, 1), f32]) {
  let %p = reshape(%w) {shape = (1, 2, 1)};
  let %a = conv2d(%x, %w) {strides = [1, 1], pads = [0, 1, 0, 0], dilations = [1, 1], groups = 1, layout = "nhwc"};
  let %b = conv2d(%x, %w) {strides = [1, 1], pads = [0, 1, 0, 0], dilations = [1, 1], groups = 1, layout = "nhwc", skip_padding = true};
  let %c = packed_conv2d(%x, %p) {kernel = [1, 2], filters = 1, strides = [1, 1], pads = [0, 1, 0, 0], dilations = [1, 1], layout = "panel1"};
  let %d = packed_conv2d(%x, %p) {kernel = [1, 2], filters = 1, strides = [1, 1], pads = [0, 1, 0, 0], dilations = [1, 1], layout = "panel1", skip_padding = true};
  let %r = (%a, %b, %c, %d);
  %r
})");
  const std::vector<ir::TensorRef> r = Interpreter(m).run_tensors(
      "main", {ir::Tensor::of<float>(DType::kF32, {1, 1, 2, 1}, {3, 5}),
               ir::Tensor::of<float>(DType::kF32, {1, 2, 1, 1}, {HUGE_VALF, 2})});
  ASSERT_EQ(r.size(), 4u);
  for (size_t i = 0; i < r.size(); ++i) {
    if (i % 2 == 0) {
      EXPECT_TRUE(std::isnan(r[i]->value(0))) << i;
    } else {
      EXPECT_EQ(r[i]->value(0), 6) << i;
    }
    EXPECT_EQ(r[i]->value(1), HUGE_VAL) << i;
  }
}

TEST(Operators, PackedProductsEqualPlainOnes) {
  ir::Module m = ir::parse_module(R"(fn @main(%x: Tensor[(n, 3), f32], %w: Tensor[(3, 5), f32]) {
  let %p = pack(%w) {layout = "panel16"};
  let %y = packed_matmul(%x, %p) {n = 5, k = 3, layout = "panel16"};
  let %z = matmul(%x, %w);
  let %r = (%y, %z);
  %r
})");
  std::vector<float> x = {1, 2, 3, -1, 0.5, 4}, w;
  for (int i = 0; i < 15; ++i) w.push_back(static_cast<float>(i - 7));
  std::vector<ir::TensorRef> out =
      Interpreter(m).run_tensors("main", {ir::Tensor::of<float>(DType::kF32, {2, 3}, x),
                                          ir::Tensor::of<float>(DType::kF32, {3, 5}, w)});
  ASSERT_EQ(out[0]->shape, out[1]->shape);
  for (int64_t i = 0; i < 10; ++i) EXPECT_EQ(out[0]->value(i), out[1]->value(i));
}

// Packed weights of bytes are those of the plain convolution, in groups of channels.
TEST(Operators, PackedConvolutionsOfBytesAreTheConvolution) {
  ir::Module m = ir::parse_module(
      R"(fn @main(%x: Tensor[(n, 3, 2, 8), u8], %w: Tensor[(1, 2, 4, 6), i8], %b: Tensor[(6), i32]) {
  let %f = reshape(%w) {shape = (8, 2, 3)};
  let %z = pad(%f) {before = (0, 0, 0), after = (0, 0, 1), value = 0.0};
  let %m = reshape(%z) {shape = (8, 8)};
  let %p = pack(%m) {layout = "panel4x4", transpose = false};
  let %y = packed_conv2d(%x, %p, %b) {kernel = [1, 2], filters = 6, groups = 2, strides = [1, 1], pads = [0, 1, 0, 1], dilations = [1, 1], layout = "panel4x4", out = i32};
  let %v = conv2d(%x, %w, %b) {strides = [1, 1], pads = [0, 1, 0, 1], dilations = [1, 1], groups = 2, layout = "nhwc", out = i32};
  let %r = (%y, %v);
  %r
})");
  std::vector<uint8_t> x;
  std::vector<int8_t> w;
  for (int i = 0; i < 96; ++i) x.push_back(static_cast<uint8_t>(i * 37));
  for (int i = 0; i < 48; ++i) w.push_back(static_cast<int8_t>(i * 53));
  const std::vector<ir::TensorRef> out = Interpreter(m).run_tensors(
      "main", {ir::Tensor::of<uint8_t>(DType::kU8, {2, 3, 2, 8}, x),
               ir::Tensor::of<int8_t>(DType::kI8, {1, 2, 4, 6}, w),
               ir::Tensor::of<int32_t>(DType::kI32, {6}, {0, 1, 2, -3, 4, 100000})});
  ASSERT_EQ(out[0]->shape, (std::vector<int64_t>{2, 3, 3, 6}));
  ASSERT_EQ(out[0]->shape, out[1]->shape);
  EXPECT_EQ(out[1]->dtype, DType::kI32);
  for (int64_t i = 0; i < out[0]->elements(); ++i)
    EXPECT_EQ(out[0]->integer(i), out[1]->integer(i)) << i;
}

// Of narrow operands the sums are as exact as of f32: 1 + 2^-9, which is no bf16, stays.
TEST(Operators, NarrowProductsAddUpInTheirResultsType) {
  ir::Module m = ir::parse_module(R"(fn @main(%x: Tensor[(n, 3), bf16], %w: Tensor[(3, 5), bf16]) {
  let %p = pack(%w) {layout = "panel4x2"};
  let %y = packed_matmul(%x, %p) {n = 5, k = 3, layout = "panel4x2", out = f32};
  let %z = matmul(%x, %w) {out = f32};
  let %a = cast(%x) {dtype = f32};
  let %b = cast(%w) {dtype = f32};
  let %v = matmul(%a, %b);
  let %r = (%y, %z, %v);
  %r
})");
  const auto bf16 = [](std::vector<int64_t> shape, const std::vector<float>& values) {
    std::vector<uint16_t> bits;
    for (float v : values) bits.push_back(bf16_from_f32(v));
    return ir::Tensor::of<uint16_t>(DType::kBF16, std::move(shape), bits);
  };
  std::vector<float> w;
  for (int i = 0; i < 15; ++i) w.push_back(static_cast<float>(i - 7));
  w[0] = 1, w[5] = 0x1p-9f, w[10] = 0;
  std::vector<ir::TensorRef> out =
      Interpreter(m).run_tensors("main", {bf16({2, 3}, {1, 1, 3, -1, 0.5, 4}), bf16({3, 5}, w)});
  ASSERT_EQ(out.size(), 3u);
  EXPECT_EQ(out[1]->value(0), 1 + 0x1p-9);
  for (const ir::TensorRef& t : out) {
    EXPECT_EQ(t->dtype, DType::kF32);
    ASSERT_EQ(t->shape, out[2]->shape);
    for (int64_t i = 0; i < 10; ++i) EXPECT_EQ(t->value(i), out[2]->value(i)) << i;
  }
}

// Kernels rely on what a product promises of its weights; here it is looked after.
TEST(Operators, PackedProductsKeepTheirPromise) {
  const auto run = [](int largest, int promised) {
    const std::string most = "{" + std::to_string(largest) + ", -64, 3, 4}";
    const std::string promise = ", out = i32, max_weight = " + std::to_string(promised) + "}";
    const ir::Module m = ir::parse_module(
        "fn @main() { let %p = pack(i8[2, 2]" + most + ") {layout = \"panel2x2\"};" +
        " let %y = packed_matmul(u8[1, 2]{255, 1}, %p) {n = 2, k = 2, layout = \"panel2x2\"" +
        promise + "; %y }");
    return Interpreter(m).run_tensors("main", {}).at(0)->integer(0);
  };
  EXPECT_EQ(run(64, 64), 255 * 64 + 3);
  EXPECT_EQ(run(-64, 64), -255 * 64 + 3);
  EXPECT_EQ(run(127, 128), 255 * 127 + 3);
  for (const int largest : {65, -65}) EXPECT_THROW(run(largest, 64), Error) << largest;
}

}  // namespace
}  // namespace nimble::reference
