// Faults planted into a default schedule's result: all are found, without computing the whole.
#include "tuner/service/oracle.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <cstdint>

#include "compiler/ir/infer.h"
#include "compiler/ir/layout.h"
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

// Attention of 16 bits may round its weights to these, which the reference does not.
TEST(Oracle, OfRoundedWeightsFindsWhatIsMissing) {
  for (const char* type : {"bf16", "f16"}) {
    SCOPED_TRACE(type);
    const std::string operand = fmt::format("Tensor[(1, n, 64), {}]", type);
    const Planted p(fmt::format(R"(
fn @main(%q: {0}, %k: {0}, %v: {0}) -> Tensor[(1, n, 64), f32] {{
  let %y = attention(%q, %k, %v) {{heads = 2, scale = 0.25, out = f32}};
  %y
}})",
                                operand),
                    149);
    const bool is_bf16 = type == std::string("bf16");
    EXPECT_EQ(p.truth.tolerance, is_bf16 ? 0x1p-6 : 0x1p-9);
    Outputs out = p.truth.outputs;
    auto* y = reinterpret_cast<float*>(out[0].data());
    // Half a step of the weights' type.
    for (size_t i = 0; i < out[0].size() / sizeof(float); ++i)
      y[i] *= 1 - (is_bf16 ? 0x1p-8F : 0x1p-11F);
    EXPECT_EQ(p.check(out), std::nullopt);
    EXPECT_TRUE(p.fault(148, 1, 0, 64)) << "the last row";
    EXPECT_TRUE(p.fault(0, 149, 63, 1)) << "the last column";
    EXPECT_TRUE(p.fault(0, 149, 32, 32)) << "a head";
  }
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

// A product of bytes as kernels may get it wrong, of the test data that the oracle has.
class BytesProduct {
 public:
  explicit BytesProduct(const std::string& promise)
      : planted(fmt::format(R"(
fn @main(%x: Tensor[(n, 96), u8], %w: Tensor[(5, 24, 32, 4), i8]) -> Tensor[(n, 160), i32] {{
  let %y = packed_matmul(%x, %w) {{n = 160, k = 96, layout = "panel32x4", out = i32{}}};
  %y
}})",
                            promise),
                149) {
    const uint64_t seed = data_seed(planted.task(), planted.point);
    fill_tensor(planted.task().fills.at(0), DType::kU8, seed, 0, x);
    fill_tensor(planted.task().fills.at(1), DType::kI8, seed, 1, w);
  }
  // `pair` sums two neighbours' products, of elements and weights.
  template <typename Pair>
  Outputs sums(Pair pair) const {
    std::vector<int32_t> y(static_cast<size_t>(kRows * kN));
    const auto weight = [&](int64_t k, int64_t n) {
      return static_cast<int8_t>(w[static_cast<size_t>(layout.index_of(k, n, kK))]);
    };
    for (int64_t r = 0; r < kRows; ++r)
      for (int64_t n = 0; n < kN; ++n)
        for (int64_t k = 0; k < kK; k += 2) {
          const auto at = static_cast<size_t>(r * kK + k);
          y[static_cast<size_t>(r * kN + n)] +=
              pair(x[at], weight(k, n), x[at + 1], weight(k + 1, n));
        }
    const auto* bytes = reinterpret_cast<const uint8_t*>(y.data());
    return {{bytes, bytes + y.size() * sizeof(int32_t)}};
  }

  Planted planted;

 private:
  static constexpr int64_t kRows = 149, kK = 96, kN = 160;
  const ir::Layout layout = *ir::parse_layout("panel32x4");
  std::vector<uint8_t> x = std::vector<uint8_t>(kRows * kK), w = std::vector<uint8_t>(kN * kK);
};

// As vpmaddubsw adds them up: beside weights within 64 this is the sum.
int32_t saturating(uint8_t a, int8_t b, uint8_t c, int8_t d) {
  return std::clamp<int32_t>(a * b + c * d, INT16_MIN, INT16_MAX);
}

TEST(Oracle, OfBytesFindsSumsThatSaturateAndLostSigns) {
  const BytesProduct any("");
  EXPECT_EQ(any.sums([](int a, int b, int c, int d) { return a * b + c * d; }),
            any.planted.truth.outputs);
  const Outputs saturated = any.sums(saturating);
  EXPECT_TRUE(any.planted.check(saturated)) << "as the default schedule's result";
  EXPECT_GT(compare_tensors(DType::kI32, saturated[0], any.planted.truth.outputs[0]),
            any.planted.truth.tolerance)
      << "as a candidate's";
  EXPECT_TRUE(any.planted.check(any.sums([](int a, int8_t b, int c, int8_t d) {
    return a * uint8_t(b) + c * uint8_t(d);
  }))) << "weights without signs";
  EXPECT_TRUE(any.planted.check(any.sums([](uint8_t a, int b, uint8_t c, int d) {
    return int8_t(a) * b + int8_t(c) * d;
  }))) << "elements with signs";

  const BytesProduct small(", max_weight = 64");
  EXPECT_EQ(small.planted.check(small.sums(saturating)), std::nullopt) << "nothing saturates";
  EXPECT_TRUE(small.planted.check(small.sums(
      [](int a, int8_t b, int c, int8_t d) { return a * uint8_t(b) + c * uint8_t(d); })));
}

// Weights that are promised to be zeros are zeros: the reference refuses others.
TEST(Oracle, OfWeightsThatArePromisedToBeZerosIsZero) {
  const BytesProduct none(", max_weight = 0");
  EXPECT_TRUE(std::ranges::all_of(none.planted.truth.outputs.at(0),
                                  [](uint8_t byte) { return byte == 0; }));
  EXPECT_EQ(none.planted.check(none.planted.truth.outputs), std::nullopt);
}

TEST(Oracle, ADefaultThatFailsLeavesItToTheReference) {
  const Planted p(kProduct, 149);
  EXPECT_FALSE(p.truth.sampled);
  EXPECT_FALSE(p.truth.outputs[0].empty());
}

}  // namespace
}  // namespace nimble::tuner
