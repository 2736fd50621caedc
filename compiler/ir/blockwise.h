// Matrices of 4- or 8-bit numbers with a scale for each block of rows: what blockwise_matmul
// multiplies by.
//
//   w[row, column] = scales[b, column] * (q[row, column] - zeros[b, column]),   b = row / block
//
// q and zeros are unsigned; without zeros they are the middle of the range, 8 or 128.
//
// As a model states them, without a layout (ONNX Runtime's MatMulNBits): q are bytes
// (n, blocks, block * bits / 8), a column's rows one behind the other, of 4 bits the even row in
// the lower half of a byte; scales and zeros are (n, blocks). The last block is filled up, with
// what counts for nothing.
//
// As kernels read them, with a layout "panel48x8" of 4 bits or "panel48x4" of 8 (layout.h): a group
// of rows of a column makes a word of 32 bits, so q are bytes
// (ceil(n / 48), ceil(k / 8), 48, 4); scales and zeros are (ceil(n / 48), blocks, 48). Of 4 bits a
// word's bytes hold the group's first four rows in their lower halves and the last four in their
// upper ones: one mask leaves four neighbouring rows as bytes. What is missing of the last group
// and of the last panel is zero.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "compiler/ir/expr.h"
#include "compiler/ir/layout.h"
#include "compiler/ir/tensor.h"

namespace nimble::ir {

struct Blockwise {
  int64_t bits = 4;    // 4 or 8
  int64_t block = 32;  // rows with one scale: a power of two, see kLeastBlock
  int64_t k = 0, n = 0;
  std::optional<Layout> layout;

  static constexpr int64_t kLeastBlock = 16, kLargestBlock = 65536;

  int64_t blocks() const { return (k + block - 1) / block; }           // of a column
  int64_t per_word() const { return 32 / bits; }                       // rows of a packed word
  int64_t words() const { return (k + per_word() - 1) / per_word(); }  // of a packed column
  int64_t middle() const { return int64_t{1} << (bits - 1); }          // the zero by default

  std::vector<int64_t> weight_shape() const;
  std::vector<int64_t> scale_shape() const;  // of the zeros, too
  // Where q[row, column] stands: the byte, and how far it is shifted in it.
  struct Place {
    int64_t byte = 0;
    int shift = 0;
  };
  Place place(int64_t row, int64_t column) const;
  int64_t scale_index(int64_t block_of_rows, int64_t column) const;
  // q[row, column] of bytes in this form.
  uint8_t number(std::span<const uint8_t> bytes, int64_t row, int64_t column) const {
    const Place p = place(row, column);
    return static_cast<uint8_t>((bytes[static_cast<size_t>(p.byte)] >> p.shift) &
                                ((1 << bits) - 1));
  }
};

// The form that the attributes of a call state, which its type relation has checked.
Blockwise blockwise_of(const Attrs& attrs);

// The same numbers, or scales or zeros, in another form, which differs in its layout alone.
TensorRef repack_weights(const Tensor& w, const Blockwise& from, const Blockwise& to);
TensorRef repack_scales(const Tensor& scales, const Blockwise& from, const Blockwise& to);

}  // namespace nimble::ir
