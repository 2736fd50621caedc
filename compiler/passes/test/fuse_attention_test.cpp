// Attention as PyTorch's exporters write it out becomes one operator and computes the same, rows
// without any unmasked key included, and parts of one product and windows with several masks.
#include <gtest/gtest.h>

#include <cmath>
#include <tuple>

#include "compiler/ir/infer.h"
#include "compiler/ir/text.h"
#include "compiler/passes/pipeline.h"
#include "compiler/reference/reference.h"

namespace nimble::passes {
namespace {

// Scores, mask and product of two heads of width 4. `k` is how the keys get transposed, `p` what
// happens to the probabilities.
ir::Module attention(const std::string& k, const std::string& p) {
  return ir::infer_types(ir::parse_module(R"(
fn @main(%q: Tensor[(b, n, 8), f32], %keep: Tensor[(b, n), bool]) -> Tensor[(b, n, 8), f32] {
  let %heads = reshape(%q) {shape = (b, n, 2, 4)};
  let %qh = transpose(%heads) {axes = [0, 2, 1, 3]};
  let %qs = mul(%qh, 0.5f32);
)" + k + R"(
  let %ks = mul(%kt, 0.7f32);
  let %wide = unsqueeze(%keep) {axes = [1, 2]};
  let %mask = where(%wide, 0f32, f32[1]{-inf});
  let %products = matmul(%qs, %ks);
  let %scores = add(%products, %mask);
  let %s = softmax(%scores) {axis = -1};
)" + p + R"(
  let %mixed = matmul(%p, %qh);
  let %back = transpose(%mixed) {axes = [0, 2, 1, 3]};
  let %y = reshape(%back) {shape = (b, n, 8)};
  %y
})"));
}

const char* const kDirect = "let %kt = transpose(%heads) {axes = [0, 2, 3, 1]};";
const char* const kTwice = "let %kt = transpose(%qh) {axes = [0, 1, 3, 2]};";
const char* const kMerged =
    "let %k3 = reshape(%qh) {shape = (2*b, n, 4)};\n"
    "let %k4 = transpose(%k3) {axes = [0, 2, 1]};\n"
    "let %kt = reshape(%k4) {shape = (b, 2, 4, n)};";
const char* const kPlain = "let %p = add(%s, 0f32);";
const char* const kGuarded = "let %bad = not_equal(%s, %s);\nlet %p = where(%bad, 0f32, %s);";

int64_t fused(ir::Module& m) {
  PassContext context;
  PipelineOptions options;
  options.passes = {"fuse-attention", "infer", "eliminate-dead"};
  options.verify = true;
  m = run_pipeline(m, context, options);
  return context.statistics["fuse-attention.found"];
}

ir::TensorRef run(const ir::Module& m) {
  constexpr int64_t b = 3, n = 5;
  std::vector<float> q(b * n * 8);
  for (size_t i = 0; i < q.size(); ++i) q[i] = std::sin(static_cast<float>(i) * 1.7f);
  std::vector<uint8_t> keep(b * n, 1);
  for (size_t i = 7; i < keep.size(); ++i) keep[i] = 0;  // row 1 in part, row 2 throughout
  return reference::Interpreter(m).run_tensors(
      "main",
      {ir::Tensor::of(DType::kF32, {b, n, 8}, q), ir::Tensor::of(DType::kBool, {b, n}, keep)})[0];
}

class Exported : public testing::TestWithParam<const char*> {};

TEST_P(Exported, GuardedAttentionIsOneOperatorAndComputesTheSame) {
  ir::Module m = attention(GetParam(), kGuarded);
  const ir::TensorRef before = run(m);
  ASSERT_EQ(fused(m), 1);
  EXPECT_EQ(ir::print(m).find("softmax"), std::string::npos);
  const ir::TensorRef after = run(m);
  for (int64_t i = 0; i < before->elements(); ++i)
    ASSERT_NEAR(before->value(i), after->value(i), 1e-6) << i;
  EXPECT_EQ(after->value(2 * 5 * 8), 0);  // nothing to attend to
}

INSTANTIATE_TEST_SUITE_P(Keys, Exported, testing::Values(kDirect, kTwice, kMerged));

TEST(FuseAttention, LeavesOtherFunctionsOfTheProbabilitiesAlone) {
  ir::Module m = attention(kDirect, kPlain);
  EXPECT_EQ(fused(m), 0);
}

// Scores of q, k and v that were taken out of %x: Tensor[(6, n, 24), f32] by `parts`, in two heads
// of width 4, and of what is added to them.
ir::Module parts_of_one(const std::string& parts, const std::string& masked) {
  return ir::infer_types(ir::parse_module(R"(
fn @main(%x: Tensor[(6, n, 24), f32], %bias: Tensor[(1, 2, n, n), f32],
         %mask: Tensor[(3, n, n), f32]) {
)" + parts + R"(
  let %kt = transpose(%k) {axes = [0, 1, 3, 2]};
  let %qs = mul(%q, 0.6f32);
  let %ks = mul(%kt, f32[1]{0.6});
  let %products = matmul(%qs, %ks);
)" + masked + R"(
  let %p = softmax(%scores) {axis = -1};
  let %mixed = matmul(%p, %v);
  let %back = transpose(%mixed) {axes = [0, 2, 1, 3]};
  let %y = reshape(%back) {shape = (6, n, 8)};
  %y
})"));
}

ir::TensorRef numbers(std::vector<int64_t> shape, float step) {
  int64_t count = 1;
  for (const int64_t extent : shape) count *= extent;
  std::vector<float> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) values[i] = std::sin(static_cast<float>(i) * step);
  return ir::Tensor::of(DType::kF32, std::move(shape), values);
}

ir::TensorRef run_parts(const ir::Module& m, int64_t n) {
  return reference::Interpreter(m).run_tensors(
      "main",
      {numbers({6, n, 24}, 1.7f), numbers({1, 2, n, n}, 0.9f), numbers({3, n, n}, 2.3f)})[0];
}

// (6, n, 3, 2, 4) permuted, then taken apart.
const char* const kSplit = R"(
  let %apart = reshape(%x) {shape = (6, n, 3, 2, 4)};
  let %first = transpose(%apart) {axes = [2, 0, 3, 1, 4]};
  let %q5 = slice(%first) {axes = [0], starts = (0), ends = (1)};
  let %q = squeeze(%q5) {axes = [0]};
  let %k5 = slice(%first) {axes = [0], starts = (1), ends = (2)};
  let %k = squeeze(%k5) {axes = [0]};
  let %v5 = slice(%first) {axes = [0], starts = (2), ends = (3)};
  let %v = squeeze(%v5) {axes = [0]};
)";
const char* const kIndexed = R"(
  let %apart = reshape(%x) {shape = (6, n, 3, 2, 4)};
  let %first = transpose(%apart) {axes = [2, 0, 3, 1, 4]};
  let %q = gather(%first, 0i64) {axis = 0};
  let %k = gather(%first, 1i64) {axis = 0};
  let %v = gather(%first, -1i64) {axis = 0};
)";
// Cut first, then each into heads; the queries are scaled once more while flat.
const char* const kCut = R"(
  let %qf = slice(%x) {axes = [2], starts = (0), ends = (8)};
  let %qh = mul(%qf, 0.5f32);
  let %q4 = reshape(%qh) {shape = (6, n, 2, 4)};
  let %q = transpose(%q4) {axes = [0, 2, 1, 3]};
  let %kf = slice(%x) {axes = [2], starts = (8), ends = (16)};
  let %k4 = reshape(%kf) {shape = (6, n, 2, 4)};
  let %k = transpose(%k4) {axes = [0, 2, 1, 3]};
  let %vf = slice(%x) {axes = [2], starts = (16), ends = (24)};
  let %v4 = reshape(%vf) {shape = (6, n, 2, 4)};
  let %v = transpose(%v4) {axes = [0, 2, 1, 3]};
)";
// The heads' columns do not lie next to each other: (6, n, 4, 2, 3).
const char* const kInterleaved = R"(
  let %apart = reshape(%x) {shape = (6, n, 4, 2, 3)};
  let %first = transpose(%apart) {axes = [4, 0, 3, 1, 2]};
  let %q = gather(%first, 0i64) {axis = 0};
  let %k = gather(%first, 1i64) {axis = 0};
  let %v = gather(%first, 2i64) {axis = 0};
)";
const char* const kScaled = "let %scores = mul(%products, 1.5f32);";
const char* const kNegative = "let %scores = div(%products, -0.7f32);";
const char* const kZero = "let %scores = mul(0f32, %products);";
const char* const kBias = "let %scores = add(%bias, %products);";
// Two images of three windows: the mask is one of windows.
const char* const kWindows = R"(
  let %biased = add(%products, %bias);
  let %wide = reshape(%biased) {shape = (2, 3, 2, n, n), allow_zero = true};
  let %of_windows = unsqueeze(%mask) {axes = [0, 2]};
  let %masked = add(%wide, %of_windows);
  let %scores = reshape(%masked) {shape = (6, 2, n, n), allow_zero = true};
)";

