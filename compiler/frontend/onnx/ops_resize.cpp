// Images at other sizes and places: Resize, Upsample, GridSample, AffineGrid, RoiAlign.
//
// Resizing is separable. Along one axis each result stands at a coordinate of the input, and is the
// sum of the input's elements around it (one for `nearest`, two for `linear`, four for `cubic`,
// more where antialiasing widens the filter), each times a weight that only depends on the
// distance. Coordinates are computed in f64: where they fall between two pixels decides.
#include <cmath>

#include "compiler/frontend/onnx/arithmetic.h"
#include "compiler/frontend/onnx/operators.h"

namespace nimble::frontend::onnx {
namespace {

using ir::Dim;

// Keys' cubic convolution kernel at distance d (IEEE Trans. ASSP 29, 1981), free parameter a.
Value cubic_weight(Arithmetic& m, const Value& d, double a) {
  const Value x = m.abs(d), square = m.mul(x, x);
  const Value near = m.add(m.mul(square, m.sub(m.mul(x, a + 2), a + 3)), 1.0);
  const Value far = m.add(m.mul(m.sub(m.mul(m.add(m.mul(x, a), -5 * a), x), -8 * a), x), -4 * a);
  return m.where(m.less_equal(x, 1.0), near, m.where(m.less(x, 2.0), far, 0.0));
}

class Resize {
 public:
  explicit Resize(NodeContext& c) : c_(c), a_(c.g), mode_(c.text("mode", "nearest")) {
    where_ = c.text("coordinate_transformation_mode", "half_pixel");
    if (c.node.op == "Upsample" || c.opset < 11) where_ = "asymmetric";
    if (mode_ == "bilinear" || mode_ == "trilinear") mode_ = "linear";
    if (mode_ == "bicubic") mode_ = "cubic";
    if (mode_ != "nearest" && mode_ != "linear" && mode_ != "cubic")
      c.fail(fmt::format("mode {} has no meaning", printable(mode_)));
  }

  Values build() {
    Value x = c_.in(0);
    const DType type = x.dtype();
    plan(x);
    for (size_t i = 0; i < axes_.size(); ++i) {
      const Dim extent = x.dim(axes_[i]);
      const bool crops = where_ == "tf_crop_and_resize";
      if (!crops && sizes_[i] == extent && scales_[i].value_or(1) == 1) continue;
      x = along(x, i, extent);
    }
    return {x.dtype() == type ? x : a_.cast(rounded(x, type), type)};
  }

 private:
  // Which axes change, to which extents, by which scales.
  void plan(const Value& x) {
    const bool upsample = c_.node.op == "Upsample";
    const size_t at_scales = upsample || c_.opset < 11 ? 1 : 2;
    axes_ = c_.opset >= 18 ? c_.integers("axes") : Axes{};
    if (axes_.empty()) axes_ = axes_between(0, x.rank());
    for (int64_t& a : axes_) a = c_.axis(a, x.rank());
    std::vector<double> scales;
    if (c_.node.find("scales")) {
      for (float s : c_.node.find("scales")->floats) scales.push_back(s);
    } else if (c_.has(at_scales) && !c_.in(at_scales).dim(0).is_constant(0)) {
      scales = c_.numbers(at_scales);
    }
    if (where_ == "tf_crop_and_resize") {
      roi_ = c_.numbers(1);
      if (roi_.size() != 2 * axes_.size()) c_.fail("roi has not a start and an end per axis");
    }
    if (!scales.empty()) {
      if (scales.size() != axes_.size()) c_.fail("there is not one scale per axis");
      for (size_t i = 0; i < axes_.size(); ++i) {
        scales_.emplace_back(scales[i]);
        sizes_.push_back(scaled(x.dim(axes_[i]), scales[i], i));
      }
      return;
    }
    if (!c_.has(3)) c_.fail("there are neither scales nor sizes");
    // What compares scales must know them.
    if (c_.integer("antialias", 0) || c_.text("keep_aspect_ratio_policy", "stretch") != "stretch") {
      for (int64_t size : c_.constants(3)) sizes_.emplace_back(size);
    } else {
      sizes_ = c_.read(3);
    }
    if (sizes_.size() != axes_.size()) c_.fail("there is not one size per axis");
    keep_ratio(x);
    for (size_t i = 0; i < axes_.size(); ++i) {
      const auto from = x.dim(axes_[i]).as_constant(), to = sizes_[i].as_constant();
      if (scales_.size() <= i) {
        if (from && to)
          scales_.emplace_back(static_cast<double>(*to) / static_cast<double>(*from));
        else
          scales_.emplace_back();
      }
    }
  }

