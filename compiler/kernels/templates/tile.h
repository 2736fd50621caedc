// The register tile: the inner loops that all products by vectors share, of matrices, convolutions,
// recurrent cells and attention.
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
// left-hand side element by element, which is not (rows_type, operand_types.h).
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>

#include "compiler/ir/layout.h"
#include "compiler/kernels/fragments.h"
#include "compiler/kernels/kernel_ir.h"
#include "compiler/kernels/target.h"
#include "compiler/kernels/templates/operand_types.h"

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

// So many rows of a tile, or fewer where a fragment's instructions would have no registers left
// beside operands and sums.
int64_t rows_with_room(const TargetInfo& t, std::optional<kir::Fragment> fragment, int64_t vectors,
                       int64_t rows);
// The registers that hold a step's part of a panel.
kir::BufferRef panel_registers(DType sum, int vectors, int lanes,
                               std::optional<kir::Fragment> fragment);

// accumulators[r*vectors + v] += sum over k of lhs(r, k) * rhs(v, k) for the `rows` rows r from
// `first_row` on. Further chains are added into the first at the end. `prefix` keeps the names of
// loop variables apart.
kir::StmtRef tile_product(const RegisterTile& t, const std::string& prefix);

// Sets the accumulators of all chains to zero.
kir::StmtRef tile_zero(const RegisterTile& t, const std::string& prefix);

// The accumulators of so many rows of vectors to where they wait in `sums`, and back.
using SumPlace = std::function<Dim(const Dim& row, const Dim& vector)>;
kir::StmtRef keep_sums(const kir::BufferRef& accumulators, int rows, int vectors,
                       const kir::BufferRef& sums, const SumPlace& place);
kir::StmtRef resume_sums(const kir::BufferRef& accumulators, int rows, int vectors,
                         const kir::BufferRef& sums, const SumPlace& place);

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
  // What `body` makes of a panel, given those of its vectors that hold columns: the last one has
  // code of its own where it has fewer.
  kir::StmtRef last_apart(const Dim& panel,
                          const std::function<kir::StmtRef(int vectors)>& body) const;
  // What `stores` makes of a panel in such code for so many vectors, which is told whether columns
  // may end within it.
  kir::StmtRef by_fullness(const Dim& panel, int of_vectors,
                           const std::function<kir::StmtRef(bool may_end)>& stores) const;
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

}  // namespace nimble::kernels
