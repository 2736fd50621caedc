// Images read at computed places: GridSample, AffineGrid, RoiAlign, DeformConv.
//
// All of them sample: the value at a place between pixels is a weighted sum of the pixels around
// it, one axis after another. An image is flattened over its pixels, and each corner gathered by
// its flat index; corners outside count as the padding mode says.
#include <cmath>

#include "compiler/frontend/onnx/arithmetic.h"
#include "compiler/frontend/onnx/operators.h"
#include "vm/base/checked.h"

namespace nimble::frontend::onnx {
namespace {

using ir::Dim;

Value as_real(NodeContext& c, const Dim& d, DType type) {
  Arithmetic a(c.g);
  if (auto v = d.as_constant()) return c.g.scalar(static_cast<double>(*v), type);
  return a.cast(c.g.size(d), type);
}

// One corner along one axis: a pixel's number, its weight, and whether it exists.
struct Tap {
  Value index;
  std::optional<Value> weight, inside;
};

class Sampler {
 public:
  // `largest`: of the weighted pixels around a place the largest counts instead of their sum.
  Sampler(NodeContext& c, std::string mode, std::string padding, bool align, bool largest = false)
      : c_(c),
        a_(c.g),
        mode_(std::move(mode)),
        padding_(std::move(padding)),
        align_(align),
        largest_(largest) {}

  // x: (n, channels, extents…); places: one tensor (n, q) per axis. Gives (n, channels, q).
  Value sample(const Value& x, const Values& places) {
    const int64_t rank = x.rank();
    const Value flat = c_.g.reshape(x, {x.dim(0), x.dim(1), product_of(x.dims(), 2, rank)});
    std::vector<std::vector<Tap>> taps;
    for (size_t i = 0; i < places.size(); ++i) taps.push_back(around(places[i], x.dim(i + 2)));
    std::optional<Value> sum;
    std::vector<size_t> at(places.size(), 0);
    while (true) {
      const Value part = corner(x, flat, taps, at);
      sum = !sum ? part : largest_ ? a_.maximum(*sum, part) : a_.add(*sum, part);
      size_t i = at.size();
      while (i-- > 0) {
        if (++at[i] < taps[i].size()) break;
        at[i] = 0;
        if (i == 0) return *sum;
      }
    }
  }

 private:
  Value corner(const Value& x, const Value& flat, const std::vector<std::vector<Tap>>& taps,
               const std::vector<size_t>& at) {
    std::optional<Value> index, weight, inside;
    for (size_t i = 0; i < at.size(); ++i) {
      const Tap& t = taps[i][at[i]];
      index = index ? a_.add(a_.mul(*index, c_.g.size(x.dim(i + 2))), t.index) : t.index;
      if (t.weight) weight = weight ? a_.mul(*weight, *t.weight) : *t.weight;
      if (t.inside) inside = inside ? a_.both(*inside, *t.inside) : *t.inside;
    }
    const Value all =
        a_.expand(a_.unsqueeze(*index, {1}), {flat.dim(0), flat.dim(1), index->dim(1)});
    Value v = c_.g.call("gather_elements", {flat, all}, {{"axis", int64_t{2}}});
    if (inside) v = a_.where(a_.unsqueeze(*inside, {1}), v, 0.0);
    return weight ? a_.mul(v, a_.cast(a_.unsqueeze(*weight, {1}), v.dtype())) : v;
  }

  // Mirrored at the borders (at the outer pixels' centres if aligned, else at their edges).
  Value reflected(const Value& at, const Dim& extent) {
    const Value n = as_real(c_, extent, at.dtype());
    const Value low = c_.g.scalar(align_ ? 0 : -0.5, at.dtype());
    const Value span = align_ ? a_.maximum(a_.sub(n, 1.0), 1.0) : n;
    const Value t = a_.mod(a_.sub(at, low), a_.mul(span, 2.0));
    return a_.add(a_.sub(span, a_.abs(a_.sub(t, span))), low);
  }

