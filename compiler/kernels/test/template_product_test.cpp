// The product templates (dense, batch_matmul) against the reference interpreter.
#include "compiler/kernels/targets.h"
#include "compiler/kernels/templates/templates.h"
#include "compiler/kernels/test/level_cases.h"
#include "compiler/kernels/test/product_cases.h"

namespace nimble::kernels::products {
namespace {

class ProductTest : public testing::LevelTest {};

INSTANTIATE_TEST_SUITE_P(Targets, ProductTest, ::testing::ValuesIn(machine_levels()),
                         testing::name_of_level);

TEST_P(ProductTest, DenseAtEverySizeInSampledConfigurations) {
  check_configurations(dense_workload(target_, kM, 21, 40, false), target_, "dense", one_size);
}

TEST_P(ProductTest, DenseWithBiasActivationAndResidual) {
  check_configurations(dense_workload(target_, kM, 9, 50, true), target_, "dense", one_size, 12);
}

TEST_P(ProductTest, DenseWithSeveralBlocksOfK) {
  check_configurations(
      dense_workload(target_, kM, 150, 16, true), target_, "dense",
      [](int, std::mt19937& r) { return std::vector<int64_t>{static_cast<int64_t>(r() % 40)}; },
      10);
}

TEST_P(ProductTest, DenseOfConstantRows) {
  for (int64_t m : {1, 5, 37})
    check_configurations(
        dense_workload(target_, m, 12, 24, true), target_, "dense",
        [](int, std::mt19937&) { return std::vector<int64_t>{}; }, 6);
}

TEST_P(ProductTest, DenseOfPairs) {
  for (const int64_t k : {1, 2, 20, 21})  // an odd row's last pair has one element
    check_configurations(dense_workload(target_, kM, k, 40, k == 20, kPairs), target_,
                         narrow_dense(target_), one_size, 12);
}

TEST_P(ProductTest, DenseOfPairsInSeveralBlocks) {
  for (const int64_t k : {300, 301})
    check_configurations(
        dense_workload(target_, kM, k, 50, true, kPairs), target_, narrow_dense(target_),
        [](int, std::mt19937& r) { return std::vector<int64_t>{static_cast<int64_t>(r() % 40)}; },
        8);
}

// Converted as they are loaded, since they are packed one by one.
TEST_P(ProductTest, DenseOfHalves) {
  const std::string layout = dense_layout(target_, DType::kF32, 40);
  for (const Types& types : {kHalfWeights, kHalves})
    for (const int64_t k : {1, 21, 300})
      check_configurations(
          dense_workload(target_, kM, k, 40, k == 21, types, layout), target_, "dense",
          [&](int run, std::mt19937& r) {
            return k == 300 ? std::vector<int64_t>{static_cast<int64_t>(r() % 40)}
                            : one_size(run, r);
          },
          8);
  // Those of bf16 are pairs elsewhere.
  check_configurations(dense_workload(target_, kM, 21, 40, true, kPairs, layout), target_, "dense",
                       one_size, 4);
}

// Packed in pairs, for whichever target: the others have the row's expansion.
TEST_P(ProductTest, DenseOfPairsOfHalves) {
  const char* name = target_.has("amx-fp16") ? "dense_tiles" : "dense";
  for (const int64_t k : {1, 2, 20, 21, 300})
    check_configurations(
        dense_workload(target_, kM, k, 40, k == 20, kHalves, halves_in_pairs(target_, 40)), target_,
        name,
        [&](int run, std::mt19937& r) {
          return k == 300 ? std::vector<int64_t>{static_cast<int64_t>(r() % 40)} : one_size(run, r);
        },
        8);
}

TEST_P(ProductTest, DenseOfQuads) {
  for (const int64_t k : {1, 3, 20, 22, 333})
    check_configurations(dense_workload(target_, kM, k, 40, k == 20, kQuads), target_,
                         narrow_dense(target_), one_size, 8);
}

// Whatever the target has: rows of bytes become i16 ahead of the product, in one block of rows
// and in several, and the last pair of an odd row has one element.
TEST_P(ProductTest, DenseOfBytesAsI16) {
  for (const int64_t k : {1, 3, 22, 333})
    check_configurations(
        dense_workload(target_, kM, k, 40, k == 22, kQuads, k == 22 ? "panel48x2" : "panel16x2"),
        target_, "dense", one_size, 5);
  for (const int64_t m : {1, 130})
    check_configurations(
        dense_workload(target_, m, 12, 24, true, kQuads, "panel16x2"), target_, "dense",
        [](int, std::mt19937&) { return std::vector<int64_t>{}; }, 4);
}

// And as bytes, also where weights that are packed for the target are multiplied as i16.
TEST_P(ProductTest, DenseOfBytesAsBytes) {
  for (const int64_t k : {3, 22, 333})
    check_configurations(dense_workload(target_, kM, k, 40, k == 22, kQuads, "panel16x4"), target_,
                         narrow_dense(target_), one_size, 4);
}

// No thread is woken for which there is no tile of a panel.
TEST_P(ProductTest, DenseOfFewTilesIsForFewThreads) {
  const int64_t panels =
      ir::ceildiv(200, ir::parse_layout(dense_layout(target_, DType::kF32, 200))->width)
          .as_constant()
          .value();
  ASSERT_GE(panels, 4);
  const auto threads = [&](const Dim& m, const char* split) {
    const Workload w = dense_workload(target_, m, 12, 200, false);
    const Template& t = *template_for(w, target_);
    Config config = t.default_config(w, target_);
    config["split"] = std::string(split);
    return t.lower(w, config, target_, "f").max_threads;
  };
  EXPECT_EQ(threads(1, "columns"), panels);
  EXPECT_GE(threads(100, "columns"), 2 * panels);
  EXPECT_EQ(threads(1, "rows"), 1);
  EXPECT_EQ(threads(100, "columns"), panels * threads(100, "rows"));
  for (const char* split : {"columns", "rows"}) EXPECT_EQ(threads(kM, split), 0) << split;
}

// The largest products in size: nothing saturates or wraps on the way. Behind a row's last element
// the next row begins, and the weights that a group has for it are none: they are planted here.
TEST_P(ProductTest, BytesAtTheirEnds) {
  constexpr int64_t kRows = 3, kColumns = 5;
  for (const char* layout : {"panel16x2", "panel16x4"})
    for (const int64_t k : {1, 3, 37, 1001}) {
      SCOPED_TRACE(fmt::format("{} of {}", layout, k));
      const Workload w = dense_workload(target_, kRows, k, kColumns, false, kQuads, layout);
      const Template& t = *template_for(w, target_);
      const Lowered lowered = t.lower(w, t.default_config(w, target_), target_, "f");
      std::vector<uint8_t> x(static_cast<size_t>(kRows * k), 255);
      const ir::Layout panels = *ir::parse_layout(layout);
      // Matrix registers take whole groups and rely on the zeros.
      const int8_t behind = t.name() == "dense_tiles" ? 0 : 127;
      std::vector<int8_t> packed(static_cast<size_t>(panels.panel_elements(k)), behind);
      for (int64_t row = 0; row < k; ++row)
        for (int64_t column = 0; column < kColumns; ++column)
          packed[static_cast<size_t>(panels.index_of(row, column, k))] = -128;
      std::vector<int32_t> y(static_cast<size_t>(kRows * kColumns));
      const auto bytes = [](auto& v) { return std::as_writable_bytes(std::span(v)); };
      const std::vector<std::span<std::byte>> buffers = {bytes(x), bytes(packed), bytes(y)};
      ASSERT_EQ(harness_mode().prepare(lowered.functions.at(0), target_)(buffers, {}, 2), 0);
      for (const int32_t sum : y) ASSERT_EQ(sum, k * 255 * -128);
    }
}

// What follows a product may be stored as the next one wants it.
TEST_P(ProductTest, DenseOfPairsStoresPairs) {
  Group g;
  const std::string layout = dense_layout(target_, DType::kBF16, 24);
  const ir::VarRef x = g.parameter(ir::tensor_type({kM, 6}, DType::kBF16));
  const ir::VarRef w =
      g.parameter(ir::tensor_type(ir::parse_layout(layout)->packed_dims(6, 24), DType::kBF16));
  ir::VarRef y =
      g.call("packed_matmul", {x, w},
             {{"n", int64_t{24}}, {"k", int64_t{6}}, {"layout", layout}, {"out", DType::kF32}},
             f32({kM, 24}));
  y = g.call("relu", {y}, {}, f32({kM, 24}));
  y = g.call("cast", {y}, {{"dtype", DType::kBF16}}, ir::tensor_type({kM, 24}, DType::kBF16));
  check_configurations(g.finish(y), target_, narrow_dense(target_), one_size, 8);
}

// The row behind an odd one begins with what must not be multiplied, not even by zero.
TEST_P(ProductTest, AnOddRowOfPairsEndsWhereItEnds) {
  const std::string layout = dense_layout(target_, DType::kBF16, 5);
  const ir::Layout weights = *ir::parse_layout(layout);
  for (const Types& types : {kPairs, kHalves})
    for (const float first : {INFINITY, NAN}) {
      SCOPED_TRACE(fmt::format("{} in {}", first, name_of(types.lhs)));
      const Workload w = dense_workload(target_, 2, 3, 5, false, types, layout);
      const Template& t = *template_for(w, target_);
      const Lowered lowered = t.lower(w, t.default_config(w, target_), target_, "f");
      const auto narrow = [&](float v) {
        return types.lhs == DType::kF16 ? f16_from_f32(v) : bf16_from_f32(v);
      };
      const uint16_t one = narrow(1);
      std::vector<uint16_t> x = {one, one, one, narrow(first), one, one};
      std::vector<uint16_t> packed(static_cast<size_t>(weights.panel_elements(3) *
                                                       ((5 + weights.width - 1) / weights.width)));
      for (int64_t row = 0; row < 3; ++row)
        for (int64_t column = 0; column < 5; ++column)
          packed[static_cast<size_t>(weights.index_of(row, column, 3))] = one;
      std::vector<float> y(10);
      const auto bytes = [](auto& v) { return std::as_writable_bytes(std::span(v)); };
      const std::vector<std::span<std::byte>> buffers = {bytes(x), bytes(packed), bytes(y)};
      ASSERT_EQ(harness_mode().prepare(lowered.functions.at(0), target_)(buffers, {}, 1), 0);
      for (size_t i = 0; i < 5; ++i) EXPECT_EQ(y[i], 3) << i;
      for (size_t i = 5; i < 10; ++i)
        EXPECT_TRUE(std::isnan(first) ? std::isnan(y[i]) : y[i] == first) << i << ": " << y[i];
    }
}

TEST_P(ProductTest, DenseByFewerResidues) {
  using Case = std::pair<int64_t, int>;
  for (const auto& [rows, kernels] : {Case(4, 2), Case(6, 2), Case(6, 3)}) {
    ReferenceHarness harness(dense_workload(target_, kM, 12, 24, true), target_);
    Config config = harness.chosen()->default_config(harness.workload(), target_);
    config["rows"] = rows;
    config["tails"] = "residue/" + std::to_string(kernels);
    SCOPED_TRACE(to_json(config));
    if (!harness.chosen()->valid(harness.workload(), config, target_)) continue;  // few registers
    harness.lower(config);
    for (int64_t m = 0; m < 26; ++m)
      harness.run({m}, 1 + static_cast<int>(m % 3), static_cast<unsigned>(m));
  }
}

TEST_P(ProductTest, TilesOfFewRowsPrefetchNothing) {
  const DenseTemplate dense;
  auto prefetches = [&](int64_t m) {
    const Workload w = dense_workload(target_, m, 64, 150, false);
    const Lowered lowered = dense.lower(w, dense.default_config(w, target_), target_, "f");
    return print(lowered.functions.at(0)).find("prefetch") != std::string::npos;
  };
  EXPECT_FALSE(prefetches(1));
  EXPECT_TRUE(prefetches(64));
}

// What the epilogue will touch is fetched ahead of its tile, in one block of k and in several;
// where it reads a residual, unless another configuration is chosen.
TEST_P(ProductTest, DenseFetchesAhead) {
  for (const int64_t block : {0, 64}) {
    ReferenceHarness harness(dense_workload(target_, kM, 130, 70, true), target_);
    Config config = harness.chosen()->default_config(harness.workload(), target_);
    config["k_block"] = block;
    const auto fetches = [&] {
      const Lowered l = harness.chosen()->lower(harness.workload(), config, target_, "f");
      const std::string text = print(l.functions.at(0));
      size_t count = 0;
      for (size_t at = text.find("prefetch"); at != std::string::npos;
           at = text.find("prefetch", at + 1))
        ++count;
      return count;
    };
    const size_t with = fetches();
    config["ahead"] = std::string("none");
    EXPECT_GT(with, fetches());
    config["ahead"] = std::string("epilogue");
    EXPECT_EQ(with, fetches());
    harness.lower(config);
    for (const int64_t m : {0, 1, 13, 14, 15, 40})
      harness.run({m}, 1 + static_cast<int>(m % 3), static_cast<unsigned>(m));
  }
  ReferenceHarness bare(dense_workload(target_, kM, 130, 70, false), target_);
  EXPECT_EQ(bare.chosen()->default_config(bare.workload(), target_).at("ahead"),
            KnobValue(std::string("none")));
}

// An activation's chain is longer than what it computes: two vectors fill its waits.
TEST(Dense, EpiloguesComputeTwoVectorsTogether) {
  const DenseTemplate dense;
  const TargetInfo target = target_by_name("x86-64-v3");
  const auto in_pairs = [&](int64_t columns) {
    const Workload w = dense_workload(target, kM, 64, columns, true);
    const Lowered lowered = dense.lower(w, dense.default_config(w, target), target, "f");
    return print(lowered.functions.at(0)).find("load.f32x16 sums[") != std::string::npos;
  };
  EXPECT_TRUE(in_pairs(64));
  EXPECT_TRUE(in_pairs(60)) << "but for the last panel";
  EXPECT_FALSE(in_pairs(8)) << "one vector";
}

TEST_P(ProductTest, DenseOverLeadingAxes) {
  // (b, n, k) and (b*n, k) are the same workload.
  Group g;
  const std::string layout = dense_layout(target_, DType::kF32, 32);
  const ir::VarRef x = g.parameter(f32({kB, kN, 8}));
  const ir::VarRef w = g.parameter(f32(ir::parse_layout(layout)->packed_dims(8, 32)));
  const ir::VarRef y =
      g.call("packed_matmul", {x, w}, {{"n", int64_t{32}}, {"k", int64_t{8}}, {"layout", layout}},
             f32({kB, kN, 32}));
  const Workload deep = g.finish(y);
  EXPECT_EQ(deep.key, dense_workload(target_, kM, 8, 32, false).key);
  check_configurations(deep, target_, "dense", one_size, 4);
}

Workload batch_workload(const std::vector<Dim>& a, const std::vector<Dim>& b,
                        const std::vector<Dim>& out, bool transpose_a, bool transpose_b,
                        bool epilogue = false) {
  Group g;
  const ir::VarRef x = g.parameter(f32(a)), y = g.parameter(f32(b));
  ir::VarRef z = g.call("matmul", {x, y},
                        {{"transpose_a", transpose_a}, {"transpose_b", transpose_b}}, f32(out));
  if (epilogue) z = g.call("relu", {z}, {}, f32(out));
  return g.finish(z);
}

// Sizes of m, n, k or batch: one walks through all values, the others stay small.
std::vector<int64_t> several(size_t count, int run, std::mt19937& random) {
  std::vector<int64_t> sizes;
  for (size_t i = 0; i < count; ++i) sizes.push_back(static_cast<int64_t>(random() % 7));
  sizes[static_cast<size_t>(run) % count] = size_of_run(run);
  return sizes;
}

TEST_P(ProductTest, MatmulOfTwoVariables) {
  for (const bool ta : {false, true})
    for (const bool tb : {false, true}) {
      const std::vector<Dim> a = ta ? std::vector<Dim>{kK, kM} : std::vector<Dim>{kM, kK};
      const std::vector<Dim> b = tb ? std::vector<Dim>{kN, kK} : std::vector<Dim>{kK, kN};
      check_configurations(
          batch_workload(a, b, {kM, kN}, ta, tb, true), target_, "batch_matmul",
          [](int run, std::mt19937& r) { return several(3, run, r); }, 25);
    }
}

TEST_P(ProductTest, BatchedMatmul) {
  check_configurations(batch_workload({kB, kM, kK}, {kB, kN, kK}, {kB, kM, kN}, false, true),
                       target_, "batch_matmul",
                       [](int run, std::mt19937& r) { return several(4, run, r); });
}

TEST_P(ProductTest, BatchesBroadcast) {
  // (b, 1, m, 5) x (3, 5, n): axes of extent 1 and missing ones.
  check_configurations(
      batch_workload({kB, 1, kM, 5}, {3, 5, kN}, {kB, 3, kM, kN}, false, false), target_,
      "batch_matmul", [](int run, std::mt19937& r) { return several(3, run, r); }, 10);
}

TEST_P(ProductTest, VectorsOnEitherSide) {
  for (int side = 0; side < 3; ++side) {
    const std::vector<Dim> a = side == 0 ? std::vector<Dim>{kM, kK} : std::vector<Dim>{kK};
    const std::vector<Dim> b = side == 1 ? std::vector<Dim>{kK, kM} : std::vector<Dim>{kK};
    const std::vector<Dim> out = side == 2 ? std::vector<Dim>{} : std::vector<Dim>{kM};
    const size_t symbols = side == 2 ? 1 : 2;
    check_configurations(
        batch_workload(a, b, out, false, false), target_, "batch_matmul",
        [=](int run, std::mt19937& r) { return several(symbols, run, r); }, 8);
  }
}

TEST(ResidueDispatch, EachShapeGetsTheKernelOfItsResidue) {
  const TargetInfo target = target_by_name("x86-64-v4");
  const Workload w = dense_workload(target, kM, 8, 48, false);
  const Template& t = *template_for(w, target);
  Config c = t.default_config(w, target);
  c["tails"] = std::string("residue");
  c["rows"] = int64_t{6};
  const Lowered lowered = t.lower(w, c, target, "kernel");
  ASSERT_EQ(lowered.functions.size(), 6u);
  for (int64_t m = 0; m < 40; ++m)
    EXPECT_EQ(lowered.tails.choose(std::vector<int64_t>{m}, 1), static_cast<uint32_t>(m % 6));
}

TEST(ResidueDispatch, FewerKernelsThanRemainders) {
  const TargetInfo target = target_by_name("x86-64-v4");
  const Workload w = dense_workload(target, kM, 8, 48, false);
  const Template& t = *template_for(w, target);
  Config c = t.default_config(w, target);
  c["rows"] = int64_t{8};
  for (const int kernels : {2, 4}) {
    c["tails"] = "residue/" + std::to_string(kernels);
    ASSERT_TRUE(t.valid(w, c, target));
    const Lowered lowered = t.lower(w, c, target, "kernel");
    ASSERT_EQ(lowered.functions.size(), static_cast<size_t>(kernels));
    for (int64_t m = 0; m < 40; ++m)
      EXPECT_EQ(lowered.tails.choose(std::vector<int64_t>{m}, 1),
                static_cast<uint32_t>(m % kernels));
  }
  for (const char* tails : {"residue/1", "residue/3", "residue/8", "residue/0", "residue/",
                            "residue4", "residue/4x", "even/4"}) {
    c["tails"] = std::string(tails);
    EXPECT_FALSE(t.valid(w, c, target)) << tails;
  }
}

}  // namespace
}  // namespace nimble::kernels::products
