// Loops over recurrent cells compute the same as one operator: for no steps, one and several, with
// and without what they collect, on either side.
#include <gtest/gtest.h>

#include <cmath>

#include "compiler/ir/infer.h"
#include "compiler/ir/text.h"
#include "compiler/passes/pipeline.h"
#include "compiler/reference/reference.h"
#include "vm/base/file.h"

namespace nimble::passes {
namespace {

// A loop over a cell of 3 hidden units and its call; `first`, `more`, `next` say which rows.
struct LoopText {
  std::string first = "0i64", more = "less(%i, %n)", next = "add(%i, 1i64)";
  std::string bound = "n";  // of the rows
};

std::string lstm(const LoopText& l) {
  return R"(fn @main(%x: Tensor[(m, b, 12), f32], %h: Tensor[(b, 3), f32], %c: Tensor[(b, 3), f32],
         %w: Tensor[(3, 12), f32]) {
  let %n = size() {value = m};
  let %last = sub(%n, 1i64);
  let %y0 = full() {shape = (m, b, 3), dtype = f32, value = 7.0};
  let %r = @loop()" +
         l.first + R"(, %x, %w, %h, %y0, %c);
  %r
}
fn @loop(%i: Tensor[(), i64], %x: Tensor[(n, b, 12), f32], %w: Tensor[(3, 12), f32],
         %h: Tensor[(b, 3), f32], %y: Tensor[(n, b, 3), f32], %c: Tensor[(b, 3), f32])
    -> (Tensor[(b, 3), f32], Tensor[(n, b, 3), f32]) {
  let %n = size() {value = )" +
         l.bound + R"(};
  let %more = )" +
         l.more + R"(;
  let %result = if (%more) {
    let %row = take_row(%x, %i);
    let %hc = lstm_cell(%row, %h, %c, %w);
    let %h1 = %hc[0];
    let %c1 = %hc[1];
    let %next = )" +
         l.next + R"(;
    let %y1 = write_row(%y, %i, %h1);
    let %rest = @loop(%next, %x, %w, %h1, %y1, %c1);
    %rest
  } else {
    let %done = (%c, %y);
    %done
  };
  %result
})";
}

std::string gru(bool linear, const LoopText& l) {
  return R"(fn @main(%x: Tensor[(m, b, 9), f32], %h: Tensor[(b, 3), f32], %w: Tensor[(3, 9), f32],
         %k: Tensor[(9), f32]) {
  let %n = size() {value = m};
  let %last = sub(%n, 1i64);
  let %r = @loop()" +
         l.first + R"(, %x, %h, %w, %k);
  %r
}
fn @loop(%i: Tensor[(), i64], %x: Tensor[(n, b, 9), f32], %h: Tensor[(b, 3), f32],
         %w: Tensor[(3, 9), f32], %k: Tensor[(9), f32]) -> Tensor[(b, 3), f32] {
  let %n = size() {value = )" +
         l.bound + R"(};
  let %more = )" +
         l.more + R"(;
  let %result = if (%more) {
    let %row = take_row(%x, %i);
    let %h1 = gru_cell(%row, %h, %w, %k) {linear_before_reset = )" +
         (linear ? "true" : "false") + R"(};
    let %next = )" +
         l.next + R"(;
    let %rest = @loop(%next, %x, %h1, %w, %k);
    %rest
  } else {
    %h
  };
  %result
})";
}

const LoopText kForwards;
const LoopText kBackwards = {"%last", "greater_equal(%i, 0i64)", "sub(%i, 1i64)"};

int64_t joined(ir::Module* m, const char* gpu = "sm_90a") {
  PassContext context;
  context.target = kernels::target_by_name("x86-64-v3");
  if (gpu) context.gpu = kernels::target_by_name(gpu);
  PipelineOptions options;
  options.passes = {"infer", "join-steps", "eliminate-dead", "infer"};
  options.verify = true;
  *m = run_pipeline(std::move(*m), context, options);
  return context.statistics["join-steps.loops"];
}

