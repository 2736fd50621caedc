// What GPUs' reductions and element-wise kernels have of their own: teams of every size, rows at
// the borders of warps and blocks, checks in front of barriers. The cases of the CPUs' templates
// run for them as well (template_harness.h).
#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "compiler/kernels/test/gpu_harness.h"
#include "compiler/kernels/test/operator_rows.h"

namespace nimble::kernels::testing {
namespace {

Case by_gpu(const std::string& text, const std::string& served_by, Sizes sizes,
            int configurations) {
  Case c;
  c.text = text;
  c.served_by = served_by;
  c.oracle = by_reference(text);
  c.sizes = std::move(sizes);
  c.tolerance = 1e-4;
  c.configurations = configurations;
  return c;
}

TEST(GpuReduce, RowsAtTheBordersOfTeams) {
  for (const char* call :
       {"softmax(%x) {axis = -1}", "layer_norm(%x, %g, %g) {epsilon = 1e-5, axis = -1}",
        "reduce_max(%x) {axes = [1], keepdims = false}", "argmax(%x) {axis = 1, keepdims = false}"})
    for (const int64_t k : {1, 2, 31, 32, 33, 64, 65, 127, 128, 192, 256, 257, 768, 1025}) {
      SCOPED_TRACE(fmt::format("{} of {}", call, k));
      check_on_gpu(by_gpu(
          fmt::format("fn @f(%x: Tensor[(n, {0}), f32], %g: Tensor[({0}), f32]) {{ let %y = {1}; "
                      "%y }}",
                      k, call),
          "gpu_reduce", {{1}, {5}, {0}}, 3));
      if (HasFatalFailure()) return;
    }
}

// Each team of each block, as far as it is valid.
TEST(GpuReduce, EveryTeam) {
  for (const char* text :
       {"fn @f(%x: Tensor[(n, 100), f32]) { let %y = softmax(%x) {axis = 1}; %y }",
        "fn @f(%x: Tensor[(100, n, 8), bf16]) { let %y = sum(%x) {axes = [0], keepdims = false}; "
        "%y }"}) {
    const Workload w = workload_of(text);
    const TargetInfo target = target_by_name("sm_90a");
    const Template* t = template_for(w, target);
    ASSERT_NE(t, nullptr);
    ASSERT_EQ(t->name(), "gpu_reduce");
    Case c = by_gpu(text, "gpu_reduce", {{3}}, 0);
    c.tolerance = 0.02;  // what bf16 keeps of a sum
    std::mt19937 random(5);
    int runs = 0;
    for (const int64_t team : {1, 2, 4, 8, 16, 32, 96, 128, 1024})
      for (const int64_t threads : {32, 96, 128, 1024}) {
        const Config config = {
            {"team", team}, {"threads", threads}, {"vector", int64_t{4}}, {"unroll", int64_t{2}}};
        if (!t->valid(w, config, target)) continue;
        SCOPED_TRACE(to_json(config));
        const Lowered lowered = t->lower(w, config, target, "k");
        ASSERT_EQ(kir::verify(lowered.functions[0]), "") << kir::print(lowered.functions[0]);
        check_size(c, w, lowered, {3}, 1, interpret, random);
        if (HasFatalFailure()) return;
        ++runs;
      }
    EXPECT_GE(runs, 12);
  }
}

// One index for a row: its check stands in front of the block's barriers.
constexpr const char* kEmbedding =
    "fn @f(%w: Tensor[(7, 300), f32], %i: Tensor[(n), i64], %g: Tensor[(300), f32]) "
    "{ let %e = gather(%w, %i) {axis = 0}; "
    "let %y = layer_norm(%e, %g, %g) {epsilon = 1e-5, axis = -1}; %y }";

TEST(GpuReduce, EmbeddingsAreNormalised) {
  Case c = by_gpu(kEmbedding, "gpu_reduce", {{1}, {6}, {0}}, 4);
  c.low = -7;
  c.high = 7;
  check_on_gpu(c);
  const Workload w = workload_of(kEmbedding);
  const TargetInfo target = target_by_name("sm_90a");
  const Template* t = template_for(w, target);
  EXPECT_GT(knob_int(t->default_config(w, target), "team"), kir::kWarpLanes);
}

// An index for each element: threads fail alone, so none waits for another.
TEST(GpuReduce, ChecksThatDifferLeaveEachThreadARow) {
  Case c = by_gpu(
      "fn @f(%w: Tensor[(7), f32], %i: Tensor[(n, 70), i64]) "
      "{ let %e = gather(%w, %i) {axis = 0}; let %y = sum(%e) {axes = [1], keepdims = false}; %y }",
      "gpu_reduce", {{1}, {40}, {0}}, 4);
  c.low = -7;
  c.high = 7;
  check_on_gpu(c);
}

TEST(GpuReduce, IndicesAreChecked) {
  const Workload w = workload_of(kEmbedding);
  const TargetInfo target = target_by_name("sm_90a");
  const Template* t = template_for(w, target);
  ASSERT_NE(t, nullptr);
  const Lowered lowered = t->lower(w, t->default_config(w, target), target, "k");
  for (const int64_t bad : {7, -8}) {
    ArgumentMemory table(7 * 300 * 4), index(3 * 8), factors(300 * 4), out(3 * 300 * 4);
    const int64_t indices[] = {1, bad, 2};
    std::memcpy(index.data(), indices, sizeof(indices));
    const std::vector<std::span<std::byte>> buffers = {table, index, factors, out};
    const std::vector<int64_t> symbols = {3};
    EXPECT_NE(interpret(lowered.functions[0], buffers, symbols, 1), 0) << bad;
  }
}

TEST(GpuReduce, NansStay) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const char* op : {"reduce_max", "reduce_min"})
    for (const size_t place : {size_t{0}, size_t{31}, size_t{32}, size_t{299}}) {
      SCOPED_TRACE(fmt::format("{} {}", op, place));
      const Workload w = workload_of(fmt::format(
          "fn @f(%x: Tensor[(n, 300), f32]) {{ let %y = {}(%x) {{axes = [1], keepdims = false}}; "
          "%y }}",
          op));
      const TargetInfo target = target_by_name("sm_90a");
      const Template* t = template_for(w, target);
      ASSERT_NE(t, nullptr);
      const Lowered lowered = t->lower(w, t->default_config(w, target), target, "k");
      std::vector<float> x(300, 1.f);
      x[place] = nan;
      ArgumentMemory in(300 * 4), out(4);
      std::memcpy(in.data(), x.data(), in.size());
      const std::vector<std::span<std::byte>> buffers = {in, out};
      const std::vector<int64_t> symbols = {1};
      ASSERT_EQ(interpret(lowered.functions[0], buffers, symbols, 1), 0);
      float y = 0;
      std::memcpy(&y, out.data(), 4);
      EXPECT_TRUE(std::isnan(y));
    }
}

