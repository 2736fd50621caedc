#include "compiler/kernels/templates/tiled_product.h"

#include <algorithm>

#include "compiler/kernels/templates/knobs.h"
#include "compiler/kernels/templates/tiled_lowering.h"
#include "vm/base/error.h"

namespace nimble::kernels {

namespace {

constexpr int64_t kMostRowTiles = 4;
constexpr int64_t kMostVectors = 4;

// The most row tiles, up to kMostRowTiles, beside so many vectors.
int64_t most_row_tiles(kir::TileFragment f, int64_t vectors) {
  int64_t n = kMostRowTiles;
  while (n > 0 && !tile_operands_of(f, n, vectors)) --n;
  return n;
}

bool divides_panel(const TiledProduct& p, int64_t vectors) {
  return vectors >= 1 && p.layout.width % (vectors * tile_columns(p.fragment)) == 0;
}

}  // namespace

int tile_rows(kir::TileFragment f) {
  return kir::tile_row_of(f).rows;
}

std::optional<TileOperands> tile_operands_of(kir::TileFragment f, int64_t row_tiles,
                                             int64_t vectors) {
  const int64_t held = std::min(row_tiles, vectors), other = std::max(row_tiles, vectors);
  const int64_t left = kir::tile_row_of(f).registers - row_tiles * vectors - held;
  if (row_tiles < 1 || vectors < 1 || left < 1) return {};
  const auto few = static_cast<int>(held), many = static_cast<int>(std::min(left, other));
  return row_tiles <= vectors ? TileOperands{few, many} : TileOperands{many, few};
}

Panels tiled_panels(const TiledProduct& p, int64_t vectors) {
  const auto cut =
      cut_panels(p.k, p.n, p.layout, tile_columns(p.fragment), static_cast<int>(vectors));
  NIMBLE_CHECK(cut && cut->vectors == vectors, "{} in panels of {} vectors", p.layout.str(),
               vectors);
  return *cut;
}

int tile_columns(kir::TileFragment f) {
  const kir::TileFragmentRow& row = kir::tile_row_of(f);
  return row.row_bytes / static_cast<int>(size_of(row.sum));
}

int tile_depth(kir::TileFragment f) {
  const kir::TileFragmentRow& row = kir::tile_row_of(f);
  return row.row_bytes / static_cast<int>(size_of(row.a));
}

std::string tile_layout(kir::TileFragment f, int64_t n) {
  // Two vectors by two row tiles load least for a product; more columns leave too few registers.
  // Columns that are none are multiplied, too, so few columns are not filled up to two vectors.
  const int64_t columns = tile_columns(f), over = n % (2 * columns);
  const bool wide = n > columns && (over == 0 || over > columns || n > 6 * columns);
  return ir::Layout{ir::Layout::Kind::kPanel, wide ? 2 * columns : columns,
                    kir::tile_row_of(f).group}
      .str();
}

bool fits_tiles(const ir::Layout& layout, kir::TileFragment f) {
  return layout.kind == ir::Layout::Kind::kPanel && layout.group == kir::tile_row_of(f).group &&
         layout.width % tile_columns(f) == 0;
}

std::vector<Knob> tiled_knobs(const TiledProduct& p) {
  Knob rows{"rows", {}, /*tile=*/true}, vectors{"vectors", {}};
  int64_t most = 0;
  for (int64_t v = 1; v <= kMostVectors; ++v)
    if (divides_panel(p, v) && most_row_tiles(p.fragment, v) > 0) {
      vectors.choices.emplace_back(v);
      most = std::max(most, most_row_tiles(p.fragment, v));
    }
  for (int64_t t = 1; t <= most; ++t) rows.choices.emplace_back(t * tile_rows(p.fragment));
  return {std::move(rows),
          std::move(vectors),
          int_knob("unroll", {1, 2, 4}),
          int_knob("block_rows", {32, 64, 128, 256, 512}),
          {"prefetch", {"none", "spread"}}};
}

bool valid_tiled_config(const TiledProduct& p, const Config& c) {
  if (!well_formed(tiled_knobs(p), c)) return false;
  const int64_t rows = knob_int(c, "rows"), vectors = knob_int(c, "vectors");
  if (rows % tile_rows(p.fragment) != 0 || !divides_panel(p, vectors)) return false;
  if (vectors > kMostVectors ||
      !tile_operands_of(p.fragment, rows / tile_rows(p.fragment), vectors))
    return false;
  return knob_int(c, "unroll") >= 1 && knob_int(c, "unroll") <= 64 &&
         knob_int(c, "block_rows") >= rows;
}

Config default_tiled_config(const TiledProduct& p, const TargetInfo& t) {
  const int64_t height = tile_rows(p.fragment);
  const auto tiles = ir::ceildiv(p.rows, height).as_constant();
  // The blocking that multiplies most for what it loads.
  int64_t row_tiles = 1, vectors = 1;
  double best = 0;
  for (int64_t v = 1; v <= kMostVectors; ++v) {
    if (!divides_panel(p, v)) continue;
    int64_t r = most_row_tiles(p.fragment, v);
    if (tiles) r = std::min(r, std::max<int64_t>(*tiles, 1));
    const double work = static_cast<double>(r * v) / static_cast<double>(r + v);
    if (r > 0 && work > best) best = work, row_tiles = r, vectors = v;
  }
  // The left-hand rows of a block take at most half of L2; where there are few panels to
  // split over the threads, there are more blocks.
  const int64_t row_bytes =
      (p.rounded ? p.k : p.depth) * static_cast<int64_t>(size_of(p.lhs->dtype));
  const int64_t panels = p.groups * tiled_panels(p, vectors).panels();
  int64_t block = 512;
  while (block > 32 && (block * row_bytes > t.l2_bytes / 2 || (panels < 8 && block > 64)))
    block /= 2;
  return {{"rows", row_tiles * height},
          {"vectors", vectors},
          {"unroll", int64_t{1}},
          {"block_rows", std::max(block, row_tiles * height)},
          {"prefetch", "spread"}};
}

Lowered lower_tiled(const Workload& w, const Frame& f, const TiledProduct& p, const Config& c,
                    const std::string& name) {
  // The items, as far as they are known: more threads would find nothing to do.
  const int64_t block = std::max<int64_t>(1, knob_int(c, "block_rows") / tile_rows(p.fragment));
  const auto blocks =
      (p.images * ir::ceildiv(ir::ceildiv(p.rows, tile_rows(p.fragment)), block)).as_constant();
  int64_t items = 0;
  if (blocks)
    items = std::clamp<int64_t>(
        *blocks * p.groups * tiled_panels(p, knob_int(c, "vectors")).panels(), 1, 1 << 20);
  return one_kernel(lower_tiled_product(w, f, p, c, name), static_cast<int>(items));
}

}  // namespace nimble::kernels
