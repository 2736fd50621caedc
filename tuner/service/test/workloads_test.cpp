// From a model's shapes to those of its workloads.
#include "tuner/service/workloads.h"

#include <gmock/gmock.h>

#include <algorithm>

#include "compiler/ir/infer.h"
#include "compiler/ir/text.h"
#include "compiler/passes/pipeline.h"
#include "tuner/service/oracle.h"
#include "vm/base/error.h"

namespace nimble::tuner {
namespace {

kernels::TargetInfo target() {
  return kernels::target_by_name("x86-64-v3");
}
ir::Module typed(const std::string& text) {
  return ir::infer_types(ir::parse_module(text));
}
ir::Module lowered(const ir::Module& m) {
  passes::PassContext context;
  context.target = target();
  return passes::run_pipeline(m, context);
}

const char kBatched[] = R"(
fn @main(%x: Tensor[(b, n, 16), f32], %ids: Tensor[(b, n), i64], %t: Tensor[(50, 16), f32])
    -> Tensor[(b, n, 16), f32] {
  let %e = gather(%t, %ids) {axis = 0};
  let %s = add(%e, %x);
  let %y = softmax(%s) {axis = 2};
  %y
})";

TEST(Points, AWorkloadOfConstantShapesHasOne) {
  const ir::Module m =
      typed("fn @main(%x: Tensor[(4, 8), f32]) -> Tensor[(4, 8), f32] { let %y = exp(%x); %y }");
  std::vector<std::string> skipped;
  const auto tasks = tuning_tasks(lowered(m), model_points(m, {}), target(), &skipped);
  ASSERT_EQ(tasks.size(), 1u);
  ASSERT_EQ(tasks[0].points.size(), 1u);
  EXPECT_NEAR(tasks[0].points[0].weight, 1, 1e-9);
  EXPECT_TRUE(tasks[0].points[0].representative);
}

TEST(Points, MessagesNameThemByTheirSymbolsIfTheyHaveAny) {
  WorkloadPoint point;
  EXPECT_EQ(at_text(point), "");
  point.symbols = {17, 64};
  EXPECT_EQ(at_text(point), " at 17, 64");
}

// The inputs' shapes say nothing of the rows inside.
TEST(Points, WhatVariesInsideOfAModelHasAllSizes) {
  const ir::Module m = typed(R"(
fn @rows(%x: Tensor[(r, 8), f32]) -> Tensor[(?, 8), f32] {
  let %n = size() {value = r};
  let %more = less(%n, 100i64);
  let %y = if (%more) {
    let %e = exp(%x);
    let %two = concat(%x, %e) {axis = 0};
    let %z = @rows(%two);
    %z
  } else { %x };
  %y
}
fn @main(%x: Tensor[(1, 8), f32]) -> Tensor[(?, 8), f32] { let %y = @rows(%x); %y })");
  std::vector<std::string> skipped;
  bool varies = false;
  for (const TuningTask& t : tuning_tasks(lowered(m), model_points(m, {}), target(), &skipped)) {
    if (t.workload().contract.symbols.empty()) continue;
    EXPECT_GT(t.points.size(), 10u) << t.label;
    varies = true;
  }
  EXPECT_TRUE(varies);
}

TEST(Workloads, LeadingAxesAreMultipliedAndSymbolsFollow) {
  const ir::Module m = typed(kBatched);
  PointOptions o;
  o.fixed = {{"b", 3}};
  std::vector<std::string> skipped;
  const auto tasks = tuning_tasks(lowered(m), model_points(m, o), target(), &skipped);
  ASSERT_FALSE(tasks.empty());
  EXPECT_TRUE(skipped.empty());
  for (const TuningTask& t : tasks) {
    double sum = 0;
    std::set<std::vector<int64_t>> distinct;
    for (const WorkloadPoint& p : t.points) {
      EXPECT_TRUE(distinct.insert(p.symbols).second);
      sum += p.weight;
      EXPECT_GT(p.bytes, 0);
    }
    EXPECT_NEAR(sum, 1, 1e-9) << t.label;
    const WorkloadPoint& r = t.points[t.representative()];
    EXPECT_TRUE(r.representative);
    // b*n rows: 3 * 64.
    EXPECT_EQ(r.symbols[0], 192) << t.label;
  }
}

TEST(Workloads, TheWorkOfAHugeSizeIsBounded) {
  const ir::Module m = typed(R"(
fn @main(%x: Tensor[(n, 16), f32]) {
  let %y = softmax(%x) {axis = 1};
  %y
})");
  auto tasks = tuning_tasks(lowered(m), model_points(m, {}), target(), nullptr);
  ASSERT_FALSE(tasks.empty());
  for (TuningTask& t : tasks) {
    for (WorkloadPoint& p : t.points) std::ranges::fill(p.symbols, int64_t{1} << 61);
    complete(t);
    for (const WorkloadPoint& p : t.points) {
      EXPECT_GT(p.bytes, 1'000'000'000'000'000'000);
      EXPECT_GT(p.flops, 1'000'000'000'000'000'000);
    }
  }
}

// Of leading axes that are one to a kernel: 13 times the first of these sizes would wrap around to
// another that is positive.
TEST(Workloads, AProductOfSizesBeyond64BitsIsNone) {
  const ir::Module m = typed(R"(
fn @main(%x: Tensor[(b, n, m, 16), f32]) {
  let %y = softmax(%x) {axis = 3};
  %y
})");
  PointOptions o;
  o.fixed = {{"b", kLargestSize}, {"n", kLargestSize - 1}};
  const auto tasks = tuning_tasks(lowered(m), model_points(m, o), target(), nullptr);
  ASSERT_FALSE(tasks.empty());
  constexpr int64_t kRows = kLargestSize * (kLargestSize - 1);
  for (const TuningTask& t : tasks)
    for (const WorkloadPoint& p : t.points)
      EXPECT_THAT(p.symbols.at(0), testing::AnyOf(kRows, 2 * kRows));
}

// Windows of a sound: a size that has none is no size of what works on them.
TEST(Workloads, SizesWithoutAnythingToComputeAreLeftOut) {
  const ir::Module m = typed(R"(
fn @main(%x: Tensor[(n, 16), f32], %w: Tensor[(16, 8), f32]) {
  let %some = slice(%x) {axes = [0], starts = (40,), ends = (99999,), steps = [1]};
  let %y = matmul(%some, %w);
  %y
})");
  const auto tasks = tuning_tasks(lowered(m), model_points(m, {}), target(), nullptr);
  ASSERT_FALSE(tasks.empty());
  for (const TuningTask& t : tasks) {
    double sum = 0;
    for (const WorkloadPoint& p : t.points) {
      EXPECT_GT(p.flops, 0) << t.label;
      sum += p.weight;
    }
    EXPECT_NEAR(sum, 1, 1e-9);
  }
}

// A sound that is shorter than a window by more than a step: an extent would be below zero.
TEST(Workloads, SizesThatCannotOccurAreLeftOut) {
  const ir::Module m = typed(R"(
fn @main(%x: Tensor[(1, 8, 1, n), f32], %w: Tensor[(8, 8, 1, 10), f32]) {
  let %y = conv2d(%x, %w) {strides = [1, 5], pads = [0, 0, 0, 0], dilations = [1, 1], groups = 1};
  let %z = relu(%y);
  %z
})");
  const auto tasks = tuning_tasks(lowered(m), model_points(m, {}), target(), nullptr);
  bool seen = false;
  for (const TuningTask& t : tasks) {
    // Transposes into the order that kernels want take any size.
    if (t.label.find("conv2d") == std::string::npos) continue;
    seen = true;
    ASSERT_FALSE(t.points.empty()) << t.label;
    for (const WorkloadPoint& p : t.points) {
      EXPECT_GE(p.flops, 0) << t.label;
      EXPECT_GE(p.bytes, 0) << t.label;
      EXPECT_GE(p.symbols.at(0), 5) << t.label;
    }
  }
  EXPECT_TRUE(seen);
}

TEST(Workloads, AGruCellCountsItsProduct) {
  const ir::Module m = typed(R"(
fn @main(%g: Tensor[(1, 96), f32], %h: Tensor[(1, 32), f32], %w: Tensor[(32, 96), f32],
         %b: Tensor[(96), f32]) {
  let %y = gru_cell(%g, %h, %w, %b) {linear_before_reset = true};
  %y
})");
  const auto tasks = tuning_tasks(lowered(m), model_points(m, {}), target(), nullptr);
  ASSERT_EQ(tasks.size(), 1u);
  EXPECT_EQ(tasks[0].points.at(0).flops, 2 * 32 * 96);
  EXPECT_EQ(tasks[0].reduction, 32);
}

TEST(Workloads, AnLstmCellAndARunningProductCountWhatTheyDo) {
  const ir::Module cell = typed(R"(
fn @main(%g: Tensor[(1, 128), f32], %h: Tensor[(1, 32), f32], %c: Tensor[(1, 32), f32],
         %w: Tensor[(32, 128), f32]) {
  let %y = lstm_cell(%g, %h, %c, %w);
  %y
})");
  const auto cells = tuning_tasks(lowered(cell), model_points(cell, {}), target(), nullptr);
  ASSERT_EQ(cells.size(), 1u);
  EXPECT_EQ(cells[0].points.at(0).flops, 2 * 32 * 128);
  const ir::Module product = typed(
      "fn @main(%x: Tensor[(5, 40), f32]) -> Tensor[(5, 40), f32] {\n"
      "  let %y = cumprod(%x) {axis = 1};\n  %y\n}");
  const auto products =
      tuning_tasks(lowered(product), model_points(product, {}), target(), nullptr);
  ASSERT_EQ(products.size(), 1u);
  EXPECT_EQ(products[0].points.at(0).flops, 5 * 40);
  EXPECT_EQ(products[0].reduction, 40);
}

TEST(Oracle, ComputesWhatTheWorkloadSays) {
  const ir::Module m =
      typed("fn @main(%x: Tensor[(n, 4), f32]) -> Tensor[(n, 4), f32] { let %y = relu(%x); %y }");
  const auto tasks = tuning_tasks(lowered(m), model_points(m, {}), target(), nullptr);
  ASSERT_EQ(tasks.size(), 1u);
  const WorkloadPoint& p = tasks[0].points[3];
  const Expectation e = expected_result(tasks[0], p, {}, [] { return std::nullopt; });
  ASSERT_EQ(e.outputs.size(), 1u);
  // Read once, written once, four bytes an element.
  const auto count = static_cast<size_t>(p.bytes / 8);
  std::vector<uint8_t> x(count * 4);
  fill_tensor(tasks[0].fills[0], DType::kF32, data_seed(tasks[0], p), 0, x);
  ASSERT_EQ(e.outputs[0].size(), x.size());
  for (size_t i = 0; i < count; ++i)
    EXPECT_EQ(reinterpret_cast<const float*>(e.outputs[0].data())[i],
              std::max(0.0f, reinterpret_cast<const float*>(x.data())[i]));
}

}  // namespace
}  // namespace nimble::tuner
