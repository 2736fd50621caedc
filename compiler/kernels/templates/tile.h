// The register tile: the inner loops that all products share (dense, batched, recurrent).
//
// A tile keeps rows x vectors accumulators in registers and walks k: per step it loads `vectors`
// vectors of the right-hand panel, and per row broadcasts one left-hand element into as many
// fused multiply-adds. With 8 rows x 3 vectors of AVX-512 that is 24 multiply-adds for 11 loads,
// so two loads a cycle never limit two multiply-adds a cycle; 13 x 2, the other tile that fills
// 32 registers, needs 15 loads for 26 and touches more cache lines of the left-hand side than
// the first-level cache has ways when rows lie a multiple of 4 KiB apart.
//
// Narrow operands (bf16, 8-bit integers) are multiplied in groups of successive k, by an
// instruction that adds up the products of a group in a wider type (Fragments.def): a step of k is
// then a group, an element of the left-hand side the group of a row, and a vector of the panel
// holds the group of each column side by side (layout "panel48x2"). Registers and loads are as many
// as with f32, and a step does two or four times the work.
//
// An f16 that is summed in f32 is no more than storage where a target has no instruction for pairs
// of them: it is converted as it is loaded, of the panel a vector at a time, which is cheap, of the
// left-hand side element by element, which is not (rows_type, dense.h).
//
// Rows that do not divide into tiles are the tail. How it is met is a choice (Tails below):
// measured on its own, "even" wins nearly everywhere, since a tile of 6 or 7 rows still keeps both
// multiply units busy, while a remainder of 1 or 2 rows does not.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "compiler/ir/expr.h"
#include "compiler/ir/layout.h"
#include "compiler/kernels/fragments.h"
#include "compiler/kernels/kernel_ir.h"
#include "compiler/kernels/target.h"

namespace nimble::kernels {

using kir::Dim;

// ---------------------------------------------------------------- one tile's product

struct RegisterTile {
  int rows = 1, vectors = 1, lanes = 1;
  int first_row = 0;          // of the accumulators' rows, those from here on; with one chain
  DType dtype = DType::kF32;  // of the sums; but by a fragment operands are multiplied in it, too
  // Multiplies operands of its own types in groups of k; everything that counts k here counts
  // groups.
  std::optional<kir::Fragment> fragment;
  int chains = 1;  // independent accumulators for each element, over successive k (few rows only)
  int unroll = 4;  // k steps per loop body; a multiple of `chains`
  kir::BufferRef accumulators;  // register buffer of >= chains*rows*vectors vectors
  kir::BufferRef panel;         // of >= vectors vectors (panel_registers)
  kir::BufferRef lhs, rhs;
  std::function<Dim(const Dim& row, const Dim& k)> lhs_index;  // of one element, a group's first
  bool rows_apart = false;  // lhs_index takes the numbers of rows alone, which lie anywhere
  // Of the elements of a group from step `whole` on, so many exist; may be empty: all.
  std::function<Dim(const Dim& k)> lhs_valid;
  Dim whole;  // with lhs_valid: steps ahead of which no group needs a mask, <= k_extent
  std::function<Dim(const Dim& vector, const Dim& k)> rhs_index;   // of a vector's first element
  std::function<std::optional<Dim>(const Dim& vector)> rhs_valid;  // may be empty: all lanes
  Dim k_extent;                                                    // steps; k runs from 0
  // Statements at the start of body number `body` (prefetches); may be empty.
  std::function<kir::StmtRef(const Dim& body)> at_body;

