// How the rows of a product are divided into tiles (tile.h), and these among threads.
//
// Rows that do not divide into tiles are the tail. How it is met is a choice (the knob "tails"):
// measured on its own, "even" wins nearly everywhere, since a tile of 6 or 7 rows still keeps both
// multiply units busy, while a remainder of 1 or 2 rows does not.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "compiler/kernels/kernel_ir.h"

namespace nimble::kernels {

using kir::Dim;

// How rows that don't fill a tile are computed; the values of the knob "tails".
inline constexpr const char* kTailsEven = "even";        // 37 = 8 + 8 + 7 + 7 + 7
inline constexpr const char* kTailsResidue = "residue";  // a kernel for each m mod rows (paper 3.5)
inline constexpr const char* kTailsChecked = "checked";  // full tiles, then a tile by run-time size
inline constexpr const char* kTailsMasked = "masked";    // full tiles; surplus rows are discarded
// "residue/4": a kernel for each m mod 4, each of whose remainders by the rows is one of rows / 4
// sizes, told apart at run time. Where code must stay small (paper 3.5); no search looks there.

// How many kernels a value of "tails" means for tiles of so many rows: all remainders for
// "residue", k for "residue/k", 1 for the others; 0 if k is not a divisor between 1 and the rows.
int residue_kernels(const std::string& tails, int64_t rows);

// The most threads that have something to do where `m` rows are shared by tiles of so many, `units`
// times each; 0 (any number) where m is not known.
int most_threads(const Dim& m, int64_t rows, int64_t units);

class RowTiles {
 public:
  // `m` rows in tiles of at most `rows`. By residue, `residue` is m mod residue_kernels().
  RowTiles(Dim m, int rows, std::string tails, int residue, std::string prefix);

  // Statements that bind the symbols below; they stand once, ahead of any use.
  std::vector<kir::StmtRef> prologue() const;
  Dim count() const { return count_; }   // number of tiles
  Dim first_row(const Dim& tile) const;  // also of tile == count(): m or more

  struct Tile {
    Dim number;  // from the range's first
    Dim row;     // first row
    int rows;    // rows that the accumulators hold: a constant
    Dim valid;   // rows that exist, <= rows
  };
  // Runs `body` for tiles [begin, begin + extent). The body is emitted once for each size that a
  // tile may have; `after` (may be empty) is emitted once, after whichever body ran. An empty range
  // behind the last tile is the caller's to leave out: a checked tail would take it for that tile.
  kir::StmtRef for_each(const Dim& begin, const Dim& extent,
                        const std::function<kir::StmtRef(const Tile&)>& body,
                        const std::function<kir::StmtRef(const Tile&)>& after) const;
  // The first row of tile `tile`, at most m.
  Dim edge(const Dim& tile) const { return ir::min(first_row(tile), m_); }

  // How threads share the tiles of a product whose columns lie in panels.
  struct Sharing {
    bool by_rows = false;     // each thread has a range of the tiles, and all panels of it
    int64_t block_tiles = 1;  // at most; a block takes all panels before the next block begins
    int64_t panels = 1;
    int64_t units = 1;    // of work that a tile of a panel is
    int64_t of_last = 1;  // the same of the last panel
  };
  // A thread's share, block by block: `ahead` (may be empty) makes what stands ahead of a block's
  // panels, and `panel` is done for each of these, "p", of which it has tiles (own_tiles). The
  // symbols "tile_begin", "tile_count" and "block_row" name a block's first tile, its tiles and its
  // first row.
  kir::StmtRef shared(const Sharing& s, const std::function<std::vector<kir::StmtRef>()>& ahead,
                      kir::StmtRef panel) const;
  // Each thread's share of the work of all tiles, `units` for each, as blocks of at most
  // `block_tiles` tiles, one after the other, which are about equally high. In a block work is
  // ordered by unit and then by tile: "own_begin" and "own_end" name the thread's stretch of it, of
  // a block that may be others', too; the other symbols are those of `shared`. Shares differ by one
  // unit at most, and a thread that has whole blocks reads no others' rows.
  kir::StmtRef in_even_shares(int64_t block_tiles, int64_t units,
                              const std::function<std::vector<kir::StmtRef>()>& body) const;
  // Names the tiles of the block, own_count() from first_own() on, that are the thread's of panel
  // "p", which has `units` of work: those of which the first unit lies in its stretch. There may be
  // none, but where all panels have a single unit.
  static std::vector<kir::StmtRef> own_tiles(const Sharing& s, int64_t units);
  static Dim first_own() { return Dim::symbol("first_tile"); }
  static Dim own_count() { return Dim::symbol("own_tiles"); }
  // The first row of the block, and its rows.
  static Dim block_row() { return Dim::symbol("block_row"); }
  Dim block_rows() const {
    return edge(Dim::symbol("tile_begin") + Dim::symbol("tile_count")) - block_row();
  }
  // First row and rows of each tile, of a number of rows that is known.
  std::vector<std::pair<int64_t, int64_t>> known_tiles() const;
  // Row number r of a tile, kept inside the matrix for kTailsMasked.
  Dim row_of(const Tile& t, const Dim& r) const;

 private:
  kir::StmtRef by_size(Tile t, int low, int high, int step,
                       const std::function<kir::StmtRef(const Tile&)>& body) const;
  // A range of the tiles for each thread, as blocks of `block_tiles` tiles, one after the other.
  kir::StmtRef in_ranges(int64_t block_tiles,
                         const std::function<std::vector<kir::StmtRef>()>& body) const;
  std::string name(const char* what) const { return prefix_ + what; }

  Dim m_;
  int rows_;
  std::string tails_;
  int kernels_;  // by residue; 1 otherwise
  int residue_;
  std::string prefix_;
  Dim count_, base_, surplus_;
};

}  // namespace nimble::kernels
