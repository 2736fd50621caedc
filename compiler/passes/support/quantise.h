// Products in 8-bit integers whose scales are found at run time, one for each row of the left-hand
// side, and at compile time, one for each column of the right-hand side.
//
//   x ≈ s (q - 128), s = max |x| / 127 of its row, q = round(x / s) + 128 in 1 … 255 (u8)
//   w ≈ t v,         t = max |w| / 127 of its column, v = round(w / t) in -127 … 127 (i8)
//   x w ≈ s t (Σ q v - 128 Σ v)
//
// Each of x and w is off by at most half a step, so an element of the product by at most
// k (max |x| max |w|) / 127, and usually by about a root of k of such steps. A row or column of
// zeros has zeros as its product, a row with a NaN is NaN; the sums, in i32, are exact.
#pragma once

#include <optional>

#include "compiler/ir/builder.h"

namespace nimble::passes {

// The longest rows: 255 * 127 of each element, and the correction, fit 31 bits.
inline constexpr int64_t kMostQuantised = 32768;

struct QuantisedColumns {
  ir::TensorRef values;   // i8, of the matrix's shape
  ir::TensorRef scales;   // f32, one for each column
  ir::TensorRef offsets;  // i32: 128 times a column's sum
};

// A constant f32 matrix (k, n), stored as (n, k) where `transposed`. Nothing if a weight is not
// finite, or if there are more than kMostQuantised rows.
std::optional<QuantisedColumns> quantise_columns(const ir::Tensor& w, bool transposed);

// The product e = matmul(x, W) of a typed f32 value of rank 2 or more with such a matrix, written
// out with 8-bit operands at the end of `out`; the type of the result is e's. Nothing as above.
std::optional<ir::Atom> quantised_product(const ir::Binding& b, ir::BlockBuilder& out);

}  // namespace nimble::passes