  int operand_lanes() const;
};

// Sums enough to keep the multiply-add units nearly busy: a tile of fewer spreads each element over
// several, since a multiply-add waits for the one before it.
inline constexpr int kBusySums = 6;

// The fragment that multiplies operands of these types into such sums, or the first one for a
// right-hand side; nothing if there is none.
std::optional<kir::Fragment> fragment_of(DType lhs, DType rhs, DType sum);
std::optional<kir::Fragment> fragment_of(DType rhs);
// The fragment that multiplies operands of these types in groups of so many rows into such sums: as
// they are, or in types that have each of their values. Nothing if there is none; floats in groups
// of one are converted instead (is_converted).
std::optional<kir::Fragment> fragment_of_groups(DType lhs, DType rhs, DType sum, int64_t group);
// The fragments that may multiply what one does, into the same sums: itself, those of its types
// with a bound that weights keep of which none exceeds `most` in size (kU8S7Quads), then those of
// wider types that have each value of its own (widened_bytes.h).
std::vector<kir::Fragment> fragments_for(kir::Fragment own, int64_t most = kir::kAnyWeight);
// The first of these that a target has instructions for; nothing if it has none.
std::optional<kir::Fragment> multiplying_fragment(const TargetInfo& t, kir::Fragment own,
                                                  int64_t most = kir::kAnyWeight);
// The fragment that weights of a type are packed for: that by which a target multiplies what the
// first one for them does. Without instructions for any, this first one, or nothing if the target
// does not take it (kir::is_taken): such weights, f16, are packed one by one and converted.
std::optional<kir::Fragment> packing_fragment(const TargetInfo& t, DType weights,
                                              int64_t most = kir::kAnyWeight);
// The fragment by which a target multiplies operands as they lie for `own`: one for whose bound
// `call` promises something of its weights (max_weight), where it is faster; else `own`. It is up
// to the target, so that a file for several levels has each multiply the same weights its way.
kir::Fragment fragment_of_call(const TargetInfo& t, kir::Fragment own, const ir::Expr& call);
// The same where no weight exceeds `most` in size.
kir::Fragment fragment_within(const TargetInfo& t, kir::Fragment own, int64_t most);
// So many rows of a tile, or fewer where a fragment's instructions would have no registers left
// beside operands and sums.
int64_t rows_with_room(const TargetInfo& t, std::optional<kir::Fragment> fragment, int64_t vectors,
                       int64_t rows);
// In how many neighbours the right-hand side should be packed for vectors of a target.
int group_for(const TargetInfo& t, DType lhs, DType rhs, DType sum, int64_t most = kir::kAnyWeight);
// How many elements it takes of a row at a time; 1 without one.
int group_of(std::optional<kir::Fragment> fragment);
// Whether without a fragment operands of a type are multiplied in that of the sums: it is theirs,
// or they are converted as they are loaded.
bool is_converted(DType operand, DType sum);
// The type in which products with a right-hand side of a type are summed.
DType sum_of(DType rhs);
// The registers that hold a step's part of a panel.
kir::BufferRef panel_registers(DType sum, int vectors, int lanes,
                               std::optional<kir::Fragment> fragment);

// accumulators[r*vectors + v] += sum over k of lhs(r, k) * rhs(v, k) for the `rows` rows r from
// `first_row` on. Further chains are added into the first at the end. `prefix` keeps the names of
// loop variables apart.
kir::StmtRef tile_product(const RegisterTile& t, const std::string& prefix);

// Sets the accumulators of all chains to zero.
kir::StmtRef tile_zero(const RegisterTile& t, const std::string& prefix);

// Elements of a type in a cache line, and the lines that so many neighbouring elements fill.
int64_t line_elements(DType dtype);
int64_t lines_of(int64_t elements, DType dtype);

// Prefetches into L1 what a tile of so many rows and columns touches of `b`, from element `first`
// on, rows `pitch` elements apart. Unrolled: rows and columns are few.
kir::StmtRef prefetch_tile(const kir::BufferRef& b, const Dim& first, int rows, const Dim& pitch,
                           int64_t columns, bool for_write);

// Prefetches into L2 a tile's share of `lines` cache lines, `share` (a symbol: ceildiv(lines,
// tiles)) of them from element `first` of `b` on; tiles beyond the last line, by their number, have
// nothing to fetch. A share is rarely more than a few lines: nested conditions keep the usual case
// to one or two tests.
kir::StmtRef prefetch_share(const kir::BufferRef& b, const Dim& first, const Dim& number,
                            const Dim& share, int64_t lines);
// The same at once, ahead of a tile's product, for shares of any size.
kir::StmtRef prefetch_burst(const kir::BufferRef& b, const Dim& first, const Dim& number,
                            const Dim& share, int64_t lines);

// k in equal blocks of at most `block` steps (0: one block), each a multiple of the unrolling but
// the last.
struct KBlocks {
  int64_t size = 0, count = 0;
};
KBlocks k_blocks(int64_t k, int64_t block, int64_t unroll);

// ---------------------------------------------------------------- columns into panels

// By how many vectors a panel should be wide for `all` vectors of columns, where cost[i] is what a
// vector costs in a panel of i + 1, relative to the others; the last panel may be narrower.
int panel_vectors(int64_t all, std::span<const double> cost);

// A matrix (k, n) that is packed in panels (compiler/ir/layout.h), as tiles take it.
struct Panels {
  int64_t k = 0, n = 0;
  int64_t stored = 0;  // columns of a panel as it is packed
  int64_t width = 0;   // those that a tile takes: all, but of panels for a machine of wider vectors
  int lanes = 0, vectors = 0;  // of a tile: width = lanes * vectors
  int64_t group = 1;           // rows side by side: those of a step

