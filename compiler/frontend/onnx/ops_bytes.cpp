// Products and convolutions of quantised tensors. They are exact: products of u8 and i8 with sums
// in i32, what the instructions for bytes take. Zero points are subtracted afterwards:
//
//   Σ (x - zx) (w - zw)  =  Σ x w  -  zx Σ (w - zw)  -  zw Σ x
//
// where the second sum is known if w is, and the third is not needed where zw is 0. An operand of
// the other sign is moved by 128, and its zero point too; known weights are moved by their zero
// points where they then fit a byte. All of it wraps alike, modulo 2^32.
//
// A convolution's padding is the value 0, so it is zx in x. Where that is not 0 the image is padded
// ahead: then Σ (w - zw) is the same everywhere. Instructions take channels by fours, so an image
// of other channels gets more of them, in each of its groups, whose weights are 0; but where each
// group is one channel and one filter, kernels take rows of taps by fours. What has a zero point of
// its weights after all is computed in floats that hold its sums.
//
// A product or convolution of dequantised tensors (DequantizeLinear) is one of their bytes, scaled:
//
//   Σ sx (x - zx) sw (w - zw)  =  sx sw Σ (x - zx) (w - zw)
//
// which rounds less than the formula on the left, where the sums surely fit i32. Whatever follows
// it, a bias, an activation, the next QuantizeLinear, is fused behind the sums, as it is behind any
// other product.
#include <algorithm>
#include <cmath>

#include "compiler/frontend/onnx/quantised.h"
#include "compiler/ir/axes.h"