  Tap tap(Value at, const Dim& extent, std::optional<Value> weight) {
    const Value last = a_.sub(as_real(c_, extent, at.dtype()), 1.0);
    std::optional<Value> inside;
    if (padding_ == "zeros")
      inside = a_.both(a_.greater_equal(at, 0.0), a_.less_equal(at, last));
    else if (padding_ == "reflection")
      at = reflected(at, extent);
    at = a_.minimum(a_.maximum(at, 0.0), last);
    return {a_.cast(a_.unary("round", at), DType::kI64), std::move(weight), std::move(inside)};
  }

  std::vector<Tap> around(Value at, const Dim& extent) {
    const Value last = a_.sub(as_real(c_, extent, at.dtype()), 1.0);
    if (mode_ != "cubic") {  // whose corners are padded one by one
      if (padding_ == "border") at = a_.minimum(a_.maximum(at, 0.0), last);
      if (padding_ == "reflection") at = reflected(at, extent);
    }
    if (mode_ == "nearest") return {tap(a_.unary("round", at), extent, std::nullopt)};
    const Value base = a_.floor(at), t = a_.sub(at, base);
    if (mode_ == "linear")
      return {tap(base, extent, a_.sub(a_.like(t, 1), t)), tap(a_.add(base, 1.0), extent, t)};
    std::vector<Tap> out;
    for (int k = -1; k <= 2; ++k) {
      const Value place = a_.add(base, static_cast<double>(k));
      out.push_back(tap(place, extent, cubic(a_.abs(a_.sub(place, at)))));
    }
    return out;
  }

  // Keys' kernel with a = -0.75.
  Value cubic(const Value& d) {
    constexpr double kA = -0.75;
    const Value square = a_.mul(d, d);
    const Value near = a_.add(a_.mul(square, a_.sub(a_.mul(d, kA + 2), kA + 3)), 1.0);
    const Value far =
        a_.add(a_.mul(d, a_.add(a_.mul(d, a_.sub(a_.mul(d, kA), 5 * kA)), 8 * kA)), -4 * kA);
    return a_.where(a_.less_equal(d, 1.0), near, far);
  }

