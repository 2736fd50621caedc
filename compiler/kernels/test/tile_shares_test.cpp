// How templates divide the tiles of a product among threads.
#include <gtest/gtest.h>

#include <algorithm>

#include "compiler/kernels/interpreter.h"
#include "compiler/kernels/templates/row_tiles.h"
#include "compiler/kernels/test/kernel_builder.h"

namespace nimble::kernels {
namespace {

namespace kb = kir::build;
using kir::Dim;
using kir::LoopKind;
using kir::testing::bytes_of;
using kir::testing::KernelBuilder;

constexpr int kRows = 4;  // of a tile

// Each unit of work notes who does it. The interpreter faults if two threads do.
kir::Function noting_who(int64_t block_tiles, int64_t units) {
  KernelBuilder k("shares");
  const Dim m = k.symbol("m");
  const RowTiles tiles(m, kRows, "even", 0, "m_");
  const Dim begin = Dim::symbol("tile_begin"), u = Dim::symbol("u");
  const auto who = k.in_out("who", DType::kI32, ir::ceildiv(m, kRows) * units);
  const auto first_row = k.in_out("first_row", DType::kI32, ir::ceildiv(m, kRows));
  std::vector<kir::StmtRef> body = tiles.prologue();
  body.push_back(tiles.in_even_shares(block_tiles, units, [&] {
    // The first thread of a block is the one that has its first unit.
    auto row =
        kb::store(first_row, begin, kb::cast(DType::kI32, kb::index(Dim::symbol("block_row"))));
    return std::vector{
        kb::if_then(kb::eq(Dim::symbol("own_begin"), 0), std::move(row)),
        kb::loop(LoopKind::kSerial, "u", Dim::symbol("own_begin"),
                 Dim::symbol("own_end") - Dim::symbol("own_begin"),
                 kb::store(who, begin * units + u,
                           kb::cast(DType::kI32, kb::index(Dim::symbol("thread")))))};
  }));
  return k.body(std::move(body));
}

TEST(Shares, AreEvenAndLeaveNothing) {
  for (const int64_t block_tiles : {1, 3, 16})
    for (const int64_t units : {1, 7, 16}) {
      const kir::Function f = noting_who(block_tiles, units);
      for (const int64_t m : {0, 1, 4, 29, 64, 65, 131})
        for (const int threads : {1, 2, 3, 8}) {
          SCOPED_TRACE(::testing::Message() << block_tiles << " tiles, " << units << " units, " << m
                                            << " rows, " << threads << " threads");
          const int64_t tiles = (m + kRows - 1) / kRows;
          std::vector<int32_t> who(static_cast<size_t>(tiles * units), -1);
          std::vector<int32_t> first(static_cast<size_t>(tiles), -1);
          ASSERT_EQ(kir::Interpreter(f).run({{bytes_of(who), bytes_of(first)}}, {{m}}, threads), 0);
          EXPECT_TRUE(std::ranges::is_sorted(who));
          std::vector<int64_t> done(static_cast<size_t>(threads));
          for (const int32_t thread : who) {
            ASSERT_GE(thread, 0);
            ++done[static_cast<size_t>(thread)];
          }
          EXPECT_LE(std::ranges::max(done) - std::ranges::min(done), 1);
          // There are no more blocks than needed, and their rows follow one another.
          int64_t blocks = 0;
          int32_t before = -1;
          for (const int32_t row : first) {
            if (row < 0) continue;
            EXPECT_GT(row, before);
            before = row;
            ++blocks;
          }
          EXPECT_LE(blocks, (tiles + block_tiles - 1) / block_tiles);
        }
    }
}

// Panels of so many vectors each, the last one of fewer.
struct Columns {
  int64_t panels, vectors, last;
};

// Each tile of a panel counts how often it is done and notes by whom. The interpreter faults if two
// threads do it.
kir::Function noting_panels(int64_t block_tiles, const Columns& c) {
  KernelBuilder k("panels");
  const Dim m = k.symbol("m");
  const RowTiles tiles(m, kRows, "even", 0, "m_");
  const Dim p = Dim::symbol("p"), t = Dim::symbol("t"), all = ir::ceildiv(m, kRows) * c.panels;
  const auto done = k.in_out("done", DType::kI32, all), who = k.in_out("who", DType::kI32, all);
  const Dim place = (RowTiles::first_own() + t) * c.panels + p;
  const RowTiles::Sharing sharing{
      .block_tiles = block_tiles, .panels = c.panels, .units = c.vectors, .of_last = c.last};
  const auto panel = [&](int64_t vectors) {
    std::vector<kir::StmtRef> in_panel = RowTiles::own_tiles(sharing, vectors);
    in_panel.push_back(kb::loop(
        LoopKind::kSerial, "t", 0, RowTiles::own_count(),
        kb::seq(
            {kb::store(done, place, kb::add(kb::load(done, place), kb::integer(DType::kI32, 1))),
             kb::store(who, place, kb::cast(DType::kI32, kb::index(Dim::symbol("thread"))))})));
    return kb::seq(std::move(in_panel));
  };
  std::vector<kir::StmtRef> body = tiles.prologue();
  body.push_back(tiles.shared(
      sharing, nullptr, kb::if_then(kb::lt(p, c.panels - 1), panel(c.vectors), panel(c.last))));
  return k.body(std::move(body));
}

TEST(Shares, OfPanelsAreEvenToATile) {
  for (const int64_t block_tiles : {3, 16})
    for (const Columns& c : {Columns{1, 1, 1}, Columns{3, 1, 1}, Columns{3, 3, 1}, Columns{5, 3, 2},
                             Columns{7, 2, 2}}) {
      const kir::Function f = noting_panels(block_tiles, c);
      ASSERT_EQ(kir::verify(f), "");
      for (const int64_t m : {0, 1, 29, 131})
        for (const int threads : {1, 2, 3, 8}) {
          SCOPED_TRACE(::testing::Message()
                       << block_tiles << " tiles, " << c.panels << " panels of " << c.vectors
                       << " vectors, the last of " << c.last << ", " << m << " rows, " << threads
                       << " threads");
          const auto places = static_cast<size_t>((m + kRows - 1) / kRows * c.panels);
          std::vector<int32_t> done(places), who(places, -1);
          ASSERT_EQ(kir::Interpreter(f).run({{bytes_of(done), bytes_of(who)}}, {{m}}, threads), 0);
          std::vector<int64_t> vectors(static_cast<size_t>(threads));
          for (size_t i = 0; i < places; ++i) {
            ASSERT_EQ(done[i], 1) << i;
            const bool last = static_cast<int64_t>(i) % c.panels == c.panels - 1;
            vectors[static_cast<size_t>(who[i])] += last ? c.last : c.vectors;
          }
          // Each end of a stretch is moved by less than a tile.
          EXPECT_LE(std::ranges::max(vectors) - std::ranges::min(vectors), 2 * c.vectors - 1);
        }
    }
}

TEST(Shares, ThreadsAreNoMoreThanTiles) {
  EXPECT_EQ(most_threads(29, kRows, 3), 24);
  EXPECT_EQ(most_threads(1, kRows, 3), 3);
  EXPECT_EQ(most_threads(0, kRows, 3), 1);
  EXPECT_EQ(most_threads(Dim::symbol("m"), kRows, 3), 0);
}

}  // namespace
}  // namespace nimble::kernels
