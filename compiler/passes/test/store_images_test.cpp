// Images that are stored in bf16: maxima and what only moves elements give the bits that they gave,
// a residual is off by its rounding, and nothing is left that is read in both types.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "compiler/ir/text.h"
#include "compiler/kernels/target.h"
#include "compiler/passes/pipeline.h"
#include "compiler/passes/support/rewrite.h"
#include "compiler/reference/reference.h"

namespace nimble::passes {
namespace {

const std::vector<std::string> kAhead = {"infer", "set-precision"};

PassContext under(Precision policy, const std::string& target = "x86-64-v3") {
  PassContext context;
  context.target = kernels::target_by_name(target);
  context.precision = policy;
  return context;
}

ir::Module after(const ir::Module& m, const std::vector<std::string>& passes,
                 PassContext& context) {
  PipelineOptions options;
  options.passes = passes;
  options.verify = true;
  return run_pipeline(m, context, options);
}

// `let %y = conv2d(%x, …)` of single pixels, whose weights are small whole numbers.
std::string conv(const std::string& y, const std::string& x, int64_t in, int64_t out) {
  std::string weights;
  for (int64_t i = 0; i < in * out; ++i) weights += (i ? ", " : "") + std::to_string(i * 7 % 5 - 2);
  return fmt::format(
      "  let %{} = conv2d(%{}, f32[1, 1, {}, {}]{{{}}}) {{strides = [1, 1], pads = [0, 0, 0, 0], "
      "dilations = [1, 1], groups = 1, layout = \"nhwc\"}};\n",
      y, x, in, out, weights);
}

std::string main_of(const std::string& body) {
  return "fn @main(%x: Tensor[(1, 5, 6, 4), f32]) {\n" + body + "  %y\n}\n";
}

// A pooling, a fire module and a part of its channels.
std::string moving() {
  return main_of(
      conv("a", "x", 4, 4) +
      "  let %v = relu(%a);\n"
      "  let %m = max_pool2d(%v) {kernel = [3, 3], strides = [2, 2], pads = [1, 1, 1, 1], "
      "dilations = [1, 1], ceil_mode = true, layout = \"nhwc\"};\n" +
      conv("b", "m", 4, 4) + "  let %c = tanh(%b);\n" + conv("d", "m", 4, 2) +
      "  let %j = concat(%c, %d, %m) {axis = 3};\n"
      "  let %r = reshape(%j) {shape = (1, 3, 4, 5, 2)};\n"
      "  let %t = transpose(%r) {axes = [0, 1, 2, 4, 3]};\n"
      "  let %s = reshape(%t) {shape = (1, 3, 4, 10)};\n"
      "  let %p = slice(%s) {axes = [3], starts = (2), ends = (8), steps = (1)};\n" +
      conv("y", "p", 6, 2));
}

std::string residual() {
  return main_of(conv("a", "x", 4, 4) + "  let %v = tanh(%a);\n" + conv("c", "v", 4, 4) +
                 "  let %s = add(%c, %v);\n  let %y = mul(%s, %v);\n");
}

ir::TensorRef image(unsigned seed, bool odd_values) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> real(-2, 2);
  std::vector<float> values;
  for (int i = 0; i < 5 * 6 * 4; ++i) values.push_back(real(random));
  if (odd_values) {
    values[7] = std::numeric_limits<float>::infinity();
    values[50] = std::nanf("");
    values[90] = 3.3e38f;
  }
  return ir::Tensor::of(DType::kF32, {1, 5, 6, 4}, values);
}

ir::TensorRef evaluated(const ir::Module& m, const ir::TensorRef& x) {
  return reference::Interpreter(m).run_tensors("main", {x}).at(0);
}

int calls(const ir::Module& m, const std::string& op, DType type) {
  int n = 0;
  for (const auto& [name, f] : m.functions)
    visit_bindings(*f->body, [&](const ir::Binding& b) {
      n += b.value->op == op && b.var->type->kind == ir::TypeKind::kTensor &&
           b.var->type->dtype == type;
    });
  return n;
}

TEST(StoreImages, MaximaAndMovesGiveTheSameBits) {
  PassContext context = under(Precision::kBF16);
  const ir::Module before = after(ir::parse_module(moving()), kAhead, context);
  const ir::Module stored = after(before, {"store-images", "infer"}, context);
  for (const char* op : {"max_pool2d", "concat", "reshape", "transpose", "slice"}) {
    EXPECT_GT(calls(stored, op, DType::kBF16), 0) << op;
    EXPECT_EQ(calls(stored, op, DType::kF32), 0) << op;
  }
  // v, c and d have a cast of their own; m, j, r, t, s and p are made of those.
  EXPECT_EQ(context.statistics.at("store-images.values"), 9);
  for (const bool odd_values : {false, true}) {
    const ir::TensorRef x = image(3, odd_values);
    const ir::TensorRef want = evaluated(before, x), got = evaluated(stored, x);
    ASSERT_EQ(got->shape, want->shape);
    for (int64_t i = 0; i < want->elements(); ++i) {
      if (std::isnan(want->value(i)) && std::isnan(got->value(i))) continue;
      ASSERT_EQ(got->value(i), want->value(i)) << i;
    }
  }
}

TEST(StoreImages, AResidualIsOffByItsRounding) {
  PassContext context = under(Precision::kBF16);
  const ir::Module before = after(ir::parse_module(residual()), kAhead, context);
  const ir::Module stored = after(before, {"store-images", "infer"}, context);
  EXPECT_EQ(context.statistics.at("store-images.values"), 1);
  // One for each of the two operators that read it.
  EXPECT_EQ(calls(stored, "cast", DType::kF32), 2);
  const ir::TensorRef x = image(5, false);
  const ir::TensorRef want = evaluated(before, x), got = evaluated(stored, x);
  bool differs = false;
  for (int64_t i = 0; i < want->elements(); ++i) {
    // (c + v) v, |v| < 1, either v being off by 2^-9 of itself at most.
    const double most = 0x1p-8 * (1 + std::abs(want->value(i)));
    ASSERT_NEAR(got->value(i), want->value(i), most) << i;
    differs |= got->value(i) != want->value(i);
  }
  EXPECT_TRUE(differs);
}

TEST(StoreImages, ASecondTimeThereIsNothingToDo) {
  for (const std::string& text : {moving(), residual()}) {
    PassContext once = under(Precision::kBF16), twice = under(Precision::kBF16);
    const ir::Module stored =
        after(ir::parse_module(text), {"infer", "set-precision", "store-images", "infer"}, once);
    EXPECT_EQ(ir::print(after(stored, {"store-images"}, twice)), ir::print(stored));
    EXPECT_FALSE(twice.statistics.contains("store-images.values"));
  }
}

TEST(StoreImages, OtherPoliciesAndGpusKeepWhatThereIs) {
  const auto is_kept = [](PassContext context) {
    const ir::Module before = after(ir::parse_module(moving()), kAhead, context);
    return ir::print(after(before, {"store-images"}, context)) == ir::print(before);
  };
  EXPECT_FALSE(is_kept(under(Precision::kBF16)));
  for (const Precision policy : {Precision::kF32, Precision::kF16, Precision::kInt8})
    EXPECT_TRUE(is_kept(under(policy)));
  EXPECT_TRUE(is_kept(under(Precision::kF16, "x86-64-v4-amx-fp16")));
  PassContext gpu = under(Precision::kBF16);
  gpu.gpu = kernels::target_by_name("sm_90a");
  EXPECT_TRUE(is_kept(gpu));
}

// A block of a branch reads the outer one's image, and a branch gives one that is returned.
TEST(StoreImages, BranchesReadWhatIsStored) {
  const std::string text = "fn @main(%x: Tensor[(1, 5, 6, 4), f32], %q: Tensor[(), bool]) {\n" +
                           conv("a", "x", 4, 4) + "  let %v = relu(%a);\n  let %y = if (%q) {\n" +
                           conv("c", "v", 4, 4) + "  let %s = add(%c, %v);\n  %s\n  } else {\n" +
                           conv("d", "v", 4, 4) + "  %d\n  };\n  %y\n}\n";
  PassContext context = under(Precision::kBF16);
  const ir::Module before = after(ir::parse_module(text), kAhead, context);
  const ir::Module stored = after(before, {"store-images", "infer"}, context);
  EXPECT_EQ(context.statistics.at("store-images.values"), 1);
  EXPECT_EQ(calls(stored, "cast", DType::kF32), 1);
  // The branch's own result is what the caller gets: nothing but v is narrow.
  const std::string given = "fn @main(%x: Tensor[(1, 5, 6, 4), f32], %q: Tensor[(), bool]) {\n" +
                            conv("a", "x", 4, 4) + "  let %v = relu(%a);\n  let %y = if (%q) {\n" +
                            conv("c", "v", 4, 4) +
                            "  let %s = add(%c, %v);\n  %s\n  } else {\n  %v\n  };\n  %y\n}\n";
  PassContext again = under(Precision::kBF16);
  const ir::Module kept = after(ir::parse_module(given), kAhead, again);
  EXPECT_EQ(ir::print(after(kept, {"store-images"}, again)), ir::print(kept));
}

}  // namespace
}  // namespace nimble::passes
