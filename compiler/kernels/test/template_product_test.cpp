// The product templates (dense, batch_matmul, recurrent) against the reference interpreter.
#include "compiler/ir/builder.h"
#include "compiler/ir/layout.h"
#include "compiler/ir/op.h"
#include "compiler/kernels/targets.h"
#include "compiler/kernels/templates/conv2d_nhwc.h"
#include "compiler/kernels/templates/dense.h"
#include "compiler/kernels/templates/recurrent.h"
#include "compiler/kernels/templates/templates.h"
#include "compiler/kernels/test/exhaustive.h"
#include "compiler/kernels/test/knob_cases.h"
#include "compiler/kernels/test/level_cases.h"
#include "compiler/kernels/test/reference_harness.h"

namespace nimble::kernels {
namespace {

using ir::Dim;

constexpr int kConfigurations = 50;
// Runs of each configuration; 50 * 3 sizes visit all of 0 … 130.
constexpr int kRuns = 3;
constexpr int64_t kSizes = 131;

ir::Type f32(std::vector<Dim> dims) {
  return ir::tensor_type(std::move(dims), DType::kF32);
}
const Dim kM = Dim::symbol("m"), kN = Dim::symbol("n"), kK = Dim::symbol("k"),
          kB = Dim::symbol("b");

// Builds a group call by call, with types given by hand.
struct Group {
  std::vector<ir::VarRef> parameters;
  ir::BlockBuilder body;
  ir::Attrs attrs;

