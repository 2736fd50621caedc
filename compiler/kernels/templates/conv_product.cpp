#include "compiler/kernels/templates/conv_product.h"

#include <algorithm>
#include <bit>

#include "compiler/kernels/templates/conv2d_nhwc.h"
#include "compiler/kernels/templates/dense.h"
#include "compiler/kernels/templates/knobs.h"
#include "compiler/kernels/templates/operand_types.h"
#include "compiler/kernels/templates/tiled_product.h"

namespace nimble::kernels {

namespace {

// Vectors are no wider than a group's channels, rounded up to a power of two.
int conv_lanes(const TargetInfo& t, DType dtype, int64_t channels) {
  const auto narrow = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(channels)));
  return static_cast<int>(std::min<int64_t>(lanes_of(t, dtype), narrow));
}

// How many vectors of so many channels make a panel. Two leave room for 14 pixels (6 with 16
// registers), a divisor of the usual widths; for 10 where each has a register of its own.
int conv_vectors(int64_t channels, int lanes) {
  constexpr double kCost[] = {1.3, 1.0, 1.02};
  return panel_vectors((channels + lanes - 1) / lanes, kCost);
}

// Steps of a panel of so many columns that fill half of a cache.
int64_t steps_in_half(int64_t cache_bytes, const ConvProduct& p, int64_t columns) {
  return cache_bytes / 2 / (columns * p.step_bytes());
}

bool are_many(const ConvProduct& p, int64_t fits) {
  return p.steps() > 16 * fits && p.depth_steps() >= 32;
}

// Whether blocks would pay on most machines. It asks nothing of a target: what is fused because one
// takes it must be served on all others of the file, and by the checked interpreter.
bool wants_blocks_mostly(const ConvProduct& p) {
  constexpr int64_t kL1Bytes = 32 << 10, kColumns = 16;
  return are_many(p, steps_in_half(kL1Bytes, p, p.layout ? p.layout->width : kColumns));
}

}  // namespace

std::string conv2d_nhwc_layout(const TargetInfo& t, DType pixels, DType weights, int64_t n,
                               int64_t most) {
  const DType sum = sum_of(weights);
  const auto tiles = tile_fragment_of(t, pixels, weights, sum);
  if (tiles && n > tile_columns(*tiles) / 2) return tile_layout(*tiles, n);
  const int lanes = conv_lanes(t, sum, n);
  return ir::Layout{ir::Layout::Kind::kPanel, int64_t{conv_vectors(n, lanes)} * lanes,
                    group_for(t, pixels, weights, sum, most)}
      .str();
}

std::string conv2d_nhwc_layout(const TargetInfo& t, DType weights, int64_t n) {
  return conv2d_nhwc_layout(t, rows_type(t, weights), weights, n);
}

Dim ConvProduct::row_of_panel(const Dim& g, const Dim& panel, const Dim& step) const {
  if (stored == 0) return step * (groups * filters) + g * filters + panel * width;
  // Each group begins a panel.
  const int64_t panels_of_group = (n + stored - 1) / stored * (stored / width);
  return Panels::row_of_panel(g * panels_of_group + panel, step);
}

int64_t steps_that_fit(const ConvProduct& p, const TargetInfo& t) {
  return steps_in_half(t.l1_bytes, p, p.width);
}

// An L2 of 1 MiB keeps a panel for all tiles of an item, and blocks only move sums: on a Zen 4
// ResNet-50's and VGG-16's 3 x 3 of 256 and 512 channels take 6 to 19 % less time without. One of
// half the size, with panels as large against it, loses as much without them (Zen 3), and code for
// any machine may come to run there.
bool wants_blocks(const ConvProduct& p, const TargetInfo& t) {
  constexpr int64_t kLarge = 1 << 20;
  const int64_t panel_bytes = p.steps() * p.width * p.step_bytes();
  const bool stays = t.knows_l2 && t.l2_bytes >= kLarge && panel_bytes <= t.l2_bytes * 5 / 8;
  return are_many(p, steps_that_fit(p, t)) && !stays;
}

std::optional<kir::TileFragment> tile_fragment_of(const TargetInfo& t, const ConvNhwc& conv) {
  if (!conv.weights || !conv.layout || conv.channels_first) return {};
  const auto fragment = tile_fragment_of(t, conv.image->dtype, conv.weights->dtype, conv.dtype);
  if (!fragment || !fits_tiles(*conv.layout, *fragment)) return {};
  if (conv.channels % conv.layout->group != 0) return {};
  return fragment;
}

std::optional<ConvProduct> analyse_conv_product(const Workload& w, const TargetInfo& t) {
  const auto conv = analyse_conv_nhwc(w, /*parts=*/true);
  if (!conv || !conv->weights) return {};
  ConvProduct p;
  static_cast<ConvNhwc&>(p) = *conv;
  if (p.layout && p.fragment) p.fragment = fragment_of_call(t, *p.fragment, p.call());
  Panels& panels = p;
  const int lanes = conv_lanes(t, p.dtype, p.filters);
  if (p.layout) {
    panels.group = p.layout->group;
    const int64_t k = p.taps() * p.planes() * p.depth();
    const auto cut = cut_panels(k, p.filters, *p.layout, lanes, max_tile_vectors(t));
    if (!cut) return {};
    panels = *cut;
    if (!p.channels_first && p.channels % p.group != 0) return {};
    for (const ConvNhwc::Source& s : p.sources)
      if (!p.channels_first && s.channels % p.group != 0) return {};
  } else {
    if (p.fragment) return {};
    const int vectors = conv_vectors(p.filters, lanes);
    panels = {p.taps() * p.channels, p.filters, 0, int64_t{vectors} * lanes, lanes, vectors, 1};
  }
  if ((p.widens() || p.groups_planes()) && has_index(w)) return {};
  if (p.sources.size() > 1 && wants_blocks_mostly(p)) return {};
  const bool in_parts = !parameter_buffer(w, p.frame, p.call().args[0]);
  if (in_parts && tile_fragment_of(t, p)) return {};
  return p;
}

std::vector<Widened> widen_images(ConvProduct& p) {
  std::vector<Widened> all;
  if (!p.widens() || p.groups_planes()) return all;
  // What is read of each image, of which there may be several parts.
  for (const ConvNhwc::Source& s : p.sources) {
    const auto image = std::ranges::find(all, s.image, &Widened::from);
    if (image == all.end()) {
      all.push_back({s.image, p.in[0] * p.in[1] * p.in[2], s.pitch, s.first, s.channels});
      continue;
    }
    const int64_t end = std::max(image->first + image->width, s.first + s.channels);
    image->first = std::min(image->first, s.first);
    image->width = end - image->first;
  }
  for (size_t i = 0; i < all.size(); ++i)
    all[i].make_copy(kir::row_of(*p.fragment).a, "widened" + std::to_string(i));
  for (ConvNhwc::Source& s : p.sources) {
    const Widened& copy = *std::ranges::find(all, s.image, &Widened::from);
    s = {copy.to, copy.width, s.first - copy.first, s.channels};
  }
  return all;
}

std::optional<GroupedPlanes> group_planes_of(ConvProduct& p) {
  if (!p.groups_planes()) return {};
  GroupedPlanes planes{p.image, p.channels, p.group, p.in[0], p.in[1] * p.in[2]};
  planes.make_copy(kir::row_of(*p.fragment).a, "grouped");
  p.sources[0].image = planes.to;
  return planes;
}

}  // namespace nimble::kernels
