// Matrix products, convolution and attention.
#include <algorithm>
#include <array>

#include "compiler/ir/image_layout.h"
#include "compiler/ir/layout.h"
#include "compiler/ir/ops/relations.h"
#include "compiler/ir/shapes.h"
#include "compiler/ir/winograd.h"

namespace nimble::ir {
namespace {

using Ints = std::vector<int64_t>;

const Ints& ints(const RelationContext& c, const char* name, size_t count, int64_t least) {
  const auto& v = attr<Ints>(c.call.attrs, name);
  if (v.size() != count) {
    c.fail(fmt::format("{} has {} values, not {}", name, v.size(), count),
           fmt::format("give {} integers", count));
  }
  if (std::any_of(v.begin(), v.end(), [&](int64_t x) { return x < least; })) {
    c.fail(fmt::format("a value of {} is below {}", name, least), "");
  }
  return v;
}

ImageLayout checked_image_layout(const RelationContext& c) {
  const auto text = attr_or<std::string>(c.call.attrs, "layout", "nchw");
  const auto layout = parse_image_layout(text);
  if (!layout) c.fail(fmt::format("layout \"{}\" is unknown", text), "use nchw or nhwc");
  return *layout;
}

Dim window(RelationContext& c, const Dim& extent, int64_t kernel, int64_t stride, int64_t before,
           int64_t after, int64_t dilation, bool ceil_mode) {
  // Of Dims, whose constants are checked: attributes may be as large as they like.
  const Dim padded = extent + Dim(before) + Dim(after),
            reach = Dim(dilation) * Dim(kernel - 1) + Dim(1);
  if (c.dims.less(padded, reach) == Proof::kYes) {
    c.fail(fmt::format("the window of {} is larger than the padded extent {}", reach.str(),
                       padded.str()),
           "pad the input or use a smaller kernel");
  }
  c.require_equal(min(padded, reach), reach,
                  fmt::format("the window of {} fits into the padded extent", reach.str()));
  return window_count(extent, kernel, stride, before, after, dilation, ceil_mode, c.dims);
}

// The extents of the result along both axes of an image, over which a call's window of `kernel`
// taps slides.
void slide(RelationContext& c, const ImageLayout& l, const std::array<int64_t, 2>& kernel,
           bool ceil_mode, Dims& out) {
  const auto& strides = ints(c, "strides", 2, 1);
  const auto& pads = ints(c, "pads", 4, 0);
  const auto& dilations = ints(c, "dilations", 2, 1);
  for (size_t i = 0; i < 2; ++i) {
    Dim& extent = out[l.spatial[i]];
    extent =
        window(c, extent, kernel[i], strides[i], pads[i], pads[2 + i], dilations[i], ceil_mode);
  }
}

// Operands of a product and the wider type that `out` may name for them.
struct WideProduct {
  DType a, b, out;
};
constexpr WideProduct kWideProducts[] = {
    {DType::kBF16, DType::kBF16, DType::kF32}, {DType::kF16, DType::kF16, DType::kF32},
    {DType::kF32, DType::kF16, DType::kF32},   {DType::kU8, DType::kI8, DType::kI32},
    {DType::kU8, DType::kU8, DType::kI32},     {DType::kI8, DType::kI8, DType::kI32},
    {DType::kI8, DType::kU8, DType::kI32},
};

// The element type of a product: of its operands, which are alike, or the wider one that `out`
// names.
DType dtype_of_product(RelationContext& c) {
  if (!c.call.attrs.contains("out")) {
    require_same_dtype(c);
    return dtype(c, 0);
  }
  const DType a = dtype(c, 0), b = dtype(c, 1), out = attr<DType>(c.call.attrs, "out");
  const bool known =
      std::any_of(std::begin(kWideProducts), std::end(kWideProducts),
                  [&](const WideProduct& w) { return w.a == a && w.b == b && w.out == out; });
  if (!known) {
    c.fail(fmt::format("products of {} and {} are not made in {}", name_of(a), name_of(b),
                       name_of(out)),
           "use out = f32 for two operands of bf16 or of f16 and for f32 times f16, out = i32 for "
           "8-bit integers, else leave the attribute out");
  }
  return out;
}

// Of a convolution: floats, or with `out` bytes whose sums are i32.
DType dtype_of_convolution(RelationContext& c) {
  const DType type = dtype_of_product(c);
  if (!c.call.attrs.contains("out")) require_float(c, 0);
  return type;
}

}  // namespace

RelationResult relate_matmul(RelationContext& c) {
  const DType type = dtype_of_product(c);
  require_number(c, 0);
  require_rank_at_least(c, 0, 1);
  require_rank_at_least(c, 1, 1);
  Dims a = dims(c, 0), b = dims(c, 1);
  // A vector becomes a row (left) or a column (right), and that axis leaves the result.
  const bool vector_a = a.size() == 1, vector_b = b.size() == 1;
  const bool transpose_a = attr_or<bool>(c.call.attrs, "transpose_a", false);
  const bool transpose_b = attr_or<bool>(c.call.attrs, "transpose_b", false);
  if ((vector_a && transpose_a) || (vector_b && transpose_b)) {
    c.fail("a vector cannot be transposed", "drop the attribute");
  }
  if (vector_a) a.insert(a.begin(), Dim(1));
  if (vector_b) b.push_back(Dim(1));
  if (transpose_a) std::swap(a[a.size() - 1], a[a.size() - 2]);
  if (transpose_b) std::swap(b[b.size() - 1], b[b.size() - 2]);
  c.require_equal(a[a.size() - 1], b[b.size() - 2], "the contracted dim of matmul");
  Dims out = broadcast_shapes(c, Dims(a.begin(), a.end() - 2), Dims(b.begin(), b.end() - 2));
  if (!vector_a) out.push_back(a[a.size() - 2]);
  if (!vector_b) out.push_back(b[b.size() - 1]);
  return {tensor_type(std::move(out), type), std::nullopt};
}

RelationResult relate_pack(RelationContext& c) {
  require_rank(c, 0, 2);
  const bool transpose = attr_or<bool>(c.call.attrs, "transpose", false);
  const Dim& rows = dims(c, 0)[transpose ? 1 : 0];
  const Dim& columns = dims(c, 0)[transpose ? 0 : 1];
  const Layout layout = layout_of(c);
  if (layout.kind == Layout::Kind::kGate) {
    const Dim gates = c.dims.simplify(floordiv(columns, rows));
    c.require_equal(gates * rows, columns, "a gate layout needs a multiple of its rows as columns");
  }
  return {tensor_type(layout.packed_dims(rows, columns), dtype(c, 0)), std::nullopt};
}

RelationResult relate_packed_matmul(RelationContext& c) {
  const DType type = dtype_of_product(c);
  require_max_weight(c);
  require_number(c, 0);
  require_rank_at_least(c, 0, 1);
  const Dim n = attr<int64_t>(c.call.attrs, "n"), k = attr<int64_t>(c.call.attrs, "k");
  Dims out = dims(c, 0);
  c.require_equal(out.back(), k, "the contracted dim of packed_matmul");
  const Type packed =
      tensor_type(layout_of(c, Layout::Kind::kPanel).packed_dims(k, n), dtype(c, 1));
  c.require_equal(element_count(c.inputs[1]), element_count(packed),
                  "the size of the packed matrix");
  out.back() = n;
  return {tensor_type(std::move(out), type), std::nullopt};
}

RelationResult relate_conv2d(RelationContext& c) {
  const DType type = dtype_of_convolution(c);
  require_rank(c, 0, 4);
  require_rank(c, 1, 4);
  const int64_t groups = attr<int64_t>(c.call.attrs, "groups");
  if (groups < 1) c.fail("groups must be positive", "use 1 for a plain convolution");
  const ImageLayout l = checked_image_layout(c);
  if (!l.channels_last() && attr_or<bool>(c.call.attrs, "skip_padding", false))
    c.fail("skip_padding is of the layout nhwc", "drop the attribute");
  const Dims &x = dims(c, 0), &w = dims(c, 1);
  auto kh = w[l.taps[0]].as_constant(), kw = w[l.taps[1]].as_constant();
  if (!kh || !kw || *kh < 1 || *kw < 1) {
    c.fail("the kernel's extents must be positive constants", "give the weights a static shape");
  }
  c.require_equal(x[l.channel], w[l.input] * Dim(groups), "input channels of conv2d");
  const Dim& filters = w[l.filter];
  if (c.dims.divisible(filters, groups) == Proof::kNo) {
    c.fail(fmt::format("{} output channels do not divide into {} groups", filters.str(), groups),
           "change groups");
  }
  if (c.inputs.size() == 3) {
    require_rank(c, 2, 1);
    require_dtype(c, 2, type);
    c.require_equal(dims(c, 2)[0], filters, "the bias of conv2d");
  }
  Dims out = x;
  out[l.channel] = filters;
  slide(c, l, {*kh, *kw}, false, out);
  return {tensor_type(std::move(out), type), std::nullopt};
}

RelationResult relate_packed_conv2d(RelationContext& c) {
  const DType type = dtype_of_convolution(c);
  require_max_weight(c);
  require_rank(c, 0, 4);
  const auto& kernel = ints(c, "kernel", 2, 1);
  const int64_t filters = attr<int64_t>(c.call.attrs, "filters");
  if (filters < 1) c.fail("filters must be positive", "give the number of output channels");
  const auto groups = attr_or<int64_t>(c.call.attrs, "groups", 1);
  if (groups < 1) c.fail("groups must be positive", "use 1 for a plain convolution");
  if (filters % groups != 0)
    c.fail(fmt::format("{} output channels do not divide into {} groups", filters, groups),
           "change groups");
  const auto image_layout = attr_or<std::string>(c.call.attrs, "image_layout", "nhwc");
  const auto image = parse_image_layout(image_layout);
  if (!image)
    c.fail(fmt::format("image_layout \"{}\" is unknown", image_layout), "use nchw or nhwc");
  if (!image->channels_last() && groups != 1)
    c.fail("images NCHW are convolved in one group", "transpose the image");
  const Dims& x = dims(c, 0);
  const Dim all = x[image->channel], channels = c.dims.simplify(floordiv(all, Dim(groups)));
  c.require_equal(channels * Dim(groups), all, "channels that divide into the groups");
  const int64_t taps = kernel[0] * kernel[1];
  const Layout layout = layout_of(c, Layout::Kind::kPanel);
  const Dim k = image->channels_last() ? taps * channels : layout.rows_of_planes(channels, taps);
  const Type packed = tensor_type(layout.packed_dims(k, filters / groups), dtype(c, 1));
  c.require_equal(element_count(c.inputs[1]), element_count(packed) * Dim(groups),
                  "the size of the packed weights");
  if (c.inputs.size() == 3) {
    require_rank(c, 2, 1);
    require_dtype(c, 2, type);
    c.require_equal(dims(c, 2)[0], filters, "the bias of packed_conv2d");
  }
  Dims out = {x[0], x[image->spatial[0]], x[image->spatial[1]], filters};
  slide(c, kChannelsLast, {kernel[0], kernel[1]}, false, out);
  return {tensor_type(std::move(out), type), std::nullopt};
}

RelationResult relate_packed_winograd(RelationContext& c) {
  require_rank(c, 0, 4);
  require_rank(c, 1, 4);
  for (size_t i = 0; i < c.inputs.size(); ++i) require_dtype(c, i, DType::kF32);
  const auto tile = attr<int64_t>(c.call.attrs, "tile");
  const Winograd* form = find_winograd(tile);
  if (!form) c.fail(fmt::format("there are no tiles of {} pixels", tile), "use tiles of 2 or 4");
  const auto filters = attr<int64_t>(c.call.attrs, "filters");
  if (filters < 1) c.fail("filters must be positive", "give the number of output channels");
  const Layout layout = layout_of(c, Layout::Kind::kPanel);
  if (layout.group != 1)
    c.fail("transformed weights stand in no groups", "use a layout like panel32");
  const Dims& x = dims(c, 0);
  const Dims packed = {ceildiv(Dim(filters), layout.width), form->products(), x[3], layout.width};
  for (size_t i = 0; i < packed.size(); ++i)
    c.require_equal(dims(c, 1)[i], packed[i], fmt::format("axis {} of the transformed weights", i));
  if (c.inputs.size() == 3) {
    require_rank(c, 2, 1);
    c.require_equal(dims(c, 2)[0], filters, "the bias of packed_winograd");
  }
  const auto& pads = ints(c, "pads", 4, 0);
  Dims out = {x[0], x[1], x[2], filters};
  for (size_t i = 0; i < 2; ++i)
    out[1 + i] = window(c, out[1 + i], Winograd::kTaps, 1, pads[i], pads[2 + i], 1, false);
  return {tensor_type(std::move(out), DType::kF32), std::nullopt};
}

RelationResult relate_pool2d(RelationContext& c) {
  require_rank(c, 0, 4);
  require_number(c, 0);
  if (c.call.op == "avg_pool2d") require_float(c, 0);
  const auto& kernel = ints(c, "kernel", 2, 1);
  const bool ceil_mode = attr<bool>(c.call.attrs, "ceil_mode");
  const ImageLayout l = checked_image_layout(c);
  Dims out = dims(c, 0);
  slide(c, l, {kernel[0], kernel[1]}, ceil_mode, out);
  return {tensor_type(std::move(out), dtype(c, 0)), std::nullopt};
}

RelationResult relate_attention(RelationContext& c) {
  require_float(c, 0);
  for (size_t i = 0; i < 3; ++i) {
    require_rank(c, i, 3);
    require_dtype(c, i, dtype(c, 0));
  }
  DType type = dtype(c, 0);  // of scores and result
  if (c.call.attrs.contains("out")) {
    const auto out = attr<DType>(c.call.attrs, "out");
    if (!is_narrow_float(type) || out != DType::kF32)
      c.fail(fmt::format("attention of {} is not computed in {}", name_of(type), name_of(out)),
             "use out = f32 for q, k and v of bf16 or of f16, else leave the attribute out");
    type = out;
  }
  const int64_t heads = attr<int64_t>(c.call.attrs, "heads");
  const Dims &q = dims(c, 0), &k = dims(c, 1), &v = dims(c, 2);
  if (heads < 1) c.fail(fmt::format("{} heads", heads), "give a positive number of heads");
  for (const Dim& width : {q[2], v[2]}) {
    const Proof divides = c.dims.divisible(width, heads);
    if (divides == Proof::kNo)
      c.fail(fmt::format("a width of {} does not divide into {} heads", width.str(), heads),
             "change heads");
    if (divides == Proof::kUnknown)
      c.require_equal(floordiv(width, Dim(heads)) * Dim(heads), width,
                      fmt::format("a width that divides into {} heads", heads));
  }
  c.require_equal(q[0], k[0], "the batch of q and k");
  c.require_equal(q[0], v[0], "the batch of q and v");
  c.require_equal(q[2], k[2], "the width of q and k");
  c.require_equal(k[1], v[1], "the length of k and v");
  if (c.inputs.size() == 4) {
    // The mask may be smaller (broadcast), never larger than the scores.
    const Dims scores = {q[0], Dim(heads), q[1], k[1]}, &m = dims(c, 3);
    if (dtype(c, 3) != type && dtype(c, 3) != DType::kBool) require_dtype(c, 3, type);
    if (m.size() > 4) c.fail("the mask has more than four axes", "squeeze it");
    for (size_t i = 0; i < m.size(); ++i) {
      const Dim& s = scores[4 - m.size() + i];
      if (c.dims.equal(m[i], Dim(1)) == Proof::kYes || c.dims.equal(m[i], s) == Proof::kYes)
        continue;
      if (c.dims.equal(m[i], Dim(1)) == Proof::kNo) {
        c.require_equal(m[i], s, fmt::format("axis {} of the mask", i));
      } else {
        c.require_equal(broadcast(m[i], s), s, fmt::format("axis {} of the mask", i));
      }
    }
  }
  return {tensor_type({q[0], q[1], v[2]}, type), std::nullopt};
}

}  // namespace nimble::ir
