#include "compiler/ir/layout.h"

#include <algorithm>
#include <charconv>
#include <cstring>

namespace nimble::ir {
namespace {

constexpr std::string_view kPanelPrefix = "panel", kGatePrefix = "gate";

std::optional<int64_t> positive(std::string_view text) {
  int64_t v = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), v);
  if (error != std::errc() || end != text.data() + text.size() || v <= 0 || v > 4096) return {};
  return v;
}

}  // namespace

std::string Layout::str() const {
  return std::string(kind == Kind::kPanel ? kPanelPrefix : kGatePrefix) + std::to_string(width) +
         (group == 1 ? "" : "x" + std::to_string(group));
}

std::vector<Dim> Layout::packed_dims(const Dim& rows, const Dim& columns) const {
  if (kind == Kind::kGate) return {ceildiv(rows, width), rows, floordiv(columns, rows), width};
  if (group == 1) return {ceildiv(columns, width), rows, width};
  return {ceildiv(columns, width), ceildiv(rows, group), width, group};
}

int64_t Layout::panel_elements(int64_t rows) const {
  return (rows + group - 1) / group * group * width;
}

int64_t Layout::index_of(int64_t row, int64_t column, int64_t rows) const {
  return column / width * panel_elements(rows) + (row / group * width + column % width) * group +
         row % group;
}

Dim Layout::rows_of_planes(const Dim& channels, int64_t taps) const {
  return ceildiv(channels, group) * (taps * group);
}

int64_t Layout::row_of_plane(int64_t channel, int64_t tap, int64_t taps) const {
  return (channel / group * taps + tap) * group + channel % group;
}

std::optional<Layout> parse_layout(const std::string& text) {
  for (auto [prefix, kind] : {std::pair{kPanelPrefix, Layout::Kind::kPanel},
                              std::pair{kGatePrefix, Layout::Kind::kGate}}) {
    if (!text.starts_with(prefix)) continue;
    const std::string_view numbers = std::string_view(text).substr(prefix.size());
    const size_t cross = numbers.find('x');
    const auto width = positive(numbers.substr(0, cross));
    if (!width) continue;
    if (cross == std::string_view::npos) return Layout{kind, *width};
    const auto group = positive(numbers.substr(cross + 1));
    // One text a layout: groups of one row are no groups.
    if (group && *group > 1 && kind == Layout::Kind::kPanel) return Layout{kind, *width, *group};
  }
  return {};
}

namespace {

// The extents of a concrete matrix once packed.
std::vector<int64_t> packed_shape(const Layout& layout, int64_t rows, int64_t columns) {
  std::vector<int64_t> shape;
  for (const Dim& d : layout.packed_dims(rows, columns)) {
    const auto extent = d.as_constant();
    NIMBLE_CHECK(extent, "constant extents give constant extents, not {}", d.str());
    shape.push_back(*extent);
  }
  return shape;
}

}  // namespace

TensorRef pack_matrix(const Tensor& w, const Layout& layout, bool transpose) {
  if (w.shape.size() != 2)
    throw Error(Status::kInvalidArgument, w.name,
                fmt::format("pack expects a matrix, this tensor has rank {}", w.shape.size()));
  const int64_t rows = w.shape[transpose ? 1 : 0], columns = w.shape[transpose ? 0 : 1];
  const bool gate = layout.kind == Layout::Kind::kGate;
  if (gate && (rows == 0 || columns % rows != 0))
    throw Error(Status::kInvalidArgument, w.name,
                fmt::format("layout {} expects a matrix (h, gates * h), got ({}, {})", layout.str(),
                            rows, columns));
  uint8_t* data = nullptr;
  auto packed = Tensor::make(w.dtype, packed_shape(layout, rows, columns), &data);
  packed->name = w.name;
  const auto size = static_cast<int64_t>(size_of(w.dtype));
  const int64_t gates = gate ? columns / rows : 1;
  const int64_t per_gate = gates ? columns / gates : 0;  // columns of one gate, or all
  const int64_t row_stride = transpose ? 1 : columns, column_stride = transpose ? rows : 1;
  // A panel of one gate at a time, along its columns, which lie `group` elements apart.
  for (int64_t first = 0; first < per_gate; first += layout.width)
    for (int64_t k = 0; k < rows; ++k)
      for (int64_t g = 0; g < gates; ++g) {
        const int64_t to = gate ? ((first / layout.width * rows + k) * gates + g) * layout.width
                                : layout.index_of(k, first, rows);
        const int64_t from = k * row_stride + (g * per_gate + first) * column_stride;
        const int64_t count = std::min(layout.width, per_gate - first);
        for (int64_t c = 0; c < count; ++c)
          std::memcpy(data + (to + c * layout.group) * size,
                      w.bytes.data() + (from + c * column_stride) * size,
                      static_cast<size_t>(size));
      }
  return packed;
}

}  // namespace nimble::ir