// Narrow types in vectors of 16 bytes, at the borders of a block's share.
TEST(GpuElementwise, BordersOfBlocks) {
  for (const char* type : {"f32", "bf16", "i8", "i64"}) {
    SCOPED_TRACE(type);
    check_on_gpu(by_gpu(
        fmt::format("fn @f(%x: Tensor[(n), {0}], %y: Tensor[(n), {0}]) {{ let %z = add(%x, %y); "
                    "%z }}",
                    type),
        "gpu_elementwise", few({0, 1, 15, 16, 17, 255, 1023, 1024, 1025, 4097}), 8));
    if (HasFatalFailure()) return;
  }
}

// A row's length decides whether vectors fit; several results and parts share a block.
TEST(GpuElementwise, RowsThatBroadcast) {
  for (const char* k : {"1", "3", "8", "66", "768", "m"}) {
    SCOPED_TRACE(k);
    const bool symbolic = k == std::string("m");
    Sizes sizes;
    for (const int64_t n : {0, 1, 5, 37}) {
      sizes.push_back({n});
      if (symbolic) sizes.back().push_back(n + 30);
    }
    check_on_gpu(by_gpu(fmt::format("fn @f(%x: Tensor[(n, {0}), f32], %y: Tensor[({0}), f32]) {{ "
                                    "let %a = add(%x, %y); let %c = concat(%a, %x) {{axis = 1}}; "
                                    "let %r = (%a, %c); %r }}",
                                    k),
                        "gpu_elementwise", sizes, 6));
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace nimble::kernels::testing
