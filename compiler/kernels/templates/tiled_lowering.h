// The kernel of a product in matrix registers, and how it uses them: tiled_product.cpp decides by
// it which configurations there are.
#pragma once

#include <optional>
#include <string>

#include "compiler/kernels/templates/tiled_product.h"

namespace nimble::kernels {

// Rows of a tile, at most.
int tile_rows(kir::TileFragment f);

// Matrix registers for the operands of so many row tiles by so many vectors; nothing if there are
// too few. The side of fewer tiles is held through a step, the other passes through what is left.
struct TileOperands {
  int lhs = 0, rhs = 0;
};
std::optional<TileOperands> tile_operands_of(kir::TileFragment f, int64_t row_tiles,
                                             int64_t vectors);

// The right-hand side's columns in panels of so many vectors, which must divide its layout's.
Panels tiled_panels(const TiledProduct& p, int64_t vectors);

// `c` must be valid_tiled_config().
kir::Function lower_tiled_product(const Workload& w, const Frame& f, const TiledProduct& p,
                                  const Config& c, const std::string& name);

}  // namespace nimble::kernels