  // A scale may be any number that a float can be.
  int64_t whole(double extent) {
    if (!(extent >= 0 && extent < 0x1p53))
      c_.fail(fmt::format("an extent would become {}", extent));
    return static_cast<int64_t>(extent);
  }

  // One scale for all axes, such that no extent is larger (smaller) than asked for.
  void keep_ratio(const Value& x) {
    const std::string policy = c_.text("keep_aspect_ratio_policy", "stretch");
    if (policy == "stretch") return;
    std::vector<double> extents;
    double scale = policy == "not_larger" ? HUGE_VAL : 0;
    for (size_t i = 0; i < axes_.size(); ++i) {
      const auto from = x.dim(axes_[i]).as_constant(), to = sizes_[i].as_constant();
      if (!from || !to)
        c_.unsupported(fmt::format("{} with symbolic extents", policy), "export constant sizes");
      extents.push_back(static_cast<double>(*from));
      const double s = static_cast<double>(*to) / extents.back();
      scale = policy == "not_larger" ? std::min(scale, s) : std::max(scale, s);
    }
    for (size_t i = 0; i < axes_.size(); ++i) {
      sizes_[i] = Dim(whole(std::floor(scale * extents[i] + 0.5)));
      scales_.emplace_back(scale);
    }
  }

  // floor(extent * scale), which a symbolic extent has for scales that are simple fractions.
  Dim scaled(const Dim& extent, double scale, size_t i) {
    if (!(scale > 0)) c_.fail("a scale is not positive");
    if (!roi_.empty()) scale *= roi_[i + axes_.size()] - roi_[i];
    if (auto e = extent.as_constant())
      return Dim(whole(std::floor(static_cast<double>(*e) * scale)));
    for (int64_t q = 1; q <= 64; ++q) {
      const double p = scale * static_cast<double>(q);
      if (std::fabs(p - std::nearbyint(p)) < 1e-6 && p >= 0.5)
        return c_.g.simplify(ir::floordiv(extent * Dim(whole(std::nearbyint(p))), Dim(q)));
    }
    c_.unsupported(fmt::format("the scale {} of a symbolic extent", scale),
                   "scale by a simple fraction, or give sizes");
  }

  Value number(double v) { return c_.g.scalar(v, DType::kF64); }
  Value number(const Dim& d) {
    if (auto v = d.as_constant()) return number(static_cast<double>(*v));
    return a_.cast(c_.g.size(d), DType::kF64);
  }

  // Where result k of axis i stands in the input.
  Value coordinates(size_t i, const Dim& extent) {
    const Value k = a_.range(sizes_[i], DType::kF64);
    const Value scale =
        scales_[i] ? number(*scales_[i]) : a_.div(number(sizes_[i]), number(extent));
    // The extent that the scale asks for; the results are its whole part.
    const Value length = scales_[i] ? a_.mul(number(extent), *scales_[i]) : number(sizes_[i]);
    if (where_ == "asymmetric") return a_.div(k, scale);
    const Value half = a_.sub(a_.div(a_.add(k, 0.5), scale), 0.5);
    if (where_ == "half_pixel") return half;
    if (where_ == "half_pixel_symmetric") {
      const Value centre = a_.mul(number(extent), 0.5);
      const Value shift = a_.mul(centre, a_.sub(number(1), a_.div(number(sizes_[i]), length)));
      return a_.add(half, shift);
    }
    if (where_ == "pytorch_half_pixel") return a_.where(a_.greater(length, 1.0), half, 0.0);
    const Value last = a_.sub(number(extent), 1.0), steps = a_.sub(length, 1.0);
    // Nothing is divided by 0 where there is one result.
    const Value safe = a_.where(a_.equal(steps, 0.0), 1.0, steps);
    if (where_ == "align_corners")
      return a_.where(a_.equal(steps, 0.0), 0.0, a_.div(a_.mul(k, last), safe));
    if (where_ == "tf_crop_and_resize") {
      const double start = roi_[i], end = roi_[i + axes_.size()];
      // One result stands in the middle.
      const Value count = number(sizes_[i]);
      const Value across =
          a_.div(a_.mul(k, a_.mul(last, end - start)), a_.maximum(a_.sub(count, 1.0), 1.0));
      return a_.where(a_.equal(count, 1.0), a_.mul(last, 0.5 * (start + end)),
                      a_.add(across, a_.mul(last, start)));
    }
    c_.fail(fmt::format("coordinate_transformation_mode {} has no meaning", printable(where_)));
  }

  Value clamped(const Value& at, const Dim& extent) {
    return a_.minimum(a_.maximum(at, 0.0), a_.sub(number(extent), 1.0));
  }