  // Counted by what a tile takes, as everything below.
  int64_t panels() const { return (n + width - 1) / width; }
  // Vectors of the last panel that hold columns.
  int last_vectors() const {
    return static_cast<int>((n - (panels() - 1) * width + lanes - 1) / lanes);
  }
  // Groups of rows; the last may not be full.
  int64_t steps() const { return (k + group - 1) / group; }
  // First element of step `step` of panel `panel`.
  Dim row_of_panel(const Dim& panel, const Dim& step) const;
  // Elements from there to a column so many steps on.
  Dim distance(const Dim& more_steps, const Dim& column) const {
    return (more_steps * stored + column) * group;
  }
};

// For tiles of at most `most` vectors; nothing if vectors do not divide the columns of a panel.
std::optional<Panels> cut_panels(int64_t k, int64_t n, const ir::Layout& layout, int lanes,
                                 int most);

// ---------------------------------------------------------------- rows into tiles

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
  // tile may have; `after` (may be empty) is emitted once, after whichever body ran.
  kir::StmtRef for_each(const Dim& begin, const Dim& extent,
                        const std::function<kir::StmtRef(const Tile&)>& body,
                        const std::function<kir::StmtRef(const Tile&)>& after) const;
  // A range of the tiles for each thread, as blocks of `block_tiles` tiles, one after the other.
  // The symbols "tile_begin", "tile_count" and "block_row" name a block's first tile, its tiles and
  // its first row.
  kir::StmtRef in_blocks(int64_t block_tiles,
                         const std::function<std::vector<kir::StmtRef>()>& body) const;
  // Each thread's share of the work of all tiles, `units` for each, as blocks of at most
  // `block_tiles` tiles, one after the other, which are about equally high. In a block work is
  // ordered by unit and then by tile: "own_begin" and "own_end" name the thread's stretch of it, of
  // a block that may be others', too; the other symbols are in_blocks'. Shares differ by one
  // unit at most, and a thread that has whole blocks reads no others' rows.
  kir::StmtRef in_even_shares(int64_t block_tiles, int64_t units,
                              const std::function<std::vector<kir::StmtRef>()>& body) const;
  // Where a block's units are those of panels of columns, so many of each but the last, which may
  // have fewer: the panels of which the thread has a part.
  struct Range {
    Dim begin, end;
  };
  static Range own_panels(int64_t units);
  // Names the block's tiles [first_tile, first_tile + own_tiles) that are the thread's of panel
  // "p", which has `of_panel` units: those whose first one lies in its stretch. There may be none,
  // but where all panels have a single unit.
  static std::vector<kir::StmtRef> own_tiles(int64_t units, int64_t of_panel);
  // The same in in_blocks, where all tiles of a block are the thread's.
  static std::vector<kir::StmtRef> all_tiles();
  // First row and rows of each tile, of a number of rows that is known.
  std::vector<std::pair<int64_t, int64_t>> known_tiles() const;
  // Row number r of a tile, kept inside the matrix for kTailsMasked.
  Dim row_of(const Tile& t, const Dim& r) const;

 private:
  kir::StmtRef by_size(Tile t, int low, int high, int step,
                       const std::function<kir::StmtRef(const Tile&)>& body) const;
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
