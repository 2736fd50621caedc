// Convolutions of channels-last images as the tests of their templates state them.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "compiler/ir/layout.h"
#include "compiler/kernels/templates/conv2d_nhwc.h"
#include "compiler/kernels/test/operator_rows.h"
#include "compiler/kernels/test/template_harness.h"

namespace nimble::kernels::testing {

struct Filter {
  int64_t kh, kw, sh, sw, top, left, bottom, right, dh, dw, groups, in, out;

  std::string attributes() const {
    return fmt::format(
        "strides = [{}, {}], pads = [{}, {}, {}, {}], dilations = [{}, {}], skip_padding = true",
        sh, sw, top, left, bottom, right, dh, dw);
  }
  bool fits(int64_t h, int64_t w) const {
    return h + top + bottom > (kh - 1) * dh && w + left + right > (kw - 1) * dw;
  }
  std::string str() const {
    return fmt::format("{}x{}/{} {}->{} in {} groups", kh, kw, sh, in, out, groups);
  }
};

// Values of b, h, w: single pixels and rows, widths around the tiles, no image at all.
inline Sizes sizes_of(const Filter& f) {
  Sizes all;
  for (const auto& s : Sizes{{1, 7, 7},
                             {2, 9, 31},
                             {1, 12, 18},
                             {0, 8, 8},
                             {1, 3, 43},
                             {1, 1, 29},
                             {1, 5, 1},
                             {1, 4, 2},
                             {3, 2, 15},
                             {1, 6, 14}})
    if (f.fits(s[1], s[2])) all.push_back(s);
  return all;
}

inline Case convolution(const Filter& f, const std::string& served_by) {
  Case c;
  c.text = fmt::format(
      "fn @f(%x: Tensor[(b, h, w, {}), f32], %w: Tensor[({}, {}, {}, {}), f32], "
      "%c: Tensor[({}), f32]) {{ let %y = conv2d(%x, %w, %c) {{{}, groups = {}, "
      "layout = \"nhwc\"}}; let %r = relu(%y); %r }}",
      f.in, f.kh, f.kw, f.in / f.groups, f.out, f.out, f.attributes(), f.groups);
  c.served_by = served_by;
  c.oracle = by_reference(c.text);
  c.sizes = sizes_of(f);
  c.tolerance = 1e-4;
  c.configurations = 10;
  return c;
}

// How a group's weights of `type` are packed: in groups of so many rows (0: as the target wants).
inline ir::Layout panels_of(const Filter& f, DType type, int64_t group) {
  ir::Layout panels =
      *ir::parse_layout(conv2d_nhwc_layout(mode().targets.front(), type, f.out / f.groups));
  if (group > 0) panels.group = group;
  return panels;
}

// Weights of `type` in panels, which may be made for a machine of wider vectors; the image of the
// same type, if it is no other one, but of u8 for i8, whose sums are i32. `most`: the size that no
// weight exceeds; 0: any.
inline Case packed_convolution(const Filter& f, DType type, std::optional<DType> of_image = {},
                               int64_t group = 0, int64_t most = 0) {
  const bool bytes = type == DType::kI8;
  const DType image = of_image.value_or(bytes ? DType::kU8 : type);
  const DType sums = bytes ? DType::kI32 : DType::kF32;
  const int64_t n = f.out / f.groups, k = f.kh * f.kw * f.in / f.groups;
  const ir::Layout panels = panels_of(f, type, group);
  const std::string layout = panels.str();
  std::string extents;
  for (const ir::Dim& d : panels.packed_dims(k, n))
    extents += extents.empty() ? (d * f.groups).str() : ", " + d.str();
  Case c = convolution(f, "conv2d_nhwc");
  c.text = fmt::format(
      "fn @f(%x: Tensor[(b, h, w, {}), {}], %w: Tensor[({}), {}], %c: Tensor[({}), {}]) {{ "
      "let %y = packed_conv2d(%x, %w, %c) {{kernel = [{}, {}], filters = {}, groups = {}, {}, "
      "layout = \"{}\"{}{}}}; let %r = relu(%y); %r }}",
      f.in, name_of(image), extents, name_of(type), f.out, name_of(sums), f.kh, f.kw, f.out,
      f.groups, f.attributes(), layout,
      type == sums ? "" : fmt::format(", out = {}", name_of(sums)),
      most == 0 ? "" : fmt::format(", max_weight = {}", most));
  c.oracle = by_reference(c.text);
  c.low = -1, c.high = 1;  // sums of many channels lose little where they cancel
  const double largest = most == 0 ? 127 : static_cast<double>(most);
  if (bytes) c.low = -largest, c.high = largest, c.tolerance = 0;
  return c;
}

// Checks the case that `make` gives of each filter, until one is wrong.
template <class Make>
void check_each(const std::vector<Filter>& filters, const Make& make) {
  for (const Filter& f : filters) {
    SCOPED_TRACE(f.str());
    check(make(f));
    if (::testing::Test::HasFatalFailure()) return;
  }
}

// What stands in a case's text exactly as `from` becomes `to`, where it stands first.
inline void replace_once(std::string& text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  ASSERT_NE(at, std::string::npos) << text << "\nhas no " << from;
  text.replace(at, from.size(), to);
}

}  // namespace nimble::kernels::testing