  ir::VarRef parameter(const ir::Type& type) {
    parameters.push_back(ir::make_var("p" + std::to_string(parameters.size()), type));
    return parameters.back();
  }
  ir::VarRef call(const std::string& op, std::vector<ir::Atom> args, ir::Attrs a,
                  const ir::Type& type) {
    ir::VarRef v = body.call(op, std::move(args), std::move(a));
    v->type = type;
    return v;
  }
  ir::VarRef bind(ir::ExprRef value, const ir::Type& type) {
    ir::VarRef v = body.bind(std::move(value));
    v->type = type;
    return v;
  }
  Workload finish(const ir::VarRef& result) {
    return make_workload(
        *ir::make_function_of(parameters, body.finish(result), result->type, attrs));
  }
};

// Element types of a product.
struct Types {
  DType lhs = DType::kF32, rhs = DType::kF32, sum = DType::kF32;
};
constexpr Types kPairs = {DType::kBF16, DType::kBF16, DType::kF32};
constexpr Types kHalfWeights = {DType::kF32, DType::kF16, DType::kF32};
constexpr Types kHalves = {DType::kF16, DType::kF16, DType::kF32};
constexpr Types kQuads = {DType::kU8, DType::kI8, DType::kI32};

Workload dense_workload(const TargetInfo& target, const Dim& m, int64_t k, int64_t n, bool epilogue,
                        const Types& types = {}, std::string layout = "") {
  Group g;
  if (layout.empty()) layout = dense_layout(target, types.rhs, n);
  const ir::VarRef x = g.parameter(ir::tensor_type({m, k}, types.lhs));
  const ir::VarRef w =
      g.parameter(ir::tensor_type(ir::parse_layout(layout)->packed_dims(k, n), types.rhs));
  ir::Attrs attrs = {{"n", n}, {"k", k}, {"layout", layout}};
  if (types.rhs != types.sum) attrs["out"] = types.sum;
  ir::VarRef y =
      g.call("packed_matmul", {x, w}, std::move(attrs), ir::tensor_type({m, n}, types.sum));
  if (epilogue && types.sum != DType::kF32)
    y = g.call("cast", {y}, {{"dtype", DType::kF32}}, f32({m, n}));
  if (epilogue) {
    const ir::VarRef bias = g.parameter(f32({n})), residual = g.parameter(f32({m, n}));
    y = g.call("add", {y, bias}, {}, f32({m, n}));
    y = g.call("gelu", {y}, {}, f32({m, n}));
    y = g.call("add", {residual, y}, {}, f32({m, n}));
  }
  return g.finish(y);
}

// The template that serves products of narrow operands.
std::string narrow_dense(const TargetInfo& target) {
  return target.has("amx-bf16") ? "dense_tiles" : "dense";
}

// Panels of pairs of f16 as a target would have them that multiplies f16: those of bf16.
std::string halves_in_pairs(const TargetInfo& target, int64_t n) {
  return dense_layout(target, DType::kBF16, n);
}

// All of 0 … 130 in an order that mixes small and large.
int64_t size_of_run(int run) {
  return static_cast<int64_t>(run) * 47 % kSizes;
}

void check_configurations(const Workload& w, const TargetInfo& target, std::string_view name,
                          const std::function<std::vector<int64_t>(int run, std::mt19937&)>& sizes,
                          int configurations = kConfigurations) {
  ReferenceHarness harness(w, target);
  ASSERT_NE(harness.chosen(), nullptr);
  ASSERT_EQ(harness.chosen()->name(), name);
  testing::expect_refuses_other_knobs(*harness.chosen(), harness.workload(), target);
  std::mt19937 random(7);
  configurations =
      exhaustive() ? kConfigurations : std::min(configurations, harness_mode().most_configurations);
  const int runs = exhaustive() ? static_cast<int>(kSizes) : kRuns;
  for (int c = 0; c < configurations && !::testing::Test::HasFailure(); ++c) {
    const Config config =
        c == 0 ? harness.chosen()->default_config(harness.workload(), target)
               : random_config(*harness.chosen(), harness.workload(), target, random);
    SCOPED_TRACE(to_json(config));
    harness.lower(config);
    for (int r = 0; r < runs && !::testing::Test::HasFailure(); ++r) {
      const int run = c * runs + r;
      harness.run(sizes(run, random), 1 + static_cast<int>(random() % 3),
                  static_cast<unsigned>(run));
    }
  }
}

class ProductTest : public testing::LevelTest {};

INSTANTIATE_TEST_SUITE_P(Targets, ProductTest, ::testing::ValuesIn(machine_levels()),
                         testing::name_of_level);

std::vector<int64_t> one_size(int run, std::mt19937&) {
  return {size_of_run(run)};
}

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

constexpr const char* kTilesLevel = "x86-64-v4-amx";

class TilesTest : public ::testing::Test {
 protected:
  explicit TilesTest(const char* level = kTilesLevel) : target_(target_by_name(level)) {}
  void SetUp() override {
    if (!harness_mode().runs(target_.level)) GTEST_SKIP() << "this machine lacks " << target_.level;
  }
  // At rows that are, but for a few tiles, 0 … 130, or such as they say.
  void check(const Dim& m, int64_t k, int64_t n, const Types& types, const std::string& layout,
             int configurations) {
    SCOPED_TRACE(fmt::format("m = {}, k = {}, n = {}, {}", m.str(), k, n, layout));
    const bool constant = m.as_constant().has_value();
    check_configurations(
        dense_workload(target_, m, k, n, (k + n) % 2 == 0, types, layout), target_, "dense_tiles",
        [=](int run, std::mt19937& random) {
          return constant ? std::vector<int64_t>{} : one_size(run, random);
        },
        configurations);
  }
  const TargetInfo target_;
};

// Of f16, which not every machine with matrix registers multiplies there.
class TilesOfHalvesTest : public TilesTest {
 protected:
  TilesOfHalvesTest() : TilesTest("x86-64-v4-amx-fp16") {}
};

// k about the depth of a tile (32 pairs' elements, 64 quads'): of full steps, of a rest alone, of
// both, the rest's last group full or not.
TEST_F(TilesTest, DepthsAboutATile) {
  for (const int64_t k : {1, 31, 32, 33, 62, 64, 65, 100, 128})
    for (const Types& types : {kPairs, kQuads}) check(kM, k, 40, types, "", 4);
}

TEST_F(TilesTest, ColumnsAboutATileAndAPanel) {
  for (const int64_t n : {1, 15, 16, 17, 31, 32, 33, 63, 97})
    for (const Types& types : {kPairs, kQuads}) check(kM, 34, n, types, "", 3);
}

// Rows that are known have code for the row tiles that they have, and no other.
TEST_F(TilesTest, KnownRows) {
  for (const int64_t m : {0, 1, 15, 16, 17, 31, 32, 33, 47, 48, 113, 128})
    check(m, 70, 33, kPairs, "", 4);
}

// Panels as other targets want them: of three vectors, of four, and of a single one.
TEST_F(TilesTest, PanelsOfOtherWidths) {
  for (const char* width : {"panel16", "panel48", "panel64", "panel96"}) {
    check(kM, 70, 100, kPairs, std::string(width) + "x2", 8);
    check(kM, 70, 100, kQuads, std::string(width) + "x4", 4);
  }
}

TEST_F(TilesOfHalvesTest, DepthsColumnsAndPanels) {
  for (const int64_t k : {1, 31, 32, 33, 62, 64, 65, 100}) check(kM, k, 40, kHalves, "", 4);
  for (const int64_t n : {1, 15, 16, 17, 33, 97}) check(kM, 34, n, kHalves, "", 3);
  for (const char* layout : {"panel16x2", "panel48x2", "panel64x2"})
    check(kM, 70, 100, kHalves, layout, 4);
}

TEST_F(TilesOfHalvesTest, KnownRows) {
  for (const int64_t m : {0, 1, 15, 16, 17, 33, 113}) check(m, 70, 33, kHalves, "", 3);
}

// A check may leave the function, so matrix registers do not stand around it.
TEST_F(TilesTest, EpilogueWithACheck) {
  Group g;
  const std::string layout = dense_layout(target_, DType::kBF16, 24);
  const ir::VarRef x = g.parameter(ir::tensor_type({kM, 6}, DType::kBF16));
  const ir::VarRef w =
      g.parameter(ir::tensor_type(ir::parse_layout(layout)->packed_dims(6, 24), DType::kBF16));
  const ir::VarRef table = g.parameter(f32({10, 24}));
  const ir::VarRef ids = g.parameter(ir::tensor_type({kM}, DType::kI64));
  const ir::VarRef y =
      g.call("packed_matmul", {x, w},
             {{"n", int64_t{24}}, {"k", int64_t{6}}, {"layout", layout}, {"out", DType::kF32}},
             f32({kM, 24}));
  const ir::VarRef row = g.call("gather", {table, ids}, {{"axis", int64_t{0}}}, f32({kM, 24}));
  const Workload workload = g.finish(g.call("add", {y, row}, {}, f32({kM, 24})));
  const Template& t = *template_for(workload, target_);
  ASSERT_EQ(t.name(), "dense_tiles");
  const Lowered lowered = t.lower(workload, t.default_config(workload, target_), target_, "f");
  const std::string text = print(lowered.functions.at(0));
  EXPECT_NE(text.find("out of range"), std::string::npos) << text;
  EXPECT_EQ(kir::verify(lowered.functions.at(0)), "") << text;
}

// Registers bound the tiles, and the rows are whole tiles.
TEST_F(TilesTest, RefusesMoreTilesThanRegisters) {
  const Workload w = dense_workload(target_, kM, 64, 64, false, kPairs, "panel64x2");
  const Template& t = *template_for(w, target_);
  Config c = t.default_config(w, target_);
  const auto valid = [&](int64_t rows, int64_t vectors) {
    c["rows"] = rows;
    c["vectors"] = vectors;
    c["block_rows"] = int64_t{128};
    return t.valid(w, c, target_);
  };
  EXPECT_TRUE(valid(32, 2));
  EXPECT_TRUE(valid(16, 4));
  EXPECT_TRUE(valid(64, 1));
  EXPECT_FALSE(valid(48, 2));
  EXPECT_FALSE(valid(32, 4));
  EXPECT_FALSE(valid(16, 3)) << "does not divide the panel";
  EXPECT_FALSE(valid(24, 2));
  EXPECT_FALSE(valid(0, 2));
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

// What the epilogue will touch is fetched ahead of its tile, in one block of k and in several.
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
    const size_t before = fetches();
    config["ahead"] = std::string("epilogue");
    EXPECT_GT(fetches(), before);
    harness.lower(config);
    for (const int64_t m : {0, 1, 13, 14, 15, 40})
      harness.run({m}, 1 + static_cast<int>(m % 3), static_cast<unsigned>(m));
  }
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

// A cell of so many hidden units, plain or packed; `attrs` are the plain one's.
Workload cell_workload(const TargetInfo& target, const std::string& op, int64_t hidden, bool packed,
                       ir::Attrs attrs = {}, DType weights = DType::kF32) {
  Group g;
  const ir::OpInfo& info = *ir::find_op(op);
  const ir::CellOperands& cell = *info.traits.cell;
  const std::string layout = recurrent_layout(target, DType::kF32);
  const ir::Type state = f32({kB, hidden});
  const int64_t columns = cell.gates * hidden;
  std::vector<ir::Atom> args;
  for (size_t i = 0; i < static_cast<size_t>(info.max_args); ++i) {
    ir::Type type = i == 0 ? f32({kB, columns}) : i == cell.bias ? f32({columns}) : state;
    if (i == cell.weights)
      type = ir::tensor_type(packed ? ir::parse_layout(layout)->packed_dims(hidden, columns)
                                    : std::vector<Dim>{hidden, columns},
                             weights);
    args.emplace_back(g.parameter(type));
  }
  const ir::Type result = cell.c ? ir::tuple_type({state, state}) : state;
  if (!packed) return g.finish(g.call(op, args, attrs, result));
  g.attrs["scalars"] = std::vector<int64_t>{static_cast<int64_t>(args.size())};
  args.emplace_back(g.parameter(ir::tensor_type({}, DType::kI64)));
  attrs["hidden"] = hidden;
  attrs["layout"] = layout;
  return g.finish(g.call(cell.packed, args, attrs, result));
}

void check_cell(const Workload& w, const TargetInfo& target, int times) {
  check_configurations(
      w, target, "recurrent",
      [&](int run, std::mt19937&) {
        const int64_t batch = size_of_run(run) % 14;
        if (w.contract.arguments.size() < 5 ||
            w.contract.arguments[4].kind != exec::KernelArgument::Kind::kScalar)
          return std::vector<int64_t>{batch};
        // The batch and the step, in the contract's order.
        std::vector<int64_t> sizes(2, batch);
        sizes[w.contract.arguments[4].symbol] = run % 5;
        return sizes;
      },
      times);
}

TEST_P(ProductTest, LstmCell) {
  for (const int64_t hidden : {32, 19})
    check_cell(cell_workload(target_, "lstm_cell", hidden, false), target_, 12);
}

TEST_P(ProductTest, PackedLstmCellWalksEitherWay) {
  check_cell(cell_workload(target_, "lstm_cell", 19, true), target_, 25);
}

TEST_P(ProductTest, CellsOfHalfWeights) {
  for (const DType stored : {DType::kF16, DType::kBF16})
    for (const bool packed : {false, true}) {
      check_cell(cell_workload(target_, "lstm_cell", 19, packed, {}, stored), target_, 8);
      check_cell(
          cell_workload(target_, "gru_cell", 19, packed, {{"linear_before_reset", false}}, stored),
          target_, 8);
    }
}

// h' once more, as the rows of a sequence want it; then c' twice, in front.
TEST_P(ProductTest, ACellStoresAResultWhereverItIsWanted) {
  const ir::Type state = f32({kB, 19});
  for (const std::vector<int64_t>& wanted : {std::vector<int64_t>{0, 1, 0}, {1, 1, 0}}) {
    Group g;
    const ir::VarRef x = g.parameter(f32({kB, 4 * 19})), h = g.parameter(state),
                     c = g.parameter(state), w = g.parameter(f32({19, 4 * 19}));
    const ir::VarRef cell = g.call("lstm_cell", {x, h, c, w}, {}, ir::tuple_type({state, state}));
    const ir::VarRef fields[] = {g.bind(ir::make_get_field(cell, 0), state),
                                 g.bind(ir::make_get_field(cell, 1), state)};
    std::vector<ir::Atom> results;
    for (const int64_t i : wanted) results.emplace_back(fields[i]);
    check_configurations(
        g.finish(g.bind(ir::make_tuple(results), ir::tuple_type({state, state, state}))), target_,
        "recurrent",
        [](int run, std::mt19937&) { return std::vector<int64_t>{size_of_run(run) % 14}; }, 12);
  }
}

TEST_P(ProductTest, GruCell) {
  for (const bool linear_before_reset : {false, true})
    check_cell(cell_workload(target_, "gru_cell", 21, false,
                             {{"linear_before_reset", linear_before_reset}}),
               target_, 12);
}

TEST_P(ProductTest, PackedGruCellWalksEitherWay) {
  for (const bool linear_before_reset : {false, true})
    check_cell(cell_workload(target_, "gru_cell", 19, true,
                             {{"linear_before_reset", linear_before_reset}}),
               target_, 25);
}

// One unit, and vectors of units that are full, one short and one over.
TEST_P(ProductTest, PackedCellsOfAnyWidth) {
  const int64_t lanes = ir::parse_layout(recurrent_layout(target_, DType::kF32))->width;
  for (const int64_t hidden : {int64_t{1}, lanes - 1, lanes, lanes + 1}) {
    if (hidden == 0) continue;
    check_cell(cell_workload(target_, "lstm_cell", hidden, true), target_, 4);
    for (const bool linear_before_reset : {false, true})
      check_cell(cell_workload(target_, "gru_cell", hidden, true,
                               {{"linear_before_reset", linear_before_reset}}),
                 target_, 4);
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

TEST(DenseLayout, TilesTakeTwoVectors) {
  const TargetInfo amx = target_by_name(kTilesLevel);
  EXPECT_EQ(dense_layout(amx, DType::kBF16, 768), "panel32x2");
  EXPECT_EQ(dense_layout(amx, DType::kI8, 17), "panel32x4");
  EXPECT_EQ(dense_layout(amx, DType::kBF16, 16), "panel16x2");
  EXPECT_EQ(dense_layout(amx, DType::kF32, 768), "panel48") << "no tiles of f32";
}

// In pairs where both factors are f16 and the target multiplies them; else rows are f32.
TEST(DenseLayout, HalvesAreInPairsWhereTheyAreMultiplied) {
  const auto layout = [](const char* level, DType rows) {
    return dense_layout(target_by_name(level), rows, DType::kF16, 768);
  };
  for (const char* level : {"x86-64-v4", "x86-64-v4-amx"}) {
    EXPECT_EQ(layout(level, DType::kF16), "panel48") << level;
    EXPECT_EQ(dense_layout(target_by_name(level), DType::kF16, 768), "panel48") << level;
    EXPECT_EQ(rows_type(target_by_name(level), DType::kF16), DType::kF32) << level;
    EXPECT_EQ(rows_type(target_by_name(level), DType::kBF16), DType::kBF16) << level;
  }
  EXPECT_EQ(layout("x86-64-v4-amx-fp16", DType::kF16), "panel32x2");
  EXPECT_EQ(layout("x86-64-v4-amx-fp16", DType::kF32), "panel48");
  EXPECT_EQ(ir::parse_layout(layout("aarch64-fp16fml", DType::kF16))->group, 2);
  EXPECT_EQ(ir::parse_layout(layout("aarch64-fp16fml", DType::kF32))->group, 1);
  EXPECT_EQ(ir::parse_layout(layout("aarch64-bf16", DType::kF16))->group, 1);
  for (const char* level : {"x86-64-v4-amx-fp16", "aarch64-fp16fml"}) {
    EXPECT_EQ(rows_type(target_by_name(level), DType::kF16), DType::kF16) << level;
    EXPECT_EQ(rows_type(target_by_name(level), DType::kF16, false), DType::kF32) << level;
  }
}

TEST(DenseLayout, PairsOfBytesWhereNoInstructionTakesBytes) {
  const auto groups = [](const char* level) {
    const TargetInfo target = target_by_name(level);
    const auto group = [](const std::string& layout) { return ir::parse_layout(layout)->group; };
    const int64_t dense = group(dense_layout(target, DType::kI8, 96));
    EXPECT_EQ(group(conv2d_nhwc_layout(target, DType::kI8, 96)), dense) << level;
    EXPECT_EQ(group(dense_layout(target, DType::kBF16, 96)), 2) << level;
    return dense;
  };
  for (const char* level : {"x86-64-v2", "x86-64-v3", "x86-64-v4"})
    EXPECT_EQ(groups(level), 2) << level;
  for (const char* level : {"x86-64-v4-vnni", "x86-64-v4-bf16", "x86-64-v4-amx", "aarch64",
                            "aarch64-dotprod", "aarch64-i8mm", "aarch64-bf16", "portable"})
    EXPECT_EQ(groups(level), 4) << level;
  EXPECT_EQ(dense_layout(target_by_name("x86-64-v3"), DType::kI8, 96), "panel16x2");
}

// The fragment follows from the layout, so that a file for several levels has each multiply the
// same weights.
TEST(DenseLayout, SaysWhatMultipliesBytes) {
  for (const char* level : {"x86-64-v3", "x86-64-v4-vnni"})
    for (const bool words : {true, false}) {
      const TargetInfo target = target_by_name(level);
      const Workload w =
          dense_workload(target, kM, 24, 40, false, kQuads, words ? "panel16x2" : "panel16x4");
      const Template& t = *template_for(w, target);
      const Lowered lowered = t.lower(w, t.default_config(w, target), target, "f");
      const std::string text = print(lowered.functions.at(0));
      EXPECT_EQ(text.find("dot.s16_pairs") != std::string::npos, words) << text;
      EXPECT_EQ(text.find("dot.u8s8_quads") != std::string::npos, !words) << text;
    }
}

TEST(DenseLayout, ChoosesTheWidthThatWastesLeast) {
  const TargetInfo v4 = target_by_name("x86-64-v4");
  EXPECT_EQ(dense_layout(v4, DType::kF32, 768), "panel48");
  EXPECT_EQ(dense_layout(v4, DType::kF32, 64), "panel32");
  EXPECT_EQ(dense_layout(v4, DType::kF32, 10), "panel16");
}

}  // namespace
}  // namespace nimble::kernels
