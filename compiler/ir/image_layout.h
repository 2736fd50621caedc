// Where the axes of images and of a convolution's weights stand: the attribute `layout` of conv2d,
// max_pool2d and avg_pool2d.
//
//   "nchw"  images (n, c, h, w), weights (c_out, c_in / groups, kh, kw); also where the attribute
//           is absent, as importers leave it.
//   "nhwc"  images (n, h, w, c), weights (kh, kw, c_in / groups, c_out): channels last, so that the
//           channels of a pixel are consecutive and the weights are a matrix (kh * kw * c_in,
//           c_out).
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "compiler/ir/expr.h"

namespace nimble::ir {

inline constexpr size_t kImageRank = 4;

struct ImageLayout {
  size_t channel;                 // of an image; its batch is axis 0
  std::array<size_t, 2> spatial;  // of an image: rows, columns
  size_t filter;                  // of weights: the output channel
  size_t input;                   // of weights: the input channel of a group
  std::array<size_t, 2> taps;     // of weights: rows, columns

  bool channels_last() const { return channel == 3; }
};
inline constexpr ImageLayout kChannelsFirst = {1, {2, 3}, 0, 1, {2, 3}};
inline constexpr ImageLayout kChannelsLast = {3, {1, 2}, 3, 2, {0, 1}};

// Nothing if `text` is no layout of images.
inline std::optional<ImageLayout> parse_image_layout(const std::string& text) {
  if (text == "nchw") return kChannelsFirst;
  if (text == "nhwc") return kChannelsLast;
  return std::nullopt;
}

// Of a call whose type relation has accepted it.
inline ImageLayout image_layout_of(const Attrs& attrs) {
  return *parse_image_layout(attr_or<std::string>(attrs, "layout", "nchw"));
}

// Whether the attribute `pads` adds anything around the images.
inline bool has_padding(const Attrs& attrs) {
  const auto& pads = attr<std::vector<int64_t>>(attrs, "pads");
  return std::any_of(pads.begin(), pads.end(), [](int64_t p) { return p != 0; });
}

}  // namespace nimble::ir
