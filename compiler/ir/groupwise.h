// Products of rows that are rounded to bytes, group by group, with weights in bytes: what
// packed_groupwise_matmul multiplies.
//
// A row of x, k elements, is cut into groups of `group`. Each has a least element l and a step, and
// its elements become whole numbers q from 0 to `steps`; each group of k of a column of the weights
// has a scale t of its own, and v from -`most` to `most`:
//
//   x ≈ l + s q,  s = max(max x - min x, kLeastRange) / steps,  w ≈ t v
//   x w ≈ Σ over groups  t (s Σ q v + l Σ v)
//
// Σ q v is exact, and as an f32, too: no group is longer than kLargestGroup. The operands are x,
// the v in a panel layout of groups of kByteRows or kI16Rows rows (layout.h), the t, and the t Σ
// v, both (k / group, columns of all panels). So
//
//   y = 0, and for each group in turn   y = (y + l sums) + (Σ q v · s) t
//
// in f32, each operation rounded by itself: every machine gives the same bits. A group with a NaN
// or an infinity, or whose range is beyond f32's, makes its row NaN.
#pragma once

#include <cstdint>

#include "compiler/ir/expr.h"
#include "compiler/ir/layout.h"

namespace nimble::ir {

struct Groupwise {
  int64_t group = 0;  // a multiple of kUnit
  int64_t k = 0, n = 0;
  Layout layout;
  int64_t steps = kSteps;   // of the range of a group of a row
  int64_t most = kAnyByte;  // what no weight exceeds in size

  // What matrix registers take of a row at a time; 255 * 127 * kLargestGroup is less than 2^24.
  static constexpr int64_t kUnit = 64, kLargestGroup = 512;
  // Of the layout's groups: what is multiplied as bytes, and what as i16.
  static constexpr int64_t kByteRows = 4, kI16Rows = 2;
  // The most steps, and the size of weights, that bytes hold.
  static constexpr int64_t kSteps = 255, kAnyByte = 128;
  static constexpr float kLeastRange = 1e-30F;  // equal elements have a step, too

  int64_t groups() const { return k / group; }
  // The size of weights beside which rows of full bytes would have sums as large as these can be.
  int64_t most_beside_bytes() const;
  // Columns of the scales and of the sums.
  int64_t stored() const { return (n + layout.width - 1) / layout.width * layout.width; }
};

// The form that the attributes of a call state, which its type relation has checked.
Groupwise groupwise_of(const Attrs& attrs);

}  // namespace nimble::ir