class Merged : public testing::TestWithParam<std::tuple<const char*, const char*>> {};

TEST_P(Merged, IsOneOperatorThatReadsSlicesAndComputesTheSame) {
  const auto [parts, masked] = GetParam();
  ir::Module m = parts_of_one(parts, masked);
  const ir::Module before = m;
  ASSERT_EQ(fused(m), 1);
  const std::string text = ir::print(m);
  EXPECT_EQ(text.find("softmax"), std::string::npos) << text;
  EXPECT_EQ(text.find("gather"), std::string::npos) << text;
  for (const int64_t n : {0, 1, 2, 7, 49}) {
    const ir::TensorRef wanted = run_parts(before, n), found = run_parts(m, n);
    ASSERT_EQ(wanted->shape, found->shape);
    for (int64_t i = 0; i < wanted->elements(); ++i)
      ASSERT_NEAR(wanted->value(i), found->value(i), 1e-5) << n << ", " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Forms, Merged,
                         testing::Combine(testing::Values(kSplit, kIndexed, kCut),
                                          testing::Values(kScaled, kNegative, kZero, kBias,
                                                          kWindows)));

// Infinities of the scores, some of them NaN, are not those of their factors' product.
TEST(FuseAttention, LeavesScoresDividedByZero) {
  ir::Module m = parts_of_one(kSplit, "let %scores = div(%products, 0f32);");
  EXPECT_EQ(fused(m), 0);
}

TEST(FuseAttention, LeavesHeadsWhoseColumnsLieApart) {
  ir::Module m = parts_of_one(kInterleaved, kBias);
  EXPECT_EQ(fused(m), 0);
}

}  // namespace
}  // namespace nimble::passes
