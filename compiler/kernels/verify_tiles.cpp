#include "compiler/kernels/verify_tiles.h"

#include <algorithm>

#include "compiler/kernels/verify_fault.h"

namespace nimble::kir {

void check_tile_buffer(const Buffer& b) {
  int rows = 0;
  size_t bytes = 0;
  for (const TileFragmentRow& row : all_tile_fragments()) {
    rows = std::max(rows, row.rows);
    bytes = std::max(bytes, static_cast<size_t>(row.row_bytes));
  }
  require(b.rows >= 1 && b.rows <= rows, "{}: {} rows; a matrix register has 1 to {}", b.name,
          b.rows, rows);
  require(b.lanes >= 1 && size_of(b.dtype) * static_cast<size_t>(b.lanes) <= bytes,
          "{}: rows of {} {}; a matrix register's have up to {} bytes", b.name, b.lanes,
          nimble::name_of(b.dtype), bytes);
}

void check_tile_operands(const TileFragmentRow& row, const Buffer& sum, const Buffer& a,
                         const Buffer& b) {
  const DType types[] = {row.sum, row.a, row.b};
  const Buffer* const operands[] = {&sum, &a, &b};
  for (size_t i = 0; i < 3; ++i) {
    const Buffer& o = *operands[i];
    require(o.dtype == types[i], "{} takes {} for {}, which is {}", row.name,
            nimble::name_of(types[i]), o.name, nimble::name_of(o.dtype));
    require(o.rows <= row.rows && size_of(o.dtype) * static_cast<size_t>(o.lanes) <=
                                      static_cast<size_t>(row.row_bytes),
            "{} takes up to {} rows of {} bytes; {} has more", row.name, row.rows, row.row_bytes,
            o.name);
  }
  require(&a != &b, "both factors of {} are of {}; they need buffers of their own", row.name,
          a.name);
  require(a.lanes % row.group == 0, "rows of {} have {} elements; {} takes groups of {}", a.name,
          a.lanes, row.name, row.group);
  require(b.lanes == row.group * sum.lanes, "rows of {} have {} elements; {} are needed for {}",
          b.name, b.lanes, row.group * sum.lanes, sum.name);
}

}  // namespace nimble::kir
