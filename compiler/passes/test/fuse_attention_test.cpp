// Attention as PyTorch's exporters write it out becomes one operator and computes the same, rows
// without any unmasked key included.
#include <gtest/gtest.h>

#include <cmath>

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

}  // namespace
}  // namespace nimble::passes
