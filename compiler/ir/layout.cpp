#include "compiler/ir/layout.h"

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
  return std::string(kind == Kind::kPanel ? kPanelPrefix : kGatePrefix) + std::to_string(width);
}

std::vector<Dim> Layout::packed_dims(const Dim& rows, const Dim& columns) const {
  if (kind == Kind::kPanel) return {ceildiv(columns, width), rows, width};
  return {ceildiv(rows, width), rows, floordiv(columns, rows), width};
}

std::optional<Layout> parse_layout(const std::string& text) {
  for (auto [prefix, kind] : {std::pair{kPanelPrefix, Layout::Kind::kPanel},
                              std::pair{kGatePrefix, Layout::Kind::kGate}}) {
    if (!text.starts_with(prefix)) continue;
    if (auto width = positive(std::string_view(text).substr(prefix.size())))
      return Layout{kind, *width};
  }
  return {};
}

TensorRef pack_matrix(const Tensor& w, const Layout& layout, bool transpose) {
  if (w.shape.size() != 2)
    throw Error(Status::kInvalidArgument, w.name,
                fmt::format("pack expects a matrix, this tensor has rank {}", w.shape.size()));
  const int64_t rows = w.shape[transpose ? 1 : 0], columns = w.shape[transpose ? 0 : 1];
  int64_t gates = 1, panels = (columns + layout.width - 1) / layout.width;
  std::vector<int64_t> shape = {panels, rows, layout.width};
  if (layout.kind == Layout::Kind::kGate) {
    if (rows == 0 || columns % rows != 0)
      throw Error(Status::kInvalidArgument, w.name,
                  fmt::format("layout {} expects a matrix (h, gates * h), got ({}, {})",
                              layout.str(), rows, columns));
    gates = columns / rows;
    panels = (rows + layout.width - 1) / layout.width;
    shape = {panels, rows, gates, layout.width};
  }
  uint8_t* data = nullptr;
  auto packed = Tensor::make(w.dtype, shape, &data);
  packed->name = w.name;
  const size_t size = size_of(w.dtype);
  const int64_t per_gate = columns / gates;  // columns of one gate; all columns without gates
  const int64_t row_stride = transpose ? 1 : columns, column_stride = transpose ? rows : 1;
  for (int64_t p = 0; p < panels; ++p)
    for (int64_t k = 0; k < rows; ++k)
      for (int64_t g = 0; g < gates; ++g) {
        uint8_t* out = data + (((p * rows + k) * gates + g) * layout.width) * size;
        const int64_t first = p * layout.width;
        const int64_t count = std::min(layout.width, per_gate - first);
        for (int64_t c = 0; c < count; ++c) {
          const int64_t column = g * per_gate + first + c;
          std::memcpy(out + c * size,
                      w.bytes.data() + (k * row_stride + column * column_stride) * size, size);
        }
      }
  return packed;
}

}  // namespace nimble::ir
