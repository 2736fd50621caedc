// Tiles of an image's row whose pixels a tap finds inside the image only in part.
#pragma once

#include <functional>
#include <string>

#include "compiler/kernels/templates/row_tiles.h"
#include "compiler/kernels/templates/window.h"

namespace nimble::kernels {

// What is done for pixels [first, first + rows) of a tile; the prefix keeps names apart.
using TilePart = std::function<kir::StmtRef(int first, int rows, const std::string& prefix)>;

// `part` for the pixels of a tile of n that a tap finds inside the image. `tiles` are those of a
// row of the result along `x`, and the tap of the tile's first pixel lies in column `start` of the
// image. Null if `whole` is not asked for, being done, and there is nothing else.
//
// A tap's column is outside for the first few or the last few pixels of a tile only, so the pixels
// that remain are a range, and ranges are few: with a padding of 1, all pixels, all but the first,
// all but the last. Each of these is a part of its own, chosen by two comparisons; other ranges,
// which only images narrower than the window have, are done pixel by pixel.
kir::StmtRef part_of_tile(const Window& x, const RowTiles& tiles, int n, const Dim& start,
                          const TilePart& part, bool whole);

}  // namespace nimble::kernels
