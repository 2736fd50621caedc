// Recurrent cells that no template of the GPU takes, here those of f64, are written out and compute
// the same; others stay, and so do all where there is no GPU.
#include <gtest/gtest.h>

#include <cmath>

#include "compiler/ir/infer.h"
#include "compiler/ir/text.h"
#include "compiler/passes/pipeline.h"
#include "compiler/reference/reference.h"

namespace nimble::passes {
namespace {

constexpr int64_t kHidden = 5;

std::string lstm(const char* type) {
  std::string text =
      R"(fn @main(%x: Tensor[(b, 20), T], %h: Tensor[(b, 5), T], %c: Tensor[(b, 5), T],
         %w: Tensor[(5, 20), T]) {
  let %r = lstm_cell(%x, %h, %c, %w);
  %r
})";
  for (size_t at; (at = text.find(", T]")) != std::string::npos;) text.replace(at + 2, 1, type);
  return text;
}

std::string gru(bool linear) {
  return std::string(R"(fn @main(%x: Tensor[(b, 15), f64], %h: Tensor[(b, 5), f64],
         %w: Tensor[(5, 15), f64], %k: Tensor[(15), f64]) {
  let %r = gru_cell(%x, %h, %w, %k) {linear_before_reset = )") +
         (linear ? "true" : "false") + "};\n  %r\n}";
}

// Runs the pass; how many cells it wrote out.
int64_t expanded(ir::Module* m, bool gpu) {
  PassContext context;
  context.target = kernels::target_by_name("x86-64-v3");
  if (gpu) context.gpu = kernels::target_by_name("sm_90a");
  PipelineOptions options;
  options.passes = {"infer", "expand-cells", "infer"};
  options.verify = true;
  *m = run_pipeline(std::move(*m), context, options);
  return context.statistics["expand-cells.expanded"];
}

std::vector<ir::TensorRef> run(const ir::Module& m, int64_t batch) {
  std::vector<ir::TensorRef> inputs;
  for (const ir::VarRef& p : m.find("main")->parameters) {
    std::vector<int64_t> shape;
    int64_t count = 1;
    for (const ir::Dim& d : p->type->dims) {
      shape.push_back(d.as_constant().value_or(batch));
      count *= shape.back();
    }
    std::vector<double> values;
    for (int64_t i = 0; i < count; ++i)
      values.push_back(std::sin(1.7 * static_cast<double>(i + 3 * shape.back())));
    inputs.push_back(ir::Tensor::of(DType::kF64, shape, values));
  }
  return reference::Interpreter(m).run_tensors("main", inputs);
}

void expect_same(const std::string& text, size_t results) {
  const ir::Module plain = ir::infer_types(ir::parse_module(text));
  ir::Module m = plain;
  ASSERT_EQ(expanded(&m, true), 1) << text;
  EXPECT_EQ(ir::print(m).find("_cell("), std::string::npos) << ir::print(m);
  for (const int64_t batch : {0, 1, 3}) {
    const auto before = run(plain, batch), after = run(m, batch);
    ASSERT_EQ(before.size(), results);
    ASSERT_EQ(after.size(), results);
    for (size_t r = 0; r < results; ++r) {
      ASSERT_EQ(before[r]->shape, after[r]->shape);
      EXPECT_EQ(after[r]->shape.back(), kHidden);
      for (int64_t i = 0; i < before[r]->elements(); ++i)
        ASSERT_NEAR(before[r]->value(i), after[r]->value(i), 1e-12) << r << " " << i;
    }
  }
}

TEST(ExpandCells, OfAnLstmComputesTheSame) {
  expect_same(lstm("f64"), 2);
}

TEST(ExpandCells, OfAGruComputesTheSame) {
  expect_same(gru(true), 1);
  expect_same(gru(false), 1);
}

TEST(ExpandCells, LeavesWhatATemplateTakesAndAllForCpus) {
  ir::Module taken = ir::infer_types(ir::parse_module(lstm("f32")));
  EXPECT_EQ(expanded(&taken, true), 0);
  ir::Module cpu = ir::infer_types(ir::parse_module(lstm("f64")));
  EXPECT_EQ(expanded(&cpu, false), 0);
}

}  // namespace
}  // namespace nimble::passes
