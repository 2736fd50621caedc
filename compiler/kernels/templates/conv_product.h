// The matrix product that the template "conv2d_nhwc" takes a convolution for.
#pragma once

#include <optional>
#include <vector>

#include "compiler/kernels/target.h"
#include "compiler/kernels/templates/conv_nhwc.h"
#include "compiler/kernels/templates/grouped_planes.h"
#include "compiler/kernels/templates/tile.h"
#include "compiler/kernels/templates/widened_bytes.h"

namespace nimble::kernels {

// A row is a pixel of the result, the columns are a group's output channels (n), and k runs over
// (kh, kw, c_in), of images with channels first over (c_in, kh, kw). Packed, each group has panels
// of its own; `stored` is 0 where the weights are a tensor HWIO. By a fragment, a step takes a
// group of a pixel's channels, which are a multiple of it; of images with channels first those of
// the same group (grouped_planes.h), which may be filled up with zeros.
struct ConvProduct : ConvNhwc, Panels {
  // Whether image and weights are bytes that are multiplied as i16 (widened_bytes.h).
  bool widens() const { return is_widened(fragment, image->dtype); }
  // Whether the image is copied in groups of its channels.
  bool groups_planes() const { return channels_first && fragment; }
  // An image is so many planes, one behind the other, of pixels with so many channels each.
  int64_t planes() const { return channels_first ? (channels + group - 1) / group : 1; }
  int64_t depth() const { return channels_first ? group : channels; }
  int64_t depth_steps() const { return depth() / group; }
  // Of a step of one column of the weights.
  int64_t step_bytes() const { return group * static_cast<int64_t>(size_of(weights->dtype)); }
  // Elements from a pixel's channels to those of the next, in a source.
  int64_t pixel(const Source& s) const { return channels_first ? group : s.pitch; }
  // Steps over what a source has of a pixel in a group.
  int64_t steps_of(const Source& s) const {
    return sources.size() == 1 ? depth_steps() : s.channels / group;
  }
  // First element of step `step` of the weights' matrix in a panel of group `g`.
  Dim row_of_panel(const Dim& g, const Dim& panel, const Dim& step) const;
};

// Steps of a panel that fill half of L1, and whether it is so much longer that taking it block by
// block pays.
int64_t steps_that_fit(const ConvProduct& p, const TargetInfo& t);
bool wants_blocks(const ConvProduct& p, const TargetInfo& t);

// The product of the target's matrix registers that a convolution's operands fill, were its image
// one tensor; nothing if there is none.
std::optional<kir::TileFragment> tile_fragment_of(const TargetInfo& t, const ConvNhwc& conv);

// Nothing if the template does not serve the workload. An image of several sources is taken without
// blocks, so one that would want them on most machines is left to whoever puts it together; and so
// is every image that is not one tensor where matrix registers would take it then, for they are
// worth the copy. Who widens an image waits for the others, so nobody may leave early because of an
// index.
std::optional<ConvProduct> analyse_conv_product(const Workload& w, const TargetInfo& t);

// Where a product widens its images: makes its sources parts of the copies that are given back;
// `image` remains what is copied. The same of one with channels first whose planes are grouped,
// which are widened with that.
std::vector<Widened> widen_images(ConvProduct& p);
std::optional<GroupedPlanes> group_planes_of(ConvProduct& p);

}  // namespace nimble::kernels