  NodeContext& c_;
  Arithmetic a_;
  std::string mode_, padding_;
  bool align_, largest_;
};

Values grid_sample(NodeContext& c) {
  Arithmetic a(c.g);
  const Value x = a.widened(c.in(0)), grid = a.widened(c.in(1));
  const int64_t axes = x.rank() - 2;
  if (axes < 1 || grid.rank() != x.rank()) c.fail("the grid's rank does not fit the image's");
  // Each place around a sample is a part of the graph: up to four along each axis, so 4^axes.
  if (axes > kMaxRank - 2)
    c.unsupported(fmt::format("GridSample over {} axes", axes),
                  fmt::format("nimble has tensors of up to {} dims", kMaxRank));
  std::string mode = c.text("mode", "linear");
  if (mode == "bilinear") mode = "linear";
  if (mode == "bicubic") mode = "cubic";
  const std::string padding = c.text("padding_mode", "zeros");
  if ((mode != "linear" && mode != "nearest" && mode != "cubic") ||
      (padding != "zeros" && padding != "border" && padding != "reflection"))
    c.fail(
        fmt::format("mode {} with padding {} has no meaning", printable(mode), printable(padding)));
  const bool align = c.integer("align_corners", 0) != 0;
  const Dim count = product_of(grid.dims(), 1, axes + 1);
  const Value flat = c.g.reshape(grid, {grid.dim(0), count, Dim(axes)});
  Values places;
  for (int64_t i = 0; i < axes; ++i) {
    // The grid has x before y.
    const int64_t k = axes - 1 - i;
    Value g = a.cast(a.squeeze(c.g.slice(flat, 2, Dim(k), Dim(k + 1)), {2}), DType::kF64);
    const Value n = as_real(c, x.dim(static_cast<size_t>(i) + 2), DType::kF64);
    g = a.add(g, 1.0);
    places.push_back(align ? a.mul(a.mul(g, 0.5), a.sub(n, 1.0))
                           : a.mul(a.sub(a.mul(g, n), 1.0), 0.5));
  }
  const Value y = Sampler(c, mode, padding, align).sample(x, places);
  Dims to = {x.dim(0), x.dim(1)};
  to.insert(to.end(), grid.dims().begin() + 1, grid.dims().end() - 1);
  return {a.cast(c.g.reshape(y, to), c.in(0).dtype())};
}

// The normalised places of an image of a given size, moved by a matrix per sample.
Values affine_grid(NodeContext& c) {
  Arithmetic a(c.g);
  const Value theta = a.widened(c.in(0));
  const auto size = c.g.read_contents(a.cast(c.in(1), DType::kI64));
  if (!size || size->size() < 3) c.fail("size is not (n, channels, extents…)");
  const auto axes = static_cast<int64_t>(size->size()) - 2;
  const bool align = c.integer("align_corners", 0) != 0;
  Dims to(size->begin() + 2, size->end());
  Values columns;
  for (int64_t i = axes; i-- > 0;) {  // x first
    const Dim extent = to[static_cast<size_t>(i)];
    const Value n = as_real(c, extent, DType::kF64), k = a.range(extent, DType::kF64, i, axes);
    Value v;
    if (align) {
      const Value steps = a.sub(n, 1.0);
      v = a.sub(a.div(a.mul(k, 2.0), a.where(a.equal(steps, 0.0), 1.0, steps)), 1.0);
    } else {
      v = a.sub(a.div(a.add(a.mul(k, 2.0), 1.0), n), 1.0);
    }
    columns.push_back(a.unsqueeze(a.expand(a.cast(v, theta.dtype()), to), {axes}));
  }
  columns.push_back(a.unsqueeze(c.g.full(to, 1, theta.dtype()), {axes}));
  const Dim count = product_of(to, 0, axes);
  const Value base = c.g.reshape(a.concat(columns, axes), {count, Dim(axes + 1)});
  const Value y = a.matmul(base, theta, true);
  Dims shape = {theta.dim(0)};
  shape.insert(shape.end(), to.begin(), to.end());
  shape.push_back(Dim(axes));
  return {a.cast(c.g.reshape(y, shape), c.in(0).dtype())};
}

// The samples of RoiAlign's bins along one axis, bin by bin.
struct Samples {
  Dim per_bin;   // the most of any region
  Value places;  // (regions, bins * per_bin)
  // Where regions differ in their number of samples:
  std::optional<Value> count, counted;  // (regions, 1) f32 or f64; which of the places count
};

// `size` (regions, 1) in `bins` of `ratio` samples each, or, if that is 0, of one for each pixel.
Samples samples_along(NodeContext& c, const Value& begin, const Value& size, int64_t bins,
                      int64_t ratio) {
  Arithmetic a(c.g);
  Samples out;
  const Value width = a.div(size, static_cast<double>(bins));
  if (ratio > 0) {
    out.per_bin = ratio;
    const Value k = a.range(Dim(bins) * Dim(ratio), size.dtype(), 1, 2);
    const Value step = a.div(width, static_cast<double>(ratio));
    out.places = a.add(begin, a.mul(a.add(k, 0.5), step));
    return out;
  }
  const Value count = a.maximum(a.unary("ceil", width), 0.0);
  // All regions get as many places as the largest has samples.
  const Value all = a.concat(
      {a.cast(c.g.reshape(count, {count.dim(0)}), DType::kI64), c.g.reshape(c.g.integer(1), {1})},
      0);
  out.per_bin = (*c.g.read_contents(a.reduce("reduce_max", all, {0}, true)))[0];
  const Dim total = c.g.simplify(out.per_bin * Dim(bins));
  const Value k = a.range(total, DType::kI64, 1, 2), most = c.g.size(out.per_bin);
  const Value bin = a.cast(a.div(k, most), size.dtype());
  const Value sample = a.cast(a.mod(k, most), size.dtype());
  const Value step = a.div(width, a.maximum(count, 1.0));
  out.places = a.add(begin, a.add(a.mul(bin, width), a.mul(a.add(sample, 0.5), step)));
  out.count = count;
  out.counted = a.less(sample, count);
  return out;
}

// Regions of an image at one size: bins of samples, averaged or maximised.
Values roi_align(NodeContext& c) {
  Arithmetic a(c.g);
  const Value &x = c.in(0), &rois = c.in(1);
  const int64_t height = c.integer("output_height", 1), width = c.integer("output_width", 1);
  const int64_t ratio = c.integer("sampling_ratio", 0);
  const std::string mode = c.text("mode", "avg");
  if (x.rank() != 4 || rois.rank() != 2 || c.in(2).rank() != 1)
    c.fail("the image has rank 4, the regions rank 2, their images' numbers rank 1");
  if (height < 1 || width < 1 || ratio < 0) c.fail("sizes and sampling_ratio are not positive");
  if (mode != "avg" && mode != "max")
    c.fail(fmt::format("mode {} has no meaning", printable(mode)));
  const bool half = c.text("coordinate_transformation_mode",
                           c.opset < 16 ? "output_half_pixel" : "half_pixel") == "half_pixel";
  const double scale = c.real("spatial_scale", 1), shift = half ? 0.5 : 0;
  const Dim count = rois.dim(0);
  const Value image = a.gather(x, a.cast(c.in(2), DType::kI64), 0);
  // The corners of a region are x1, y1, x2, y2.
  const auto along = [&](int64_t corner, int64_t bins) {
    const auto edge = [&](int64_t k) {
      return a.sub(a.mul(c.g.slice(rois, 1, Dim(k), Dim(k + 1)), scale), shift);
    };
    const Value begin = edge(corner);
    Value size = a.sub(edge(corner + 2), begin);
    if (!half) size = a.maximum(size, 1.0);
    return samples_along(c, begin, size, bins, ratio);
  };
  const Samples rows = along(1, height), columns = along(0, width);
  const Dim ny = c.g.simplify(rows.per_bin * Dim(height));
  const Dim nx = c.g.simplify(columns.per_bin * Dim(width));
  // Far outside the image is nothing; within a pixel of it, the border.
  const auto usable = [&](const Value& v, const Dim& extent) {
    return a.both(a.greater_equal(v, -1.0), a.less_equal(v, as_real(c, extent, v.dtype())));
  };
  const auto pairs = [&](const Value& v, int64_t axis) {
    return c.g.reshape(a.expand(a.unsqueeze(v, {axis}), {count, ny, nx}), {count, ny * nx});
  };
  const Value all_rows = pairs(rows.places, 2), all_columns = pairs(columns.places, 1);
  Value y =
      Sampler(c, "linear", "border", true, mode == "max").sample(image, {all_rows, all_columns});
  const Value inside = a.both(usable(all_rows, x.dim(2)), usable(all_columns, x.dim(3)));
  y = a.where(a.unsqueeze(inside, {1}), y, 0.0);
  if (rows.counted) {
    const Value counted = a.both(pairs(*rows.counted, 2), pairs(*columns.counted, 1));
    y = a.where(a.unsqueeze(counted, {1}), y, mode == "avg" ? 0.0 : -HUGE_VAL);
  }
  y = c.g.reshape(y, {count, x.dim(1), Dim(height), rows.per_bin, Dim(width), columns.per_bin});
  if (!rows.count) return {a.reduce(mode == "avg" ? "mean" : "reduce_max", y, {3, 5}, false)};
  const Value samples = c.g.reshape(a.mul(*rows.count, *columns.count), {count, 1, 1, 1});
  if (mode == "avg") return {a.div(a.reduce("sum", y, {3, 5}, false), a.maximum(samples, 1.0))};
  y = a.reduce("reduce_max", y, {3, 5}, false);
  return {a.where(a.greater(samples, 0.0), y, 0.0)};
}

// A convolution whose taps lie at offsets that a tensor gives: the input is sampled at every tap of
// every place, and the samples of a place are multiplied with the weights.
Values deform_conv(NodeContext& c) {
  Arithmetic a(c.g);
  const Value &x = c.in(0), &w = c.in(1);
  if (x.rank() != 4 || w.rank() != 4)
    c.unsupported("DeformConv of other ranks than 4", "use images");
  const auto out_channels = w.dim(0).as_constant(), channels = x.dim(1).as_constant();
  const auto kh = w.dim(2).as_constant(), kw = w.dim(3).as_constant();
  if (!out_channels || !channels || !kh || !kw)
    c.unsupported("symbolic channels or kernels", "export constant weights");
  const Axes strides = c.integers("strides", {1, 1}), dilations = c.integers("dilations", {1, 1});
  const Axes pads = c.integers("pads", {0, 0, 0, 0});
  const int64_t groups = c.integer("group", 1), sets = c.integer("offset_group", 1);
  if (strides.size() != 2 || dilations.size() != 2 || pads.size() != 4 || groups < 1 || sets < 1 ||
      *channels % sets || *channels % groups || *out_channels % groups)
    c.fail("strides, dilations, pads or groups don't fit");
  const Dim batch = x.dim(0), rows = c.in(2).dim(2), columns = c.in(2).dim(3);
  // Each set is a part of the graph; nobody has more than a few.
  constexpr int64_t kMostSets = 1024;
  if (sets > kMostSets)
    c.unsupported(fmt::format("{} groups of offsets", sets),
                  fmt::format("export at most {}", kMostSets));
  const int64_t taps = checked_mul(*kh, *kw, Status::kCorrupt);
  const Dim count = Dim(taps) * rows * columns;
  const Value offsets = c.g.reshape(c.in(2), {batch, Dim(sets), Dim(taps), Dim(2), rows, columns});
  // Tap t of place p without its offset, as (taps, rows, columns).
  const auto regular = [&](size_t axis) {
    const Value t = a.range(Dim(taps), DType::kI64, 0, 3);
    const Value tap =
        axis == 0 ? a.div(t, static_cast<double>(*kw)) : a.mod(t, static_cast<double>(*kw));
    const Value place = a.range(axis == 0 ? rows : columns, DType::kI64, axis == 0 ? 1 : 2, 3);
    const Value at = a.add(a.mul(place, static_cast<double>(strides[axis])),
                           a.mul(tap, static_cast<double>(dilations[axis])));
    return a.cast(a.sub(at, static_cast<double>(pads[axis])), x.dtype());
  };
  const int64_t per_set = *channels / sets;
  Values parts;
  for (int64_t s = 0; s < sets; ++s) {
    const auto set = [&](const Value& v) {
      return a.squeeze(c.g.slice(v, 1, Dim(s), Dim(s + 1)), {1});
    };
    Values places;
    for (int64_t axis = 0; axis < 2; ++axis) {
      const Value offset = a.squeeze(c.g.slice(set(offsets), 2, Dim(axis), Dim(axis + 1)), {2});
      places.push_back(
          c.g.reshape(a.add(offset, regular(static_cast<size_t>(axis))), {batch, count}));
    }
    Value y = Sampler(c, "linear", "zeros", true)
                  .sample(c.g.slice(x, 1, Dim(s * per_set), Dim((s + 1) * per_set)), places);
    if (c.has(4)) {
      const Value mask = c.g.reshape(c.in(4), {batch, Dim(sets), count});
      y = a.mul(y, c.g.slice(mask, 1, Dim(s), Dim(s + 1)));
    }
    parts.push_back(y);
  }
  const int64_t inner = checked_mul(*channels / groups, taps, Status::kCorrupt);
  const Value samples =
      c.g.reshape(a.concat(parts, 1), {batch, Dim(groups), Dim(inner), rows * columns});
  const Value weights = c.g.reshape(w, {Dim(groups), Dim(*out_channels / groups), Dim(inner)});
  Value y = c.g.reshape(a.matmul(weights, samples), {batch, Dim(*out_channels), rows, columns});
  if (c.has(3)) y = a.add(y, a.unsqueeze(c.in(3), {1, 2}));
  return {y};
}

}  // namespace

std::span<const Operator> sampling_operators() {
  static const Operator kRows[] = {
      {"GridSample", grid_sample},
      {"AffineGrid", affine_grid},
      {"RoiAlign", roi_align},
      {"DeformConv", deform_conv},
  };
  return kRows;
}

}  // namespace nimble::frontend::onnx
