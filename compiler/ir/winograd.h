// Convolution of 3 x 3 taps by Winograd's tiles: the numbers of the operator packed_winograd.
//
// A tile of m x m pixels of the result is made from the (m + 2) x (m + 2) pixels of the image under
// it. With the matrices B, G and A of the tile's size it is
//
//   A' ((G g G') . (B' d B)) A        g the taps, d the pixels, ' transposed, . element by element
//
// so that of m^2 pixels there are (m + 2)^2 multiplications for each pair of channels instead of
// 9 m^2: 4 instead of 9 for a pixel where m is 2, 2.25 where it is 4. Summed over the input
// channels they are (m + 2)^2 products of matrices, whose rows are tiles.
//
// The sums are others than those of the plain convolution, and lose more by rounding, the more the
// larger m is (docs/running.md). Method: A. Lavin, S. Gray, "Fast algorithms for convolutional
// neural networks", CVPR 2016, after S. Winograd, "Arithmetic complexity of computations", 1980.
#pragma once

#include <cstdint>
#include <span>

#include "compiler/ir/expr.h"
#include "compiler/ir/layout.h"
#include "compiler/ir/tensor.h"

namespace nimble::ir {

struct Winograd {
  static constexpr int64_t kTaps = 3;

  int64_t tile = 0;  // pixels of the result along an axis
  // B', (points, points), G, (points, 3), and A', (tile, points), row by row. Rows 2 i - 1 and 2 i
  // of B' and G, and columns of A', belong to a point and its negative: elements of the one are
  // those of the other or their negatives.
  std::span<const double> image, weights, result;

  int64_t points() const { return tile + kTaps - 1; }  // pixels of the image along an axis
  int64_t products() const { return points() * points(); }
};

// Of tiles of so many pixels along an axis, 2 or 4; null if there are none.
const Winograd* find_winograd(int64_t tile);
// Of a call whose type relation has accepted it.
const Winograd& winograd_of(const Attrs& attrs);

// G g G' of f32 weights HWIO (3, 3, c, n): (panels, products, c, width) of a panel layout. A panel
// of columns holds the matrices (c, width) of all products one behind the other; missing columns
// are zero. Computed in f64, rounded to f32. Null if an element would not be finite.
TensorRef winograd_weights(const Tensor& weights, const Winograd& form, const Layout& layout);

}  // namespace nimble::ir
