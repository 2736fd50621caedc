// How weights of products are laid out for a target.
#include "compiler/kernels/targets.h"
#include "compiler/kernels/templates/conv2d_nhwc.h"
#include "compiler/kernels/templates/operand_types.h"
#include "compiler/kernels/templates/recurrent.h"
#include "compiler/kernels/test/product_cases.h"

namespace nimble::kernels::products {
namespace {

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
}  // namespace nimble::kernels::products