namespace nimble::frontend::onnx {
namespace {

using ir::Dim;

// Scales and zero points of one number may be vectors of one element.
bool stands_alone(const Value& v) {
  return v.rank() == 0 || (v.rank() == 1 && v.dim(0).is_constant(1));
}

// ------------------------------------------------------------------------------ operands

// A byte operand and what is to be subtracted from it, in i32: a scalar or a vector; none is 0.
struct Operand8 {
  Value x;
  std::optional<Value> zero;
};

// A constant's elements + `shift` in i32.
Value moved_constant(NodeContext& c, const ir::Tensor& t, int32_t shift) {
  std::vector<int32_t> moved;
  for (int64_t i = 0; i < t.elements(); ++i)
    moved.push_back(static_cast<int32_t>(t.value(i)) + shift);
  return c.g.constant(ir::Tensor::of<int32_t>(DType::kI32, t.shape, moved));
}

bool is_zero(const ir::Tensor& t) {
  for (int64_t i = 0; i < t.elements(); ++i)
    if (t.value(i) != 0) return false;
  return true;
}

// w - zero in i8, the zero points along `axis`; null where that does not fit.
ir::TensorRef centred_bytes(const ir::Tensor& w, const ir::Tensor& zero, int64_t axis) {
  const auto at = static_cast<size_t>(axis);
  // Zero points of more axes may be those of a stack of matrices.
  if (zero.elements() != 1 && (zero.shape.size() != 1 || zero.elements() != w.shape[at]))
    return nullptr;
  int64_t inner = 1;
  for (size_t i = at + 1; i < w.shape.size(); ++i) inner *= w.shape[i];
  std::vector<int8_t> out;
  out.reserve(static_cast<size_t>(w.elements()));
  for (int64_t i = 0; i < w.elements(); ++i) {
    const int64_t z = zero.elements() == 1 ? 0 : i / inner % w.shape[at];
    const double v = w.value(i) - zero.value(z);
    if (v < -128 || v > 127) return nullptr;
    out.push_back(static_cast<int8_t>(v));
  }
  return ir::Tensor::of<int8_t>(DType::kI8, w.shape, out);
}

// `x`, bytes, as numbers of the type `to`, u8 or i8. Its zero point stands alone or along `axis`.
Operand8 operand8(NodeContext& c, const Value& x, const std::optional<Value>& zero, int64_t axis,
                  DType to) {
  Arithmetic a(c.g);
  Operand8 out{x, std::nullopt};
  const DType from = x.dtype();
  // Others might be fractions, or beyond what their sums with 128 hold.
  if (zero && zero->dtype() != from)
    c.fail(fmt::format("a zero point is {}, what it is subtracted from {}",
                       nimble::name_of(zero->dtype()), nimble::name_of(from)));
  int32_t shift = 0;
  if (from != to) {  // the highest bit turns i8 + 128 into u8 and u8 - 128 into i8
    shift = to == DType::kU8 ? 128 : -128;
    out.x = c.g.call("bitcast", {a.binary("bitwise_xor", x, from == DType::kI8 ? -128 : 128)},
                     {{"dtype", to}});
  }
  if (!zero) {
    if (shift != 0) out.zero = c.g.constant(ir::Tensor::of<int32_t>(DType::kI32, {}, {shift}));
  } else if (zero->is_constant()) {
    const Value moved = moved_constant(c, *zero->atom.constant, shift);
    if (!is_zero(*moved.atom.constant)) out.zero = moved;
  } else {
    out.zero = a.cast(*zero, DType::kI32);
    if (shift != 0) out.zero = a.add(*out.zero, shift);
  }
  if (out.zero && x.is_constant() && to == DType::kI8 && (!zero || zero->is_constant())) {
    const ir::Tensor none = *ir::Tensor::of<int32_t>(DType::kI32, {}, {0});
    if (auto w = centred_bytes(*x.atom.constant, zero ? *zero->atom.constant : none, axis))
      return {c.g.constant(w), std::nullopt};
  }
  if (out.zero && stands_alone(*out.zero)) out.zero = c.g.reshape(*out.zero, {});
  return out;
}

std::optional<Value> optional_input(NodeContext& c, size_t i) {
  return c.has(i) ? std::optional(c.in(i)) : std::nullopt;
}

// x minus its zero point, in `type`; the zero point stands alone or along `axis`.
Value centred(NodeContext& c, size_t x, size_t zero, int64_t axis, DType type) {
  Arithmetic a(c.g);
  Value v = a.cast(c.in(x), type);
  if (!c.has(zero)) return v;
  Value z = c.in(zero);
  if (z.rank() == 1) {
    const int64_t at = ir::axis_from_front(axis, v.rank());
    if (stands_alone(z))
      z = c.g.reshape(z, {});
    else if (at >= 0)
      z = spread(c, z, v, at, 0);
  }
  return a.sub(v, a.cast(z, type));
}

// ------------------------------------------------------------------------------ products

// Of operands less their zero points, in i32. The left one's stand alone or along its rows, the
// right one's alone or along its columns; transposed, the right one is a matrix without any.
Value product_of_bytes(NodeContext& c, const Operand8& left, const Operand8& right,
                       bool transpose_b) {
  Arithmetic a(c.g);
  ir::Attrs attrs = {{"out", DType::kI32}};
  if (transpose_b) attrs["transpose_b"] = true;
  Value y = c.g.call("matmul", {left.x, right.x}, std::move(attrs));
  if (left.zero) {
    const Value zero = left.zero->rank() == 1 ? a.unsqueeze(*left.zero, {1}) : *left.zero;
    Value columns = a.cast(right.x, DType::kI32);
    if (right.zero) columns = a.sub(columns, *right.zero);
    const Value sums =
        transpose_b ? a.sum(columns, {1}, false) : a.sum(columns, {right.x.rank() - 2}, true);
    y = a.sub(y, a.mul(zero, sums));
  }
  if (right.zero) {
    const Value rows = a.sum(a.cast(left.x, DType::kI32), {left.x.rank() - 1}, true);
    y = a.sub(y, a.mul(*right.zero, rows));
  }
  return y;
}

// The product of inputs `x` and `w`, less their zero points, in i32.
Value product_of_centred(NodeContext& c, size_t x, size_t x_zero, size_t w, size_t w_zero) {
  if (!is_byte(c.in(x).dtype()) || !is_byte(c.in(w).dtype()) || c.in(x).rank() < 2 ||
      c.in(w).rank() < 2)
    return Arithmetic(c.g).matmul(centred(c, x, x_zero, -2, DType::kI32),
                                  centred(c, w, w_zero, -1, DType::kI32));
  const Operand8 left =
      operand8(c, c.in(x), optional_input(c, x_zero), c.in(x).rank() - 2, DType::kU8);
  const Operand8 right =
      operand8(c, c.in(w), optional_input(c, w_zero), c.in(w).rank() - 1, DType::kI8);
  return product_of_bytes(c, left, right, false);
}

// Sums in i32 as numbers, by scales that multiply or broadcast.
Value scaled(NodeContext& c, const Value& sums, const Value& left, const Value& right) {
  Arithmetic a(c.g);
  const auto one = [&](const Value& s) { return stands_alone(s) ? c.g.reshape(s, {}) : s; };
  const Value scale = a.mul(a.cast(one(left), DType::kF32), a.cast(one(right), DType::kF32));
  return a.mul(a.cast(sums, DType::kF32), scale);
}

// saturate(round(sums * multiplier) + zero) in the type of `zero`, in f32 as ONNX Runtime does.
Value requantised(NodeContext& c, const Value& sums, const Value& multiplier, const Value& zero) {
  Arithmetic a(c.g);
  return saturated(c, a.mul(a.cast(sums, DType::kF32), multiplier),
                   a.cast(c.g.reshape(zero, {}), DType::kF32), zero.dtype());
}

Values matmul_integer(NodeContext& c) {
  return {product_of_centred(c, 0, 2, 1, 3)};
}

// Inputs: a, its scale and zero, b, its scale and zero, the result's scale and zero.
Values qlinear_matmul(NodeContext& c) {
  Arithmetic a(c.g);
  require_integers(c, c.in(7).dtype());
  const Value product = product_of_centred(c, 0, 2, 3, 5);
  const auto scale = [&](size_t i, int64_t axis) {
    const Value s = a.cast(c.in(i), DType::kF32);
    if (stands_alone(s)) return c.g.reshape(s, {});
    return s.rank() == 1 && axis == -2 ? a.unsqueeze(s, {1}) : s;
  };
  const Value multiplier = a.div(a.mul(scale(1, -2), scale(4, -1)), scale(6, -1));
  return {requantised(c, product, multiplier, c.in(7))};
}

// Inputs of ONNX Runtime's operators: a, b, their scales, their zero points, a bias.
Values matmul_integer_to_float(NodeContext& c) {
  Arithmetic a(c.g);
  if (!stands_alone(c.in(2)) || (c.has(4) && !stands_alone(c.in(4))))
    c.unsupported("scales or zero points of A that are more than one number",
                  "quantise A with one scale");
  const Value y = scaled(c, product_of_centred(c, 0, 4, 1, 5), c.in(2), c.in(3));
  return {c.has(6) ? a.add(y, c.in(6)) : y};
}

// a in floats, b, its scale and zero point, a bias.
Values dynamic_quantize_matmul(NodeContext& c) {
  Arithmetic a(c.g);
  const Value& w = c.in(1);
  if (!is_byte(w.dtype()) || w.rank() < 2 || c.in(0).rank() < 2)
    c.unsupported("a product of other operands than floats and a matrix of bytes",
                  "quantise the weights to 8 bits");
  const DynamicallyQuantised x = quantised_by_range(c, c.in(0));
  const Value sums =
      product_of_bytes(c, operand8(c, x.values, x.zero, 0, DType::kU8),
                       operand8(c, w, optional_input(c, 3), w.rank() - 1, DType::kI8), false);
  const Value y = scaled(c, sums, x.scale, c.in(2));
  return {c.has(4) ? a.add(y, c.in(4)) : y};
}

// ------------------------------------------------------------------------------ convolutions

constexpr int64_t kGroup = 4;  // channels that instructions take at a time

// Zeros behind the channels of each group of an image, or behind those of weights, which are axis 1
// of both; weights are one group.
Value with_more_channels(NodeContext& c, const Value& x, int64_t groups, int64_t more) {
  Arithmetic a(c.g);
  Dims apart = x.dims(), merged = x.dims();
  const Dim channels = c.g.simplify(ir::floordiv(apart[1], Dim(groups)));
  const bool several = groups > 1;
  if (several) {
    apart[1] = channels;
    apart.insert(apart.begin() + 1, Dim(groups));
    merged[1] = Dim(groups) * (channels + Dim(more));
  }
  Dims none(apart.size(), 0), behind = none;
  behind[several ? 2 : 1] = more;
  const Value y = a.pad(several ? c.g.reshape(x, apart) : x, none, behind);
  return several ? c.g.reshape(y, merged) : y;
}

// Whether each group is one channel and one filter, which kernels take as they are.
bool is_depthwise(const Value& w, int64_t groups) {
  return groups > 1 && w.dim(1).is_constant(1) && w.dim(0).is_constant(groups);
}

// The node's convolution of x less its zero point, which stands alone, with w, which has none, plus
// a bias in i32; in i32.
Value convolution_of_bytes(NodeContext& c, const Operand8& x, const Operand8& w,
                           std::optional<Value> bias) {
  Arithmetic a(c.g);
  Value image = x.x, weights = w.x;
  const auto channels = weights.dim(1).as_constant();
  const int64_t groups = c.integer("group", 1);
  if (channels && *channels % kGroup != 0 && groups > 0 && !is_depthwise(weights, groups) &&
      image.rank() >= 3 && image.dim(1) == Dim(*channels) * Dim(groups)) {
    const int64_t more = kGroup - *channels % kGroup;
    image = with_more_channels(c, image, groups, more);
    weights = with_more_channels(c, weights, 1, more);
  }
  if (x.zero) {
    const Value sums = a.sum(a.cast(w.x, DType::kI32), axes_between(1, w.x.rank()), false);
    const Value correction = a.neg(a.mul(*x.zero, sums));
    bias = bias ? a.add(*bias, correction) : correction;
  }
  return convolution(c, image, weights, bias, ByteConvolution{DType::kI32, x.zero});
}

// A float type that holds all sums of products of two bytes less their zero points.
DType exact_type(const Value& w) {
  constexpr int64_t kMostTerms = (int64_t{1} << 24) / (255 * 255);
  const auto terms = product_of(w.dims(), 1, w.rank()).as_constant();
  return terms && *terms <= kMostTerms ? DType::kF32 : DType::kF64;
}

// The node's convolution of inputs `x` and `w`, less their zero points, plus a bias; in i32.
Value convolution_of_centred(NodeContext& c, size_t x, size_t x_zero, size_t w, size_t w_zero,
                             const std::optional<Value>& bias) {
  Arithmetic a(c.g);
  const Value &image = c.in(x), &weights = c.in(w);
  const bool bytes = is_byte(image.dtype()) && is_byte(weights.dtype()) && weights.rank() >= 3 &&
                     weights.rank() == image.rank();
  if (bytes && (!c.has(x_zero) || stands_alone(c.in(x_zero)))) {
    const Operand8 right = operand8(c, weights, optional_input(c, w_zero), 0, DType::kI8);
    if (!right.zero) {
      const Operand8 left = operand8(c, image, optional_input(c, x_zero), 1, DType::kU8);
      return convolution_of_bytes(c, left, right, bias);
    }
  }
  const DType type = exact_type(weights);
  Value y =
      convolution(c, centred(c, x, x_zero, -1, type), centred(c, w, w_zero, 0, type), std::nullopt);
  y = a.cast(y, DType::kI32);
  return bias ? a.add(y, a.unsqueeze(*bias, axes_between(1, y.rank() - 1))) : y;
}

Values conv_integer(NodeContext& c) {
  return {convolution_of_centred(c, 0, 2, 1, 3, std::nullopt)};
}

// Inputs: x, its scale and zero, w, its scale and zero, the result's scale and zero, bias.
Values qlinear_conv(NodeContext& c) {
  Arithmetic a(c.g);
  require_integers(c, c.in(7).dtype());
  const Value y = convolution_of_centred(c, 0, 2, 3, 5, optional_input(c, 8));
  const auto scale = [&](size_t i) { return a.cast(c.in(i), DType::kF32); };
  const Value one = c.g.reshape(scale(1), {}), result = c.g.reshape(scale(6), {});
  const Value multiplier = a.div(a.mul(one, spread(c, scale(4), y, 1, 0)), result);
  return {requantised(c, y, multiplier, c.in(7))};
}

// ------------------------------------------------------------------------------ dequantised ones

// Whether scale and zero point stand alone, or along `axis`, too, if that is given.
bool is_scaled_along(const GraphBuilder::Quantised& q, std::optional<int64_t> axis) {
  const bool alone = stands_alone(q.scale) && (!q.zero || stands_alone(*q.zero));
  return alone || (axis && q.axis == *axis);
}

// The operands of a product or convolution: x with one scale, and constant weights in i8, without
// zero points, with one scale or one along `axis`.
struct Dequantised {
  GraphBuilder::Quantised x, w;
  Operand8 weights;
};
std::optional<Dequantised> dequantised_operands(NodeContext& c, int64_t axis) {
  const auto x = c.g.quantised(c.in(0)), w = c.g.quantised(c.in(1));
  if (!x || !w || !is_byte(x->values.dtype()) || !is_byte(w->values.dtype()) ||
      !is_scaled_along(*x, {}) || !is_scaled_along(*w, axis) || !c.g.is_settled(w->values) ||
      (w->zero && !w->zero->is_constant()))
    return std::nullopt;
  // Longer sums might wrap, which those of the model's floats do not.
  constexpr int64_t kMostTerms = INT32_MAX / (255 * 128);
  const auto all = ir::element_count(w->values.type).as_constant(),
             filters = w->values.dim(axis).as_constant();
  if (!all || !filters || (*filters > 0 && *all / *filters > kMostTerms)) return std::nullopt;
  Operand8 weights = operand8(c, w->values, w->zero, axis, DType::kI8);
  if (weights.zero) return std::nullopt;
  return Dequantised{*x, *w, std::move(weights)};
}

// The bias of a convolution in i32 where it was dequantised with the scale of the sums: there it is
// added to them, exactly, and neither may wrap. Nothing if it is another.
std::optional<Value> bias_of_sums(NodeContext& c, const Dequantised& of) {
  const auto bias = c.has(2) ? c.g.quantised(c.in(2)) : std::nullopt;
  if (!bias || bias->values.dtype() != DType::kI32 || !bias->values.is_constant() ||
      !bias->scale.is_constant() || !of.x.scale.is_constant() || !of.w.scale.is_constant() ||
      (bias->zero && !(bias->zero->is_constant() && is_zero(*bias->zero->atom.constant))))
    return std::nullopt;
  constexpr double kMost = 1 << 30, kLargestProduct = 255 * 128, kApart = 1e-6;
  const auto terms = product_of(of.weights.x.dims(), 1, of.weights.x.rank()).as_constant();
  if (!terms || static_cast<double>(*terms) * kLargestProduct >= kMost) return std::nullopt;
  const auto at = [](const Value& v, int64_t i) {
    const ir::Tensor& t = *v.atom.constant;
    return t.value(t.elements() == 1 ? 0 : i);
  };
  const auto filters = of.weights.x.dim(0).as_constant();
  for (const Value* v : {&bias->values, &bias->scale, &of.w.scale})
    if (!filters || (v->atom.constant->elements() != *filters &&
                     (v == &bias->values || v->atom.constant->elements() != 1)))
      return std::nullopt;
  for (int64_t i = 0; i < *filters; ++i) {
    const double scale = at(of.x.scale, 0) * at(of.w.scale, i);
    if (!(std::abs(at(bias->scale, i) - scale) <= kApart * scale) ||
        std::abs(at(bias->values, i)) >= kMost)
      return std::nullopt;
  }
  return c.g.reshape(bias->values, {of.weights.x.dim(0)});
}

}  // namespace

std::optional<Value> quantised_convolution(NodeContext& c) {
  Arithmetic a(c.g);
  if (c.in(1).rank() < 3 || c.in(0).rank() != c.in(1).rank()) return std::nullopt;
  if (!c.in(1).dim(1).as_constant()) return std::nullopt;
  const auto of = dequantised_operands(c, 0);
  if (!of) return std::nullopt;
  const Operand8 image = operand8(c, of->x.values, of->x.zero, 1, DType::kU8);
  const std::optional<Value> bias = bias_of_sums(c, *of);
  const Value sums = convolution_of_bytes(c, image, of->weights, bias);
  const Value y = scaled(c, sums, of->x.scale, spread(c, of->w.scale, sums, 1, 0));
  if (bias || !c.has(2)) return y;
  return a.add(y, a.unsqueeze(a.cast(c.in(2), y.dtype()), axes_between(1, y.rank() - 1)));
}

std::optional<Value> quantised_product(NodeContext& c, bool transpose_b) {
  if (c.in(0).rank() < 2 || c.in(1).rank() != 2) return std::nullopt;
  const auto of = dequantised_operands(c, transpose_b ? 0 : 1);
  if (!of) return std::nullopt;
  const Operand8 rows = operand8(c, of->x.values, of->x.zero, 0, DType::kU8);
  const Value sums = product_of_bytes(c, rows, of->weights, transpose_b);
  return scaled(c, sums, of->x.scale, of->w.scale);
}

std::span<const Operator> byte_operators() {
  static const Operator kRows[] = {
      {"MatMulInteger", matmul_integer},
      {"QLinearMatMul", qlinear_matmul},
      {"ConvInteger", conv_integer},
      {"QLinearConv", qlinear_conv},
      {"MatMulIntegerToFloat", matmul_integer_to_float, nullptr, "com.microsoft"},
      {"DynamicQuantizeMatMul", dynamic_quantize_matmul, nullptr, "com.microsoft"},
  };
  return kRows;
}

}  // namespace nimble::frontend::onnx
