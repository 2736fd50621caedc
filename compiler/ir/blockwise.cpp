#include "compiler/ir/blockwise.h"

#include <cstring>

namespace nimble::ir {

std::vector<int64_t> Blockwise::weight_shape() const {
  if (!layout) return {n, blocks(), block * bits / 8};
  return {(n + layout->width - 1) / layout->width, words(), layout->width, 4};
}

std::vector<int64_t> Blockwise::scale_shape() const {
  if (!layout) return {n, blocks()};
  return {(n + layout->width - 1) / layout->width, blocks(), layout->width};
}

Blockwise::Place Blockwise::place(int64_t row, int64_t column) const {
  if (!layout) {
    const int64_t bit = ((column * blocks() + row / block) * block + row % block) * bits;
    return {bit / 8, static_cast<int>(bit % 8)};
  }
  const int64_t of_word = row % layout->group;
  const int64_t word = (layout->index_of(row, column, k) - of_word) / layout->group;
  return {4 * word + of_word % 4, static_cast<int>(of_word / 4 * bits)};
}

int64_t Blockwise::scale_index(int64_t block_of_rows, int64_t column) const {
  if (!layout) return column * blocks() + block_of_rows;
  const int64_t width = layout->width;
  return (column / width * blocks() + block_of_rows) * width + column % width;
}

Blockwise blockwise_of(const Attrs& attrs) {
  Blockwise b;
  b.bits = attr<int64_t>(attrs, "bits");
  b.block = attr<int64_t>(attrs, "block");
  b.k = attr<int64_t>(attrs, "k");
  b.n = attr<int64_t>(attrs, "n");
  if (attrs.contains("layout")) b.layout = parse_layout(attr<std::string>(attrs, "layout"));
  return b;
}

TensorRef repack_weights(const Tensor& w, const Blockwise& from, const Blockwise& to) {
  uint8_t* data = nullptr;
  auto packed = Tensor::make(DType::kU8, to.weight_shape(), &data);
  for (int64_t column = 0; column < to.n; ++column)
    for (int64_t row = 0; row < to.k; ++row) {
      const Blockwise::Place p = to.place(row, column);
      data[p.byte] |= static_cast<uint8_t>(from.number(w.bytes, row, column) << p.shift);
    }
  return packed;
}

TensorRef repack_scales(const Tensor& scales, const Blockwise& from, const Blockwise& to) {
  uint8_t* data = nullptr;
  auto packed = Tensor::make(scales.dtype, to.scale_shape(), &data);
  const size_t size = size_of(scales.dtype);
  for (int64_t column = 0; column < to.n; ++column)
    for (int64_t b = 0; b < to.blocks(); ++b)
      std::memcpy(data + static_cast<size_t>(to.scale_index(b, column)) * size,
                  scales.bytes.data() + static_cast<size_t>(from.scale_index(b, column)) * size,
                  size);
  return packed;
}

}  // namespace nimble::ir
