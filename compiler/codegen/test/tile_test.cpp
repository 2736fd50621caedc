// Matrix registers as machine code and as portable code: the row's bits where the machine has them,
// elsewhere its expansion.
#include <gtest/gtest.h>

#include "compiler/codegen/test/native.h"
#include "compiler/codegen/test/portable.h"
#include "compiler/kernels/test/tile_cases.h"
#include "compiler/kernels/tiles.h"

namespace nimble::codegen {
namespace {

using namespace kir;         // NOLINT
using namespace kir::build;  // NOLINT
using kir::testing::bytes_of;
using kir::testing::element_at;
using kir::testing::KernelBuilder;
using kir::testing::same_sum;
using kir::testing::tile_bound;
using kir::testing::tile_kernel;
using kir::testing::TileCase;
using kir::testing::TileKernel;
using testing::Native;
using testing::Portable;
using testing::runnable_levels;

const TileKernel kShapes[] = {{},          {1, 1, 1},  {5, 16, 16},   {16, 3, 16},
                              {16, 16, 5}, {7, 5, 11}, {.zero = true}};

class TileFragments : public ::testing::TestWithParam<TileFragment> {
 protected:
  // The levels that this machine runs, with the matrix registers or without.
  std::vector<std::string> levels(bool with) const {
    std::vector<std::string> out = runnable_levels();
    std::erase_if(out, [&](const std::string& level) {
      return kernels::target_by_name(level).has(std::string(row_.feature)) != with;
    });
    return out;
  }

  // Runs `run` and the interpreter on the same elements, for every number of rows that a tile may
  // have; `exact`: their bits are alike.
  template <class Run>
  void compare(const TileKernel& shape, bool exact, const std::string& what, const Run& run) {
    const Function f = tile_kernel(row_.id, shape);
    const Interpreter interpreter(f);
    for (const bool tame : {true, false})
      for (int64_t m = 0; m <= 33; ++m) {
        TileCase c(row_.id, shape, m, 1 + m % 3, tame, random_), want = c;
        ASSERT_EQ(run(c.arguments(), c.symbols()), 0);
        ASSERT_EQ(interpreter.run(want.arguments(), want.symbols()), 0);
        for (size_t i = 0; i < c.sums(); ++i) {
          const double bound = exact ? 0 : tile_bound(c, i);
          if (bound < 0) continue;
          if (bound > 0)
            ASSERT_NEAR(element_at<float>(c.y, i), element_at<float>(want.y, i), bound) << what;
          else
            ASSERT_TRUE(same_sum(row_.sum, c.y, want.y, i))
                << what << ", " << m << " rows, sum " << i << ": " << std::hex
                << element_at<uint32_t>(c.y, i) << " instead of "
                << element_at<uint32_t>(want.y, i);
        }
      }
  }

