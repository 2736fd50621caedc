// Parts against the whole: the same reference functions on smaller tensors give the same bits.
#include "compiler/reference/region.h"

#include <gtest/gtest.h>

#include <random>

#include "compiler/ir/infer.h"
#include "compiler/ir/text.h"

namespace nimble::reference {
namespace {

ir::TensorRef random_tensor(const ir::Type& t, std::mt19937_64& random) {
  Array a = Array::make(t->dtype, {});
  for (const ir::Dim& d : t->dims) a.shape.push_back(*d.as_constant());
  const auto n = static_cast<size_t>(elements(a.shape));
  std::uniform_real_distribution<double> real(-1, 1);
  if (a.floating()) {
    a.f.resize(n);
    for (double& v : a.f) v = real(random);
  } else {
    a.i.resize(n);
    for (int64_t& v : a.i) v = static_cast<int64_t>(random() % 3);
  }
  return a.tensor();
}

// `%r` is the function's result.
void compare_parts(const std::string& text) {
  SCOPED_TRACE(text);
  const ir::Module m = ir::infer_types(ir::parse_module(text));
  const ir::FunctionRef f = m.find("main");
  std::mt19937_64 random(7);
  std::vector<ir::TensorRef> arguments;
  for (const ir::VarRef& p : f->parameters) arguments.push_back(random_tensor(p->type, random));
  const std::vector<ir::TensorRef> whole = Interpreter(m).run_tensors("main", arguments);
  for (int trial = 0; trial < 60; ++trial) {
    RegionEvaluator parts(f, arguments);
    for (size_t k = 0; k < whole.size(); ++k) {
      const Shape& s = whole[k]->shape;
      Region r = Region::whole(s);
      for (size_t axis = 0; axis < s.size(); ++axis) {
        r.from[axis] = static_cast<int64_t>(random() % static_cast<uint64_t>(s[axis]));
        const auto left = static_cast<uint64_t>(s[axis] - r.from[axis]);
        r.extent[axis] = trial < 30 ? 1 : 1 + static_cast<int64_t>(random() % left);
      }
      const ir::TensorRef got = parts.evaluate(k, r);
      ASSERT_EQ(got->shape, r.extent);
      const Shape strides = strides_of(s);
      for_each(r.extent, [&](const Shape& at, int64_t flat) {
        int64_t from = 0;
        for (size_t axis = 0; axis < at.size(); ++axis)
          from += (r.from[axis] + at[axis]) * strides[axis];
        ASSERT_EQ(got->value(flat), whole[k]->value(from)) << "result " << k << " at " << from;
      });
    }
  }
}

TEST(Regions, AreBitwisePartsOfTheWhole) {
  for (
      const char* body : {
          // Convolutions: padding on every side, strides, dilation, groups, bias.
          R"((%x: Tensor[(2, 6, 9, 11), f32], %w: Tensor[(8, 6, 3, 3), f32], %b: Tensor[(8), f32]) {
  let %r = conv2d(%x, %w, %b) {strides = [2, 1], pads = [1, 2, 0, 1], dilations = [1, 2], groups = 1};)",
          R"((%x: Tensor[(1, 6, 7, 7), f32], %w: Tensor[(12, 2, 3, 3), f32]) {
  let %c = conv2d(%x, %w) {strides = [1, 1], pads = [1, 1, 1, 1], dilations = [1, 1], groups = 3};
  let %r = relu(%c);)",
          R"((%x: Tensor[(1, 4, 9, 9), f32]) {
  let %p = max_pool2d(%x) {kernel = [3, 3], strides = [2, 2], pads = [1, 1, 1, 1], dilations = [1, 1], ceil_mode = true};
  let %q = avg_pool2d(%x) {kernel = [2, 3], strides = [2, 2], pads = [1, 1, 0, 1], dilations = [1, 1], ceil_mode = true, count_include_pad = false};
  let %r = (%p, %q);)",
          R"((%x: Tensor[(1, 4, 9, 9), f32]) {
  let %r = avg_pool2d(%x) {kernel = [2, 3], strides = [2, 2], pads = [1, 1, 0, 1], dilations = [1, 1], ceil_mode = true, count_include_pad = true};)",
          // The same with channels last.
          R"((%x: Tensor[(2, 9, 11, 6), f32], %w: Tensor[(3, 3, 6, 8), f32], %b: Tensor[(8), f32]) {
  let %r = conv2d(%x, %w, %b) {strides = [2, 1], pads = [1, 2, 0, 1], dilations = [1, 2], groups = 1, layout = "nhwc"};)",
          R"((%x: Tensor[(1, 7, 7, 6), f32], %w: Tensor[(3, 3, 2, 12), f32]) {
  let %c = conv2d(%x, %w) {strides = [1, 1], pads = [1, 1, 1, 1], dilations = [1, 1], groups = 3, layout = "nhwc"};
  let %r = relu(%c);)",
          R"((%x: Tensor[(1, 9, 9, 4), f32]) {
  let %p = max_pool2d(%x) {kernel = [3, 3], strides = [2, 2], pads = [1, 1, 1, 1], dilations = [1, 1], ceil_mode = true, layout = "nhwc"};
  let %q = avg_pool2d(%x) {kernel = [2, 3], strides = [2, 2], pads = [1, 1, 0, 1], dilations = [1, 1], ceil_mode = true, count_include_pad = false, layout = "nhwc"};
  let %r = (%p, %q);)",
          R"((%x: Tensor[(2, 9, 11, 3), f32], %w: Tensor[(3, 18, 4), f32], %b: Tensor[(10), f32]) {
  let %r = packed_conv2d(%x, %w, %b) {kernel = [3, 2], filters = 10, strides = [2, 1], pads = [1, 2, 0, 1], dilations = [1, 2], layout = "panel4"};)",
          R"((%x: Tensor[(1, 7, 9, 6), f32], %w: Tensor[(4, 6, 4), f32], %b: Tensor[(10), f32]) {
  let %r = packed_conv2d(%x, %w, %b) {kernel = [1, 2], filters = 10, groups = 2, strides = [1, 1], pads = [0, 1, 0, 1], dilations = [1, 1], layout = "panel4"};)",
          R"((%x: Tensor[(1, 3, 7, 9), f32], %w: Tensor[(3, 6, 4), f32], %b: Tensor[(10), f32]) {
  let %r = packed_conv2d(%x, %w, %b) {kernel = [1, 2], filters = 10, strides = [1, 1], pads = [0, 1, 0, 1], dilations = [1, 1], layout = "panel4", image_layout = "nchw"};)",
          R"((%x: Tensor[(2, 9, 11, 3), f32], %w: Tensor[(3, 36, 3, 4), f32], %b: Tensor[(10), f32]) {
  let %r = packed_winograd(%x, %w, %b) {tile = 4, filters = 10, pads = [1, 2, 0, 1], layout = "panel4"};)",
          R"((%x: Tensor[(1, 4, 6, 5), f32], %w: Tensor[(1, 16, 5, 8), f32]) {
  let %c = packed_winograd(%x, %w) {tile = 2, filters = 8, pads = [0, 1, 3, 2], layout = "panel8"};
  let %r = relu(%c);)",
          // Products, with what stands before and after them.
          R"((%x: Tensor[(3, 7, 5), f32], %w: Tensor[(5, 9), f32], %b: Tensor[(9), f32]) {
  let %n = neg(%x);
  let %p = matmul(%n, %w);
  let %a = add(%p, %b);
  let %r = gelu(%a);)",
          R"((%x: Tensor[(2, 1, 5, 7), f32], %w: Tensor[(3, 9, 5), f32]) {
  let %r = matmul(%x, %w) {transpose_a = true, transpose_b = true};)",
          R"((%x: Tensor[(7), f32], %w: Tensor[(7, 9), f32]) {
  let %r = matmul(%x, %w);)",
          R"((%x: Tensor[(6, 5), f32], %w: Tensor[(3, 5, 4), f32], %b: Tensor[(10), f32]) {
  let %p = packed_matmul(%x, %w) {n = 10, k = 5, layout = "panel4"};
  let %a = add(%p, %b);
  let %h = reshape(%a) {shape = [2, 3, 2, 5]};
  let %r = transpose(%h) {axes = [0, 2, 1, 3]};)",
          R"((%x: Tensor[(6, 5), bf16], %w: Tensor[(3, 3, 4, 2), bf16], %b: Tensor[(10), f32]) {
  let %p = packed_matmul(%x, %w) {n = 10, k = 5, layout = "panel4x2", out = f32};
  let %a = add(%p, %b);
  let %r = cast(%a) {dtype = bf16};)",
          R"((%x: Tensor[(6, 20), f32], %w: Tensor[(10, 2, 8), u8], %s: Tensor[(10, 2), f32], %b: Tensor[(10), f32]) {
  let %p = blockwise_matmul(%x, %w, %s) {bits = 4, block = 16, k = 20, n = 10};
  let %r = add(%p, %b);)",
          R"((%x: Tensor[(6, 20), f32], %w: Tensor[(3, 5, 4, 4), u8], %s: Tensor[(3, 2, 4), f32], %z: Tensor[(3, 2, 4), u8]) {
  let %p = blockwise_matmul(%x, %w, %s, %z) {bits = 8, block = 16, k = 20, n = 10, layout = "panel4x4", activations = i8};
  let %r = relu(%p);)",
          R"((%x: Tensor[(6, 128), f32], %w: Tensor[(3, 32, 4, 4), i8], %s: Tensor[(2, 12), f32], %t: Tensor[(2, 12), f32]) {
  let %p = packed_groupwise_matmul(%x, %w, %s, %t) {group = 64, k = 128, n = 10, layout = "panel4x4"};
  let %r = relu(%p);)",
          R"((%q: Tensor[(2, 5, 8), f32], %k: Tensor[(2, 7, 8), f32], %m: Tensor[(2, 1, 5, 7), f32]) {
  let %r = attention(%q, %k, %k, %m) {heads = 2, scale = 0.5};)",
          // Rows and axes.
          R"((%x: Tensor[(4, 6, 5), f32], %g: Tensor[(5), f32], %b: Tensor[(5), f32]) {
  let %n = layer_norm(%x, %g, %b) {epsilon = 1e-5, axis = -1};
  let %s = softmax(%n) {axis = 1};
  let %t = sum(%s) {axes = [0], keepdims = false};
  let %u = reduce_max(%s) {axes = [1], keepdims = true};
  let %v = argmax(%s) {axis = 2, keepdims = false};
  let %c = cumsum(%s) {axis = 0};
  let %r = (%t, %u, %v, %c);)",
          // Elements that move.
          R"((%x: Tensor[(4, 6), f32], %i: Tensor[(5), i64], %y: Tensor[(4, 3), f32]) {
  let %e = exp(%x);
  let %g = gather(%e, %i) {axis = 1};
  let %c = concat(%g, %y) {axis = 1};
  let %p = pad(%c) {before = [1, 0], after = [0, 2], value = 3.5};
  let %s = slice(%p) {axes = [0, 1], starts = [4, 1], ends = [0, 9], steps = [-1, 3]};
  let %r = (%g, %c, %p, %s);)",
          R"((%x: Tensor[(4, 6), f32], %i: Tensor[(4, 2), i64]) {
  let %m = matmul(%x, %x) {transpose_b = true};
  let %g = gather_elements(%m, %i) {axis = 1};
  let %t = tile(%g) {repeats = [2, 3]};
  let %u = unsqueeze(%t) {axes = [1]};
  let %r = expand(%u) {shape = [8, 2, 6]};)",
          R"((%x: Tensor[(2, 6, 3, 4), f32], %s: Tensor[(6), f32]) {
  let %r = batch_norm(%x, %s, %s, %s, %s) {epsilon = 1.0};)",
          // Recurrent cells.
          R"((%x: Tensor[(3, 12), f32], %h: Tensor[(3, 3), f32], %w: Tensor[(3, 12), f32]) {
  let %r = lstm_cell(%x, %h, %h, %w);)",
          R"((%x: Tensor[(3, 9), f32], %h: Tensor[(3, 3), f32], %w: Tensor[(3, 9), f32], %b: Tensor[(9), f32]) {
  let %r = gru_cell(%x, %h, %w, %b) {linear_before_reset = true};)",
          R"((%x: Tensor[(3, 9), f32], %h: Tensor[(3, 3), f32], %w: Tensor[(2, 3, 3, 2), f32], %b: Tensor[(9), f32], %s: Tensor[(), i64]) {
  let %r = packed_gru_cell(%x, %h, %w, %b, %s) {linear_before_reset = false, hidden = 3, layout = "gate2"};)",
      })
    compare_parts(fmt::format("fn @main{}\n  %r\n}}", body));
}

