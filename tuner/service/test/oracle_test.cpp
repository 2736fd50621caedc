// Faults planted into a default schedule's result: all are found, without computing the whole.
#include "tuner/service/oracle.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "compiler/ir/infer.h"
#include "compiler/ir/text.h"
#include "compiler/passes/pipeline.h"
#include "vm/base/error.h"

namespace nimble::tuner {
namespace {

using Outputs = std::vector<std::vector<uint8_t>>;

const std::vector<int64_t> kTiles = {8, 32};

std::optional<Outputs> none() {
  return std::nullopt;
}

// A task, its point of the given size and what it should compute there.
struct Planted {
  std::vector<TuningTask> tasks;
  WorkloadPoint point;
  Expectation truth;
  int64_t columns = 0;

  Planted(const std::string& text, int64_t n) {
    const ir::Module m = ir::infer_types(ir::parse_module(text));
    const kernels::TargetInfo target = kernels::target_by_name("x86-64-v3");
    passes::PassContext context;
    context.target = target;
    PointOptions o;
    o.representative = n;
    tasks = tuning_tasks(passes::run_pipeline(m, context), model_points(m, o), target, nullptr);
    EXPECT_EQ(tasks.size(), 1u);
    point = task().points[task().representative()];
    truth = expected_result(task(), point, kTiles, none);
    columns = static_cast<int64_t>(truth.outputs[0].size() / 4) / n;
    // Large, so that the plain interpreter is not what computes it.
    EXPECT_GT(point.flops, 1 << 20);
  }
  const TuningTask& task() const { return tasks[0]; }
  // The check of a result with rows and columns of it replaced by those two further on.
  std::optional<std::string> fault(int64_t row, int64_t rows, int64_t column, int64_t count) const {
    Outputs out = truth.outputs;
    auto* y = reinterpret_cast<float*>(out[0].data());
    for (int64_t r = row; r < row + rows; ++r)
      for (int64_t c = column; c < column + count; ++c) y[r * columns + c] = 0.25f;
    return check(out);
  }
  std::optional<std::string> check(const Outputs& out) const {
    try {
      const Expectation e = expected_result(task(), point, kTiles, [&] { return out; });
      EXPECT_TRUE(e.sampled);
      EXPECT_EQ(e.outputs, out);
    } catch (const Error& e) {
      EXPECT_EQ(e.status(), Status::kInternal);
      return e.what();
    }
    return std::nullopt;
  }
};

const char kProduct[] = R"(
fn @main(%x: Tensor[(n, 96), f32], %w: Tensor[(96, 160), f32]) -> Tensor[(n, 160), f32] {
  let %y = matmul(%x, %w);
  %y
})";
const char kEpilogue[] = R"(
fn @main(%x: Tensor[(n, 96), f32], %w: Tensor[(96, 160), f32], %b: Tensor[(160), f32])
    -> Tensor[(n, 160), f32] {
  let %y = matmul(%x, %w);
  let %z = add(%y, %b);
  let %g = gelu(%z);
  %g
})";

TEST(Oracle, TakesTheDefaultsResultWhereItIsRight) {
  for (const char* text : {kProduct, kEpilogue}) {
    const Planted p(text, 149);
    EXPECT_EQ(p.check(p.truth.outputs), std::nullopt);
  }
}

TEST(Oracle, FindsASkippedTileAWrongTailAndAThreadsChunk) {
  for (const char* text : {kProduct, kEpilogue}) {
    SCOPED_TRACE(text);
    const Planted p(text, 149);
    EXPECT_TRUE(p.fault(64, 8, 64, 32)) << "a tile inside";
    EXPECT_TRUE(p.fault(144, 5, 0, 160)) << "the rows behind the last whole tile";
    EXPECT_TRUE(p.fault(148, 1, 0, 160)) << "the last row";
    EXPECT_TRUE(p.fault(0, 149, 159, 1)) << "the last column";
    EXPECT_TRUE(p.fault(75, 74, 0, 160)) << "the second of two threads' rows";
    EXPECT_TRUE(p.fault(0, 149, 80, 80)) << "the second of two threads' columns";
  }
}

TEST(Oracle, OfAProductFindsEachElement) {
  const Planted p(kProduct, 149);
  for (int64_t at : {0, 17, 5003, 149 * 160 - 1}) {
    Outputs out = p.truth.outputs;
    reinterpret_cast<float*>(out[0].data())[at] += 0.5f;
    EXPECT_TRUE(p.check(out)) << at;
  }
}

