// Layouts of packed constant matrices: what the attribute `layout` of pack, packed_matmul and the
// packed recurrent cells means.
//
// Packing turns the column-major walk of a matrix product into one forward stream. The columns
// are cut into panels as wide as a register tile; within a panel the rows (k) follow each other,
// so an inner loop reads consecutive cache lines and the next panel starts where one ends.
//
//   "panel48"  a matrix (k, n) becomes (ceil(n / 48), k, 48); missing columns are zero.
//   "panel48x2"  the same in groups of 2 rows, (ceil(n / 48), ceil(k / 2), 48, 2): the rows of a
//              group stand side by side, column by column, as instructions take them that add up
//              the products of narrow elements by twos or fours. Missing rows are zero too.
//   "gate16"   a recurrent matrix (h, g * h) of g gates becomes (ceil(h / 16), h, g, 16): a panel
//              holds all gates of 16 hidden units, so their cells can be updated from registers.
//              Missing units are zero.
//
// The numbers are any positive integers up to 4096. One constant has one layout per target.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "compiler/ir/dim.h"
#include "compiler/ir/tensor.h"

namespace nimble::ir {

struct Layout {
  enum class Kind { kPanel, kGate };
  Kind kind = Kind::kPanel;
  int64_t width = 0;  // kPanel: columns of a panel; kGate: hidden units of a panel
  int64_t group = 1;  // kPanel: rows that stand side by side; kGate: always 1

  std::string str() const;
  // Extents after packing a matrix of `rows` x `columns`. For kGate, columns is a multiple of rows.
  std::vector<Dim> packed_dims(const Dim& rows, const Dim& columns) const;
  // The matrix of a convolution's weights whose images have channels first: how many rows it has,
  // and which is a channel's of one of so many taps. The rows of a group are neighbouring channels
  // of a tap; of channels that are missing in the last group they count for nothing.
  Dim rows_of_planes(const Dim& channels, int64_t taps) const;
  int64_t row_of_plane(int64_t channel, int64_t tap, int64_t taps) const;
  // Of kPanel: how many elements a panel of a matrix of so many rows has, and where in the packed
  // matrix an element lies.
  int64_t panel_elements(int64_t rows) const;
  int64_t index_of(int64_t row, int64_t column, int64_t rows) const;
};

// Nothing if `text` is no layout.
std::optional<Layout> parse_layout(const std::string& text);

// Packs a 2-D tensor of any dtype; with `transpose`, `w` is stored as (columns, rows).
// nimble::Error if the rank is not 2 or a kGate matrix is not (h, g * h).
TensorRef pack_matrix(const Tensor& w, const Layout& layout, bool transpose);

}  // namespace nimble::ir
