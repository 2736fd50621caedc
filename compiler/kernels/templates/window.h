// One axis of a window that slides over images: what convolutions and poolings ask of it.
#pragma once

#include <array>
#include <cstdint>

#include "compiler/ir/expr.h"
#include "compiler/kernels/kernel_ir.h"
#include "compiler/kernels/workload.h"

namespace nimble::kernels {

// Position o of the result has its first tap at element o * stride - before of the image, which may
// lie outside; tap t stands t * dilation behind it. Where `clipped` is false no window leaves the
// image.
struct Window {
  kir::Dim in, out;  // elements of the image, positions of the result
  int64_t taps = 1, stride = 1, before = 0, after = 0, dilation = 1;
  bool clipped = true;

  int64_t reach() const { return (taps - 1) * dilation; }  // from the first tap to the last
  kir::Dim start(const kir::Dim& position) const { return position * stride - before; }

  // Taps [begin_tap, end_tap) of the window that starts at `start` lie inside; there are none where
  // the second is not above the first.
  kir::Dim begin_tap(const kir::Dim& start) const;
  kir::Dim end_tap(const kir::Dim& start) const;
  // How many taps of the window at a position lie inside, or inside image and padding.
  kir::Dim counted(const kir::Dim& position, bool with_padding) const;

  // Positions [first_with, end_with) find a tap inside; there are none where the second is not
  // above the first.
  kir::Dim first_with(const kir::Dim& tap) const;
  kir::Dim end_with(const kir::Dim& tap) const;

  // Positions [begin_inside, end_inside) have windows without padding.
  kir::Dim begin_inside() const;
  kir::Dim end_inside() const;

  // The same axis with other names for its extents.
  Window with_extents(const kir::Dim& image, const kir::Dim& result) const;
};

// Rows and columns of a call with strides, pads (top, left, bottom, right), dilations and perhaps
// ceil_mode, whose window has so many taps. `in` and `out` are the extents along these two axes.
std::array<Window, 2> windows_of(const ir::Attrs& attrs, const std::array<kir::Dim, 2>& in,
                                 const std::array<kir::Dim, 2>& out,
                                 const std::array<int64_t, 2>& taps);

// Whether a workload is one maximum or average pooling of images in that order, of a type that is
// computed in itself; `narrow`: or of floats that are computed in another (compute_type).
bool is_pooling(const Workload& w, bool channels_last, bool narrow = false);

// What a maximum starts with: nothing of its type is less.
kir::ValueRef least_of(DType t, int lanes);

}  // namespace nimble::kernels