TEST(Regions, OfAProductCostTheirOwnSums) {
  const ir::Module m = ir::infer_types(ir::parse_module(R"(
fn @main(%x: Tensor[(256, 64), f32], %w: Tensor[(8, 64, 32), f32]) {
  let %p = packed_matmul(%x, %w) {n = 256, k = 64, layout = "panel32"};
  let %r = relu(%p);
  %r
})"));
  std::mt19937_64 random(1);
  const ir::FunctionRef f = m.find("main");
  RegionEvaluator parts(f, {random_tensor(f->parameters[0]->type, random),
                            random_tensor(f->parameters[1]->type, random)});
  parts.evaluate(0, {{200, 100}, {1, 1}});
  // A row of x, a panel of 32 columns, and its 32 sums of 64.
  EXPECT_LT(parts.work(), 4 * 64 * 32);
}

// 64 thousand million elements of what lies between: nobody holds them, or counts them.
TEST(Regions, OfMovedElementsCostWhatIsAskedFor) {
  const ir::Module m = ir::infer_types(ir::parse_module(R"(
fn @main(%x: Tensor[(4, 1, 1, 1), f32], %i: Tensor[(1000, 2), i64]) {
  let %e = expand(%x) {shape = (4, 2000, 2000, 2000)};
  let %p = pad(%e) {before = (0, 1, 1, 1), after = (0, 1, 1, 1), value = 7.0};
  let %g = gather(%p, %i) {axis = 1};
  let %h = gather(%g, %i) {axis = 3};
  let %t = transpose(%h) {axes = [0, 2, 1, 4, 3, 5]};
  let %s = slice(%t) {axes = [5], starts = (1), ends = (2001), steps = (2)};
  let %u = unsqueeze(%s) {axes = [0]};
  let %r = relu(%u);
  %r
})"));
  std::vector<int64_t> windows(2000);
  for (size_t k = 0; k < windows.size(); ++k)
    windows[k] = static_cast<int64_t>(2 * (k / 2) + k % 2);
  const ir::FunctionRef f = m.find("main");
  RegionEvaluator parts(f, {ir::Tensor::of<float>(DType::kF32, {4, 1, 1, 1}, {1, 2, 3, 4}),
                            ir::Tensor::of<int64_t>(DType::kI64, {1000, 2}, windows)});
  const Shape last = [&] {
    Shape s;
    for (const ir::Dim& d : f->result_type->dims) s.push_back(*d.as_constant() - 1);
    return s;
  }();
  Shape first(last.size(), 0), one(last.size(), 1);
  EXPECT_EQ(parts.evaluate(0, {first, one})->value(0), 7);  // padding
  EXPECT_EQ(parts.evaluate(0, {last, one})->value(0), 4);
  EXPECT_LT(parts.work(), 20 * 2000);  // the indices are read whole
}

TEST(Regions, ErrorsOfTheirInputsAreTheOperators) {
  const ir::Module m = ir::infer_types(ir::parse_module(R"(
fn @main(%x: Tensor[(4, 2), f32], %i: Tensor[(3), i64]) {
  let %r = gather(%x, %i) {axis = 0};
  %r
})"));
  const auto x = ir::Tensor::of<float>(DType::kF32, {4, 2}, std::vector<float>(8, 1));
  const auto i = ir::Tensor::of<int64_t>(DType::kI64, {3}, {0, 9, 1});
  RegionEvaluator parts(m.find("main"), {x, i});
  EXPECT_EQ(parts.evaluate(0, {{0, 0}, {1, 1}})->value(0), 1);  // of what is computed only
  EXPECT_THROW(parts.evaluate(0, {{1, 0}, {1, 1}}), Error);
}

}  // namespace
}  // namespace nimble::reference
