// Constants are folded as far as the limits go; what is beyond stays in the program and computes
// the same there.
#include <gtest/gtest.h>

#include <string>

#include "compiler/ir/text.h"
#include "compiler/kernels/target.h"
#include "compiler/passes/pipeline.h"
#include "compiler/passes/support/rewrite.h"
#include "compiler/reference/reference.h"

namespace nimble::passes {
namespace {

ir::Module folded(const std::string& text, PassContext& context) {
  PipelineOptions options;
  options.passes = {"infer", "fold-constants", "eliminate-dead", "infer"};
  options.verify = true;
  context.target = kernels::target_by_name("x86-64-v3");
  return run_pipeline(ir::parse_module(text), context, options);
}
ir::Module folded(const std::string& text, const FoldLimits& limits) {
  PassContext context;
  context.fold = limits;
  return folded(text, context);
}

int calls(const ir::Module& m, const std::string& op) {
  int n = 0;
  for (const auto& [name, f] : m.functions)
    visit_bindings(*f->body, [&](const ir::Binding& b) { n += b.value->op == op; });
  return n;
}

// 8 x 8 x 8 terms, 64 elements each of operands and result.
constexpr const char* kProduct = R"(
fn @main(%x: Tensor[(n), f32]) {
  let %a = full() {shape = (8, 8), dtype = f32, value = 0.5};
  let %b = full() {shape = (8, 8), dtype = f32, value = 3.0};
  let %c = matmul(%a, %b);
  let %d = add(%c, 1.0f32);
  let %r = (%x, %d);
  %r
})";
constexpr double kFlops = 2 * 8 * 8 * 8, kProductAll = kFlops + 3 * 64;

FoldLimits strict() {
  FoldLimits limits;
  limits.free = limits.per_constant_byte = 0;
  return limits;
}

TEST(FoldConstants, LeavesAProductThatIsTooDear) {
  FoldLimits limits = strict();
  limits.flops = kFlops;
  EXPECT_EQ(calls(folded(kProduct, limits), "matmul"), 0);
  limits.flops = kFlops - 1;
  const ir::Module left = folded(kProduct, limits);
  EXPECT_EQ(calls(left, "matmul"), 1);
  EXPECT_EQ(calls(left, "full"), 0);
  const std::vector<ir::TensorRef> results = reference::Interpreter(left).run_tensors(
      "main", {ir::Tensor::of<float>(DType::kF32, {1}, {2})});
  EXPECT_EQ(results.at(1)->value(63), 0.5 * 3 * 8 + 1);
}

TEST(FoldConstants, StopsWhereAllOperationsAreSpent) {
  FoldLimits limits = strict();
  // Two constants of 64 elements, the product, and a sum with a scalar.
  limits.operations = 2 * 64 + kProductAll + 64 + 1 + 64;
  EXPECT_EQ(calls(folded(kProduct, limits), "add"), 0);
  limits.operations -= 1;
  const ir::Module left = folded(kProduct, limits);
  EXPECT_EQ(calls(left, "matmul"), 0);
  EXPECT_EQ(calls(left, "add"), 1);
}

TEST(FoldConstants, SpendsTheSameOperationsOnceForAllPasses) {
  PassContext context;
  context.fold = strict();
  context.fold.operations = 2 * 64 + kProductAll + 2 * (64 + 1 + 64) - 1;
  EXPECT_EQ(calls(folded(kProduct, context), "add"), 0);
  EXPECT_EQ(calls(folded(kProduct, context), "matmul"), 1);
}

TEST(FoldConstants, AllowsMoreToAModelOfMoreConstants) {
  constexpr const char* kNegated = R"(
fn @main(%x: Tensor[(n), f32]) {
  let %a = neg(f32[4]{1, 2, 3, 4});
  let %r = (%x, %a);
  %r
})";
  FoldLimits limits = strict();
  limits.operations = 0;
  EXPECT_EQ(calls(folded(kNegated, limits), "neg"), 1);
  limits.per_constant_byte = 0.5;  // of 16 bytes: what is read and what is written
  EXPECT_EQ(calls(folded(kNegated, limits), "neg"), 0);
}

TEST(FoldConstants, FoldsSmallOnesAndPacksWhateverIsSpent) {
  FoldLimits limits;
  limits.operations = limits.per_constant_byte = 0;
  EXPECT_EQ(calls(folded(kProduct, limits), "matmul"), 0);
  limits.free = 0;
  const ir::Module packed = folded(R"(
fn @main(%x: Tensor[(n), f32]) {
  let %a = pack(f32[2, 2]{1, 2, 3, 4}) {layout = "panel16"};
  let %r = (%x, %a);
  %r
})",
                                   limits);
  EXPECT_EQ(calls(packed, "pack"), 0);
}

// No constant here is more than four times as large as what it is made of, and the product of the
// last two has 2^34 operations.
TEST(FoldConstants, TakesNoHoursForAFewLines) {
  std::string text =
      "fn @main(%x: Tensor[(n), f32]) {\n"
      "  let %a0 = full() {shape = (32, 32), dtype = f32, value = 0.5};\n";
  for (int i = 0; i < 6; ++i)
    text += "  let %a" + std::to_string(i + 1) + " = tile(%a" + std::to_string(i) +
            ") {repeats = (2, 2)};\n";
  text += "  let %c = matmul(%a6, %a6);\n  let %r = (%x, %c);\n  %r\n}\n";
  const ir::Module left = folded(text, FoldLimits{});
  EXPECT_EQ(calls(left, "tile"), 0);
  EXPECT_EQ(calls(left, "matmul"), 1);
}

}  // namespace
}  // namespace nimble::passes
