// Products in matrix registers (dense_tiles) against the reference interpreter.
#include "compiler/kernels/targets.h"
#include "compiler/kernels/test/product_cases.h"

namespace nimble::kernels::products {
namespace {

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

}  // namespace
}  // namespace nimble::kernels::products
