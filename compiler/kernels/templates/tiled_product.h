// A matrix product whose sums stand in matrix registers (kernel_ir.h, kTiles): what the templates
// that use such registers share. How it walks its operands is told in tiled_lowering.cpp.
#pragma once

#include <array>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "compiler/kernels/template.h"
#include "compiler/kernels/templates/frame.h"
#include "compiler/kernels/templates/rounded_rows.h"
#include "compiler/kernels/templates/tile.h"

namespace nimble::kernels {

// Columns of a fragment's sums, and elements of k that one of its products takes.
int tile_columns(kir::TileFragment f);
int tile_depth(kir::TileFragment f);
// The layout (compiler/ir/layout.h) in which the right-hand side, of `n` columns, should be packed.
std::string tile_layout(kir::TileFragment f, int64_t n);

// Rows of the result whose sums are complete, with the columns of a panel.
struct TiledRows {
  kir::Dim image, row, count;  // rows [row, row + count) of the image; at least one
  kir::Dim group, column;      // the panel's first column, of the group's
  int vectors = 1, lanes = 1;  // of the panel, that hold columns
  bool masked = false;         // not all of their lanes do
  // Vector `v` of the sums of row `row` + r.
  std::function<kir::ValueRef(const kir::Dim& r, int v)> sum;
};

// What a workload states: `images` products of as many rows each. k runs over taps[0] * taps[1]
// pieces of `depth` elements. Columns are cut into groups of `n`, and each of these into panels of
// its own.
struct TiledProduct {
  kir::TileFragment fragment{};
  kir::BufferRef lhs, rhs;
  ir::Layout layout;          // of the right-hand side
  int64_t k = 0, n = 0;       // of a group
  kir::Dim images = 1, rows;  // rows of an image
  int64_t pitch = 0;          // elements of the left-hand side from a row to the next
  int64_t groups = 1, depth = 0;
  std::array<int64_t, 2> taps = {1, 1};
  // Whether zeros follow each piece of a row, up to a multiple of tile_depth(). Several pieces need
  // them where they are none.
  bool filled = false;
  // First element of row 0 of piece (i, j), in the left-hand side.
  std::function<kir::Dim(const kir::Dim& image, const kir::Dim& group, const kir::Dim& i,
                         const kir::Dim& j)>
      lhs_at;
  std::function<kir::StmtRef(const TiledRows&)> store;  // with what is fused behind the product
  std::vector<kir::StmtRef> ahead;                      // stand before the product
  std::vector<kir::BufferRef> scratch;                  // that they and the left-hand side need
  // Where the left-hand side are rows in bytes, whose pieces of k are groups: sums of a piece count
  // by its scales, and those of the result are f32.
  std::optional<RoundedRows> rounded;
};

// Whether panels of that layout can be cut into tiles.
bool fits_tiles(const ir::Layout& layout, kir::TileFragment f);

// What the templates answer of their knobs and configurations.
std::vector<Knob> tiled_knobs(const TiledProduct& p);
bool valid_tiled_config(const TiledProduct& p, const Config& c);
Config default_tiled_config(const TiledProduct& p, const TargetInfo& t);
Lowered lower_tiled(const Workload& w, const Frame& f, const TiledProduct& p, const Config& c,
                    const std::string& name);

}  // namespace nimble::kernels