  const TileFragmentRow& row_ = tile_row_of(GetParam());
  std::mt19937_64 random_{5};
};

INSTANTIATE_TEST_SUITE_P(Table, TileFragments, ::testing::ValuesIn([] {
                           std::vector<TileFragment> out;
                           for (const TileFragmentRow& row : all_tile_fragments())
                             out.push_back(row.id);
                           return out;
                         }()),
                         [](const auto& info) {
                           return std::string(tile_row_of(info.param).name);
                         });

TEST_P(TileFragments, AreTheRowWhereThereAreRegisters) {
  if (levels(true).empty()) GTEST_SKIP() << "this machine lacks " << row_.feature;
  for (const std::string& level : levels(true))
    for (const TileKernel& shape : kShapes) {
      const Native native(tile_kernel(row_.id, shape), level);
      compare(shape, true, level, [&](const auto& buffers, const auto& symbols) {
        return native.run(buffers, symbols);
      });
      if (HasFatalFailure()) return;
    }
}

TEST_P(TileFragments, AreTheExpansionElsewhere) {
  for (const TileKernel& shape : kShapes) {
    const Function f = tile_kernel(row_.id, shape);
    const Portable portable(f);
    compare(shape, false, "portable", [&](const auto& buffers, const auto& symbols) {
      return portable.run(buffers, symbols);
    });
    for (const std::string& level : levels(false)) {
      const Native native(f, level);
      compare(shape, false, level, [&](const auto& buffers, const auto& symbols) {
        return native.run(buffers, symbols);
      });
    }
    if (HasFatalFailure()) return;
  }
}

// Each thread has registers, or scratch memory, of its own.
TEST_P(TileFragments, OfThreadsKeepApart) {
  const Function f = tile_kernel(row_.id);
  TileCase c(row_.id, {}, 200, 3, true, random_);
  for (const std::string& level : runnable_levels()) {
    const Native native(f, level);
    TileCase one = c, three = c;
    ASSERT_EQ(native.run(one.arguments(), one.symbols(), 1), 0);
    ASSERT_EQ(native.run(three.arguments(), three.symbols(), 3), 0);
    EXPECT_EQ(three.y, one.y) << level;
  }
}

// Two regions of other shapes, the second with rows of its own for each copy of an unrolled loop,
// and vectors at work beside them.
TEST(Tiles, AreShapedAnewByEachRegion) {
  KernelBuilder k("regions");
  const Dim m = k.symbol("m", {1, 16, 1}), u = Dim::symbol("u");
  const auto x = k.in("x", DType::kI32, 16 * 16);
  const auto y = k.out("y", DType::kI32, 16 * 16);
  const auto z = k.out("z", DType::kI32, 3 * 16 * 4);
  const auto wide = k.tiles("wide", DType::kI32, 16, 16, 1);
  const auto thin = k.tiles("thin", DType::kI32, 16, 4, 2);
  const auto r = k.registers("r", DType::kI32, 1, 16);
  const Function f = k.body(
      {loop(LoopKind::kUnroll, "u", 0, 3,
            with_tiles({{thin, u + 2}},
                       seq({tile_load(thin, 1, x, u, 16), tile_store(z, u * 64, 4, thin, 1)}))),
       set_reg(r, 0, load(x, 0, 16)),
       with_tiles({{thin, 1}, {wide, m}},
                  seq({tile_zero(thin, 0), tile_load(wide, 0, x, 0, 16),
                       tile_store(y, 0, 16, wide, 0), store(y, 0, add(reg(r, 0), reg(r, 0)))}))});
  ASSERT_EQ(verify(f), "");
  std::vector<int32_t> in(256);
  for (int32_t i = 0; i < 256; ++i) in[static_cast<size_t>(i)] = i - 100;
  for (const int64_t rows : {1, 7, 16}) {
    std::vector<int32_t> wanted_y(256, 77), wanted_z(192, 77);
    ASSERT_EQ(
        Interpreter(f).run({{bytes_of(in), bytes_of(wanted_y), bytes_of(wanted_z)}}, {{rows}}), 0);
    EXPECT_EQ(wanted_y[0], 2 * in[0]);
    EXPECT_EQ(rows > 1 ? wanted_y[16] : 77, rows > 1 ? in[16] : 77);
    EXPECT_EQ(wanted_z[64 + 4 * 2], in[1 + 2 * 16]);
    EXPECT_EQ(wanted_z[64 + 4 * 3], 77) << "of three rows";
    const auto check = [&](const std::string& what, const auto& run) {
      std::vector<int32_t> out_y(256, 77), out_z(192, 77);
      ASSERT_EQ(
          run(std::vector<std::span<std::byte>>{bytes_of(in), bytes_of(out_y), bytes_of(out_z)}),
          0);
      EXPECT_EQ(out_y, wanted_y) << what;
      EXPECT_EQ(out_z, wanted_z) << what;
    };
    const Portable portable(f);
    check("portable", [&](const auto& buffers) { return portable.run(buffers, {rows}); });
    for (const std::string& level : runnable_levels()) {
      const Native native(f, level);
      check(level, [&](const auto& buffers) { return native.run(buffers, {rows}); });
    }
  }
}

// A kernel without them is the same code at the level above, and one with them is another.
TEST(Tiles, AreAPartOfTheCodesHash) {
  const auto hash = [](const Function& f, const char* level) {
    return compile({&f, 1}, kernels::target_by_name(level)).functions.at(0).code_hash;
  };
  KernelBuilder k("plain");
  const auto x = k.in("x", DType::kF32, 16);
  const auto y = k.out("y", DType::kF32, 16);
  const Function plain = k.body({store(y, 0, load(x, 0, 16))});
  EXPECT_EQ(hash(plain, "x86-64-v4-amx"), hash(plain, "x86-64-v4"));
  const Function tiles = tile_kernel(TileFragment::kBf16Tiles);
  EXPECT_NE(hash(tiles, "x86-64-v4-amx"), hash(tiles, "x86-64-v4-bf16"));
  EXPECT_NE(hash(tiles, "x86-64-v4-amx"),
            hash(tile_kernel(TileFragment::kBf16Tiles, {.zero = true}), "x86-64-v4-amx"));
  EXPECT_EQ(hash(plain, "x86-64-v4-amx-fp16"), hash(plain, "x86-64-v4"));
  EXPECT_EQ(hash(tiles, "x86-64-v4-amx-fp16"), hash(tiles, "x86-64-v4-amx"));
  const Function halves = tile_kernel(TileFragment::kF16Tiles);
  EXPECT_NE(hash(halves, "x86-64-v4-amx-fp16"), hash(halves, "x86-64-v4-amx"));
}

}  // namespace
}  // namespace nimble::codegen