std::vector<ir::TensorRef> run(const ir::Module& m, int64_t steps, int64_t batch) {
  std::vector<ir::TensorRef> inputs;
  for (const ir::VarRef& p : m.find("main")->parameters) {
    std::vector<int64_t> shape;
    int64_t count = 1;
    for (const ir::Dim& d : p->type->dims) {
      shape.push_back(d.as_constant().value_or(d.str() == "m" ? steps : batch));
      count *= shape.back();
    }
    std::vector<float> values;
    for (int64_t i = 0; i < count; ++i)
      values.push_back(
          static_cast<float>(std::sin(1.7 * static_cast<double>(i + 3 * shape.back()))));
    inputs.push_back(ir::Tensor::of(DType::kF32, shape, values));
  }
  return reference::Interpreter(m).run_tensors("main", inputs);
}

void expect_same(const std::string& text) {
  SCOPED_TRACE(text);
  const ir::Module plain = ir::infer_types(ir::parse_module(text));
  ir::Module m = plain;
  ASSERT_EQ(joined(&m), 1);
  EXPECT_EQ(m.find("loop"), nullptr);
  for (const int64_t steps : {0, 1, 4})
    for (const int64_t batch : {1, 2}) {
      const auto before = run(plain, steps, batch), after = run(m, steps, batch);
      ASSERT_EQ(before.size(), after.size());
      for (size_t r = 0; r < before.size(); ++r) {
        ASSERT_EQ(before[r]->shape, after[r]->shape);
        for (int64_t i = 0; i < before[r]->elements(); ++i)
          ASSERT_NEAR(before[r]->value(i), after[r]->value(i), 1e-6) << r << " " << i;
      }
    }
}

int64_t joined_of(const std::string& text, const char* gpu = "sm_90a") {
  ir::Module m = ir::infer_types(ir::parse_module(text));
  return joined(&m, gpu);
}

TEST(JoinSteps, OfAnLstmComputesTheSame) {
  expect_same(lstm(kForwards));
  expect_same(lstm(kBackwards));
}

TEST(JoinSteps, OfAGruComputesTheSame) {
  expect_same(gru(true, kForwards));
  expect_same(gru(true, kBackwards));
}

TEST(JoinSteps, LeavesWhatNoTemplateTakesAndAllForCpus) {
  EXPECT_EQ(joined_of(gru(false, kForwards)), 0);
  EXPECT_EQ(joined_of(lstm(kForwards), nullptr), 0);
  EXPECT_EQ(joined_of(lstm(kForwards), "compute_80"), 1);
}

TEST(JoinSteps, LeavesLoopsOverOtherRows) {
  LoopText other = kForwards;
  other.first = "1i64";
  EXPECT_EQ(joined_of(lstm(other)), 0);
  other = kForwards;
  other.bound = "n - 1";
  EXPECT_EQ(joined_of(lstm(other)), 0);
  other = kForwards;
  other.next = "add(%i, 2i64)";
  EXPECT_EQ(joined_of(lstm(other)), 0);
  other = kBackwards;
  other.first = "%n";
  EXPECT_EQ(joined_of(lstm(other)), 0);
  other = kBackwards;
  other.more = "greater_equal(%i, 1i64)";
  EXPECT_EQ(joined_of(lstm(other)), 0);
}

// What a user writes by hand goes the whole way: its cell is recognised, the product of its rows
// hoisted, and then the loop is one kernel.
TEST(JoinSteps, OfALoopThatAUserWrote) {
  PassContext context;
  context.target = kernels::target_by_name("x86-64-v3");
  context.gpu = kernels::target_by_name("sm_90a");
  PipelineOptions options;
  options.verify = true;
  options.passes = default_pipeline();
  run_pipeline(ir::infer_types(ir::parse_module(read_text_file(
                   NIMBLE_SOURCE_DIR "/compiler/driver/test/programs/loop/lstm.nir"))),
               context, options);
  EXPECT_EQ(context.statistics["recognise-cells.lstm"], 1);
  EXPECT_EQ(context.statistics["join-steps.loops"], 1);
}

}  // namespace
}  // namespace nimble::passes