  Value taken(const Value& x, const Value& at, size_t i, const Dim& extent) {
    return a_.gather(x, a_.cast(clamped(at, extent), DType::kI64), axes_[i]);
  }

  // A vector as it meets x along the axis, in x's type.
  Value spread(const Value& v, const Value& x, size_t i) {
    Axes others;
    for (int64_t k = 0; k < x.rank(); ++k)
      if (k != axes_[i]) others.push_back(k);
    return a_.unsqueeze(v, others);
  }

  Value along(const Value& x, size_t i, const Dim& extent) {
    const Value at = coordinates(i, extent);
    Value y = mode_ == "nearest" ? nearest(x, at, i, extent) : weighted(x, at, i, extent);
    if (where_ != "tf_crop_and_resize") return y;
    const Value outside = a_.either(a_.less(at, 0.0), a_.greater(at, a_.sub(number(extent), 1.0)));
    return a_.where(spread(outside, y, i), c_.real("extrapolation_value", 0), y);
  }

  Value nearest(const Value& x, const Value& at, size_t i, const Dim& extent) {
    std::string how = c_.text("nearest_mode", "round_prefer_floor");
    if (c_.node.op == "Upsample" || c_.opset < 11) how = "floor";
    Value index;
    if (how == "floor")
      index = a_.floor(at);
    else if (how == "ceil")
      index = a_.unary("ceil", at);
    else if (how == "round_prefer_ceil")
      index = a_.floor(a_.add(at, 0.5));
    else
      index = a_.unary("ceil", a_.sub(at, 0.5));
    return taken(x, index, i, extent);
  }

  Value weighted(const Value& original, const Value& at, size_t i, const Dim& extent) {
    const Value x =
        is_float(original.dtype()) ? a_.widened(original) : a_.cast(original, DType::kF32);
    double narrow = 1;  // how much the filter is stretched: the scale, if antialiasing shrinks
    if (c_.integer("antialias", 0)) {
      if (!scales_[i]) c_.unsupported("antialias with symbolic extents", "export constant sizes");
      narrow = std::min(1.0, *scales_[i]);
    }
    const double radius = (mode_ == "linear" ? 1 : 2) / narrow;
    // Each place that the filter reaches becomes operations of its own.
    constexpr double kLargestRadius = 256;
    if (!(radius <= kLargestRadius))
      c_.unsupported(fmt::format("antialias at a scale of {}", narrow), "resize in several steps");
    const auto first = static_cast<int64_t>(std::floor(-radius)) + 1;
    const auto last = static_cast<int64_t>(std::ceil(radius));
    const Value base = a_.floor(at);
    const bool exclude = c_.integer("exclude_outside", 0) != 0;
    std::optional<Value> sum, total;
    for (int64_t tap = first; tap <= last; ++tap) {
      const Value place = a_.add(base, static_cast<double>(tap));
      Value distance = a_.sub(place, at);
      if (narrow != 1) distance = a_.mul(distance, narrow);
      Value weight = mode_ == "cubic" ? cubic_weight(a_, distance, c_.real("cubic_coeff_a", -0.75))
                                      : a_.maximum(a_.sub(number(1), a_.abs(distance)), 0.0);
      if (exclude) {
        const Value outside =
            a_.either(a_.less(place, 0.0), a_.greater(place, a_.sub(number(extent), 1.0)));
        weight = a_.where(outside, 0.0, weight);
      }
      total = total ? a_.add(*total, weight) : weight;
      const Value part =
          a_.mul(taken(x, place, i, extent), spread(a_.cast(weight, x.dtype()), x, i));
      sum = sum ? a_.add(*sum, part) : part;
    }
    if (!exclude && narrow == 1) return *sum;
    return a_.div(*sum, spread(a_.cast(*total, x.dtype()), x, i));
  }

  // Integers get the nearest one that they can hold.
  Value rounded(const Value& x, DType type) {
    if (is_float(type)) return x;
    const int bits = 8 * static_cast<int>(size_of(type));
    const double high = std::ldexp(1, is_unsigned_int(type) ? bits : bits - 1) - 1;
    const double low = is_unsigned_int(type) ? 0 : -high - 1;
    return c_.g.call("clip", {a_.unary("round", x)}, {{"min", low}, {"max", high}});
  }

  NodeContext& c_;
  Arithmetic a_;
  std::string mode_, where_;
  Axes axes_;
  Dims sizes_;
  std::vector<std::optional<double>> scales_;
  std::vector<double> roi_;
};

Values resize(NodeContext& c) {
  return Resize(c).build();
}

}  // namespace

std::span<const Operator> resize_operators() {
  static const Operator kRows[] = {
      {"Resize", resize},
      {"Upsample", resize},
  };
  return kRows;
}

}  // namespace nimble::frontend::onnx