// What samples do not show, a candidate does: the reference decides at that very element.
TEST(Oracle, DecidesBetweenTheDefaultAndACandidate) {
  const Planted p(kEpilogue, 149);
  Expectation e = p.truth;
  e.sampled = true;
  EXPECT_TRUE(is_right(p.task(), p.point, e, 0, 5003));
  reinterpret_cast<float*>(e.outputs[0].data())[5003] += 0.5f;
  EXPECT_FALSE(is_right(p.task(), p.point, e, 0, 5003));
  EXPECT_TRUE(is_right(p.task(), p.point, e, 0, 5004));
}

// Sums of narrow operands are held to the bound of their own type.
TEST(Oracle, OfANarrowProductFindsWhatIsMissing) {
  const Planted p(R"(
fn @main(%x: Tensor[(n, 96), bf16], %w: Tensor[(4, 48, 48, 2), bf16]) -> Tensor[(n, 160), f32] {
  let %y = packed_matmul(%x, %w) {n = 160, k = 96, layout = "panel48x2", out = f32};
  %y
})",
                  149);
  EXPECT_EQ(p.check(p.truth.outputs), std::nullopt);
  EXPECT_LT(p.truth.tolerance, 1e-4);
  EXPECT_TRUE(p.fault(0, 149, 159, 1)) << "the last column";
  for (int64_t at : {0, 17, 5003, 149 * 160 - 1}) {
    Outputs out = p.truth.outputs;
    // As much as a product of two elements near the largest.
    reinterpret_cast<float*>(out[0].data())[at] += 0.5f;
    EXPECT_TRUE(p.check(out)) << at;
  }
}

// What a kernel may round, the reference does not.
TEST(Oracle, OfRoundedFactorsFindsWhatIsMissing) {
  const Planted p(R"(
fn @main(%x: Tensor[(n, 96), f32], %w: Tensor[(96, 160), f32]) -> Tensor[(n, 160), f32] {
  let %y = matmul(%x, %w) {tf32 = true};
  %y
})",
                  149);
  EXPECT_EQ(p.truth.tolerance, 0x1p-8);
  Outputs out = p.truth.outputs;
  auto* y = reinterpret_cast<float*>(out[0].data());
  for (size_t i = 0; i < out[0].size() / sizeof(float); ++i) y[i] *= 1 - 0x1p-11F;
  EXPECT_EQ(p.check(out), std::nullopt);
  EXPECT_TRUE(p.fault(0, 149, 159, 1)) << "the last column";
  EXPECT_TRUE(p.fault(64, 8, 64, 32)) << "a tile inside";
}

// Of weights in blocks, by samples: rows that are rounded make no product that is linear in them.
TEST(Oracle, OfWeightsInBlocksFindsWhatIsMissing) {
  for (const char* activations : {"", ", activations = i8"}) {
    const Planted p(fmt::format(R"(
fn @main(%x: Tensor[(n, 96), f32], %w: Tensor[(5, 12, 32, 4), u8], %s: Tensor[(5, 3, 32), f32])
    -> Tensor[(n, 160), f32] {{
  let %y = blockwise_matmul(%x, %w, %s) {{bits = 4, block = 32, k = 96, n = 160, layout = "panel32x8"{}}};
  %y
}})",
                                activations),
                    149);
    EXPECT_EQ(p.check(p.truth.outputs), std::nullopt);
    EXPECT_LT(p.truth.tolerance, 1e-4);
    EXPECT_TRUE(p.fault(144, 5, 0, 160)) << "the rows behind the last whole tile";
    EXPECT_TRUE(p.fault(0, 149, 159, 1)) << "the last column";
    EXPECT_TRUE(p.fault(0, 149, 80, 80)) << "the second of two threads' columns";
  }
}

// The same of rows that are rounded to bytes group by group.
TEST(Oracle, OfGroupsOfBytesFindsWhatIsMissing) {
  const Planted p(R"(
fn @main(%x: Tensor[(n, 192), f32], %w: Tensor[(5, 48, 32, 4), i8], %s: Tensor[(3, 160), f32], %t: Tensor[(3, 160), f32])
    -> Tensor[(n, 160), f32] {
  let %y = packed_groupwise_matmul(%x, %w, %s, %t) {group = 64, k = 192, n = 160, layout = "panel32x4"};
  %y
})",
                  149);
  EXPECT_EQ(p.check(p.truth.outputs), std::nullopt);
  EXPECT_TRUE(p.fault(144, 5, 0, 160)) << "the rows behind the last whole tile";
  EXPECT_TRUE(p.fault(0, 149, 159, 1)) << "the last column";
  EXPECT_TRUE(p.fault(0, 149, 80, 80)) << "the second of two threads' columns";
}

TEST(Oracle, ADefaultThatFailsLeavesItToTheReference) {
  const Planted p(kProduct, 149);
  EXPECT_FALSE(p.truth.sampled);
  EXPECT_FALSE(p.truth.outputs[0].empty());
}

}  // namespace
}  // namespace nimble::tuner
