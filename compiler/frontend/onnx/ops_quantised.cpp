// Quantised tensors: y = saturate(round(x / scale) + zero), x = (y - zero) * scale.
//
// Products of quantised tensors are exact. Of matrices they are products of u8 and i8 with sums in
// i32, what the instructions for 8-bit numbers take, and the zero points are subtracted afterwards:
//
//   Σ (x - zx) (w - zw)  =  Σ x w  -  zx Σ (w - zw)  -  zw Σ x
//
// where the second sum is known if w is, and the third is not needed where zw is 0. An operand of
// the other sign is moved by 128, and its zero point too. All of it wraps alike, modulo 2^32.
// Convolutions are computed in f64: sums of products of 8-bit numbers stay far below 2^53.
#include <cmath>

#include "compiler/frontend/onnx/arithmetic.h"
#include "compiler/frontend/onnx/operators.h"
#include "compiler/ir/axes.h"

namespace nimble::frontend::onnx {
namespace {

using ir::Dim;

std::pair<double, double> limits(DType t) {
  const int bits = 8 * static_cast<int>(size_of(t));
  return is_unsigned_int(t) ? std::pair(0.0, std::ldexp(1, bits) - 1)
                            : std::pair(-std::ldexp(1, bits - 1), std::ldexp(1, bits - 1) - 1);
}

// A scale or zero point as it meets x: one number, one per element of an axis, or one per block of
// `block` elements along the axis.
Value spread(NodeContext& c, const Value& v, const Value& x, int64_t axis, int64_t block) {
  Arithmetic a(c.g);
  if (block > 0) {
    const auto at = static_cast<size_t>(axis);
    Dims apart = v.dims(), filled = v.dims(), merged = v.dims();
    apart.insert(apart.begin() + axis + 1, Dim(1));
    filled.insert(filled.begin() + axis + 1, Dim(block));
    merged[at] = merged[at] * Dim(block);
    const Value all = c.g.reshape(a.expand(c.g.reshape(v, apart), filled), merged);
    return merged[at] == x.dim(at) ? all : c.g.slice(all, axis, Dim(0), x.dim(at));
  }
  if (v.rank() == 0) return v;
  if (v.rank() != 1) c.fail("the scale is neither one number nor a vector");
  if (v.dim(0).is_constant(1)) return c.g.reshape(v, {});
  Axes others;
  for (int64_t i = 0; i < x.rank(); ++i)
    if (i != axis) others.push_back(i);
  return a.unsqueeze(v, others);
}

// round(x) + zero within the limits of `to`, for x in a float dtype.
Value saturated(NodeContext& c, const Value& x, const std::optional<Value>& zero, DType to) {
  Arithmetic a(c.g);
  Value y = a.unary("round", x);
  if (zero) y = a.add(y, a.cast(*zero, y.dtype()));
  const auto [low, high] = limits(to);
  return a.cast(c.g.call("clip", {y}, {{"min", low}, {"max", high}}), to);
}

void require_integers(NodeContext& c, DType t) {
  if (is_float(t) || t == DType::kBool || size_of(t) > 2)
    c.unsupported(fmt::format("quantisation to {}", nimble::name_of(t)),
                  "quantise to 8- or 16-bit integers");
}

Values quantize(NodeContext& c) {
  Arithmetic a(c.g);
  const Value& x = c.in(0);
  DType to = DType::kU8;
  if (c.has(2))
    to = c.in(2).dtype();
  else if (int64_t given = c.integer("output_dtype", 0))
    to = dtype_of(given, c.place);
  require_integers(c, to);
  const int64_t axis = x.rank() ? c.axis(c.integer("axis", 1), std::max<int64_t>(x.rank(), 2)) : 0;
  const int64_t block = c.integer("block_size", 0);
  // The quotient is rounded to the type of its operands, or to `precision`.
  DType type = c.in(1).dtype();
  if (int64_t given = c.integer("precision", 0)) type = dtype_of(given, c.place);
  const Value scale = spread(c, c.in(1), x, axis, block);
  std::optional<Value> zero;
  if (c.has(2)) zero = a.cast(spread(c, c.in(2), x, axis, block), DType::kF32);
  const Value ratio = a.div(a.cast(x, type), a.cast(scale, type));
  return {saturated(c, a.cast(ratio, DType::kF32), zero, to)};
}

Values dequantize(NodeContext& c) {
  Arithmetic a(c.g);
  const Value& x = c.in(0);
  if (is_float(x.dtype()))
    c.unsupported(fmt::format("dequantisation of {}", nimble::name_of(x.dtype())),
                  "quantise to integers");
  const int64_t axis = x.rank() ? c.axis(c.integer("axis", 1), std::max<int64_t>(x.rank(), 2)) : 0;
  const int64_t block = c.integer("block_size", 0);
  DType to = c.in(1).dtype();
  if (int64_t given = c.integer("output_dtype", 0)) to = dtype_of(given, c.place);
  Value y = a.cast(x, DType::kI32);
  if (c.has(2)) y = a.sub(y, a.cast(spread(c, c.in(2), x, axis, block), DType::kI32));
  const Value scale = a.cast(spread(c, c.in(1), x, axis, block), DType::kF32);
  return {a.cast(a.mul(a.cast(y, DType::kF32), scale), to)};
}

// Scale and zero point from the range of the values, 0 included.
Values dynamic_quantize(NodeContext& c) {
  Arithmetic a(c.g);
  const Value& x = c.in(0);
  const Axes all = axes_between(0, x.rank());
  const Value low = a.minimum(a.reduce("reduce_min", x, all, false), 0.0);
  const Value high = a.maximum(a.reduce("reduce_max", x, all, false), 0.0);
  Value scale = a.div(a.sub(high, low), 255.0);
  scale = a.where(a.equal(scale, 0.0), 1.0, scale);
  const Value zero = saturated(c, a.neg(a.div(low, scale)), std::nullopt, DType::kU8);
  return {saturated(c, a.div(x, scale), zero, DType::kU8), scale, zero};
}

// x minus its zero point, in `type`; the zero point stands alone or along `axis`.
Value centred(NodeContext& c, size_t x, size_t zero, int64_t axis, DType type) {
  Arithmetic a(c.g);
  Value v = a.cast(c.in(x), type);
  if (!c.has(zero)) return v;
  Value z = c.in(zero);
  if (z.rank() == 1) {
    const int64_t at = ir::axis_from_front(axis, v.rank());
    if (z.dim(0).is_constant(1))
      z = c.g.reshape(z, {});
    else if (at >= 0)
      z = spread(c, z, v, at, 0);
  }
  return a.sub(v, a.cast(z, type));
}

// An 8-bit operand of a product and what is to be subtracted from it, in i32, broadcastable; none
// is 0.
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

// Operand number `x` as numbers of the type `to`, u8 or i8. Its zero point stands alone or along
// `axis`, the last but one or the last.
Operand8 operand8(NodeContext& c, size_t x, size_t zero, int64_t axis, DType to) {
  Arithmetic a(c.g);
  Operand8 out{c.in(x), std::nullopt};
  const DType from = out.x.dtype();
  int32_t shift = 0;
  if (from != to) {  // the highest bit turns i8 + 128 into u8 and u8 - 128 into i8
    shift = to == DType::kU8 ? 128 : -128;
    out.x = c.g.call("bitcast", {a.binary("bitwise_xor", out.x, from == DType::kI8 ? -128 : 128)},
                     {{"dtype", to}});
  }
  if (!c.has(zero)) {
    if (shift != 0) out.zero = c.g.constant(ir::Tensor::of<int32_t>(DType::kI32, {}, {shift}));
    return out;
  }
  Value z = c.in(zero);
  if (z.is_constant()) {
    const Value moved = moved_constant(c, *z.atom.constant, shift);
    if (is_zero(*moved.atom.constant)) return out;
    z = moved;
  } else {
    z = a.cast(z, DType::kI32);
    if (shift != 0) z = a.add(z, shift);
  }
  if (z.rank() == 1 && z.dim(0).is_constant(1)) z = c.g.reshape(z, {});
  if (z.rank() == 1 && axis == -2) z = a.unsqueeze(z, {1});
  out.zero = z;
  return out;
}

bool is_8_bit(DType t) {
  return t == DType::kU8 || t == DType::kI8;
}

// The product of operands `x` and `w`, less their zero points, in i32.
Value product_of_centred(NodeContext& c, size_t x, size_t x_zero, size_t w, size_t w_zero) {
  Arithmetic a(c.g);
  if (!is_8_bit(c.in(x).dtype()) || !is_8_bit(c.in(w).dtype()) || c.in(x).rank() < 2 ||
      c.in(w).rank() < 2)
    return a.matmul(centred(c, x, x_zero, -2, DType::kI32), centred(c, w, w_zero, -1, DType::kI32));
  const Operand8 left = operand8(c, x, x_zero, -2, DType::kU8);
  const Operand8 right = operand8(c, w, w_zero, -1, DType::kI8);
  Value y = c.g.call("matmul", {left.x, right.x}, {{"out", DType::kI32}});
  if (left.zero) {
    Value columns = a.cast(right.x, DType::kI32);
    if (right.zero) columns = a.sub(columns, *right.zero);
    y = a.sub(y, a.mul(*left.zero, a.sum(columns, {right.x.rank() - 2}, true)));
  }
  if (right.zero) {
    const Value rows = a.sum(a.cast(left.x, DType::kI32), {left.x.rank() - 1}, true);
    y = a.sub(y, a.mul(*right.zero, rows));
  }
  return y;
}

Values matmul_integer(NodeContext& c) {
  return {product_of_centred(c, 0, 2, 1, 3)};
}

// Inputs: a, its scale and zero, b, its scale and zero, the result's scale and zero.
Values qlinear_matmul(NodeContext& c) {
  Arithmetic a(c.g);
  const DType to = c.in(7).dtype();
  require_integers(c, to);
  const Value product = product_of_centred(c, 0, 2, 3, 5);
  const auto scale = [&](size_t i, int64_t axis) {
    Value s = a.cast(c.in(i), DType::kF64);
    if (s.rank() == 1 && s.dim(0).is_constant(1)) return c.g.reshape(s, {});
    return s.rank() == 1 && axis == -2 ? a.unsqueeze(s, {1}) : s;
  };
  Value y = a.mul(a.cast(product, DType::kF64), a.mul(scale(1, -2), scale(4, -1)));
  y = a.div(y, scale(6, -1));
  return {saturated(c, y, a.cast(c.g.reshape(c.in(7), {}), DType::kF64), to)};
}

Values conv_integer(NodeContext& c) {
  Arithmetic a(c.g);
  const Value x = centred(c, 0, 2, -1, DType::kF64), w = centred(c, 1, 3, 0, DType::kF64);
  return {a.cast(convolution(c, x, w, std::nullopt), DType::kI32)};
}

// Inputs: x, its scale and zero, w, its scale and zero, the result's scale and zero, bias.
Values qlinear_conv(NodeContext& c) {
  Arithmetic a(c.g);
  const DType to = c.in(7).dtype();
  require_integers(c, to);
  const Value x = centred(c, 0, 2, -1, DType::kF64), w = centred(c, 3, 5, 0, DType::kF64);
  std::optional<Value> bias;
  if (c.has(8)) bias = a.cast(c.in(8), DType::kF64);
  Value y = convolution(c, x, w, bias);
  const Value by = a.cast(c.in(1), DType::kF64), result = a.cast(c.in(6), DType::kF64);
  Value scale = a.mul(c.g.reshape(by, {}), spread(c, a.cast(c.in(4), DType::kF64), y, 1, 0));
  y = a.div(a.mul(y, scale), c.g.reshape(result, {}));
  return {saturated(c, y, a.cast(c.g.reshape(c.in(7), {}), DType::kF64), to)};
}

}  // namespace

std::span<const Operator> quantised_operators() {
  static const Operator kRows[] = {
      {"QuantizeLinear", quantize},
      {"DequantizeLinear", dequantize},
      {"DynamicQuantizeLinear", dynamic_quantize},
      {"MatMulInteger", matmul_integer},
      {"QLinearMatMul", qlinear_matmul},
      {"ConvInteger", conv_integer},
      {"QLinearConv", qlinear_conv},
  };
  return kRows;
}

}  // namespace nimble::frontend::onnx
