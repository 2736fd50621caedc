// Convolutions of channels-last images: what the templates that serve them read off a workload.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "compiler/ir/layout.h"
#include "compiler/kernels/templates/frame.h"
#include "compiler/kernels/templates/window.h"

namespace nimble::kernels {

// A convolution of NHWC images with weights HWIO or packed, an element-wise epilogue behind it.
// Only with packed weights the image may be NCHW. Taps in the padding are left out, so it has none
// or says that it may be skipped.
struct ConvNhwc {
  // Channels of the image, from `first` on of one with `pitch` of them.
  struct Source {
    kir::BufferRef image;
    int64_t pitch = 0, first = 0, channels = 0;
  };

  Frame frame;
  kir::BufferRef image;                           // of the first source, as the workload has it
  kir::BufferRef weights;                         // null if they are one constant element
  DType dtype{};                                  // of the sums and the result
  std::optional<kir::Fragment> fragment;          // if it multiplies image and weights
  std::vector<kir::Dim> in, out;                  // NHWC, also of an image that is NCHW in memory
  bool channels_first = false;                    // it is
  int64_t groups = 1, channels = 1, filters = 1;  // input and output channels of a group
  std::array<Window, 2> windows;                  // rows, columns
  std::optional<ir::Layout> layout;               // of packed weights

  // Where the channels of the image lie, one source's behind another's; several are an image of one
  // group.
  std::vector<Source> sources;

  const ir::Expr& call() const { return *frame.anchor->value; }
  int64_t taps() const { return windows[0].taps * windows[1].taps; }
  bool depthwise() const { return channels == 1 && filters == 1; }

  // `lanes` weights of an HWIO tensor from flat element `index` on; those behind `valid` are 0.
  kir::ValueRef weight(const kir::Dim& index, int lanes,
                       const std::optional<kir::Dim>& valid) const;
  // The bias of `lanes` output channels from `channel` on; null if there is none.
  kir::ValueRef bias(const Workload& w, const kir::Dim& channel, int lanes,
                     const std::optional<kir::Dim>& valid) const;
};

// Nothing if the workload is another. `parts`: the image may be a slice of another's channels, or
// such images and slices side by side.
std::optional<ConvNhwc> analyse_conv_nhwc(const Workload& w, bool parts = false);

// What the items of a convolution's loop share with their neighbours (the knob "order").
inline constexpr const char* kWeightsStay = "weights";
inline constexpr const char* kPixelsStay = "pixels";

// The knob "rows": pixels of a register tile of so many vectors. Images' widths are multiples of 7.
Knob conv_rows_knob(const TargetInfo& t, int64_t vectors);

}  // namespace nimble::kernels
