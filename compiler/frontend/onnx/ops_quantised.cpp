// Quantised tensors: y = saturate(round(x / scale) + zero), x = (y - zero) * scale. What is
// computed of them is in ops_bytes.cpp.
#include <cmath>

#include "compiler/frontend/onnx/quantised.h"

namespace nimble::frontend::onnx {

using ir::Dim;

namespace {

std::pair<double, double> limits(DType t) {
  const int bits = 8 * static_cast<int>(size_of(t));
  return is_unsigned_int(t) ? std::pair(0.0, std::ldexp(1, bits) - 1)
                            : std::pair(-std::ldexp(1, bits - 1), std::ldexp(1, bits - 1) - 1);
}

}  // namespace

Value spread(NodeContext& c, const Value& v, const Value& x, int64_t axis, int64_t block) {
  Arithmetic a(c.g);
  if (block < 0) c.fail(fmt::format("block_size is {}", block));
  if (block > 0) {
    if (v.rank() != x.rank() || axis >= x.rank())
      c.fail(fmt::format("scales or zero points by blocks have rank {}, and the tensor rank {}",
                         v.rank(), x.rank()));
    const auto at = static_cast<size_t>(axis);
    const auto extent = x.dim(at).as_constant(), blocks = v.dim(at).as_constant();
    if (extent && blocks && *blocks != *extent / block + (*extent % block != 0))
      c.fail(fmt::format("{} blocks of {} along an axis of {}", *blocks, block, *extent));
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

DynamicallyQuantised quantised_by_range(NodeContext& c, const Value& x) {
  Arithmetic a(c.g);
  // Of each row first: threads share rows.
  const auto extreme = [&](const char* op) {
    const Value rows = x.rank() > 1 ? a.reduce(op, x, {x.rank() - 1}, false) : x;
    return a.reduce(op, rows, axes_between(0, rows.rank()), false);
  };
  const Value low = a.minimum(extreme("reduce_min"), 0.0);
  const Value high = a.maximum(extreme("reduce_max"), 0.0);
  Value scale = a.div(a.sub(high, low), 255.0);
  scale = a.where(a.equal(scale, 0.0), 1.0, scale);
  const Value zero = saturated(c, a.neg(a.div(low, scale)), std::nullopt, DType::kU8);
  return {saturated(c, a.div(x, scale), zero, DType::kU8), scale, zero};
}

Value dequantised(NodeContext& c, const GraphBuilder::Quantised& q) {
  Arithmetic a(c.g);
  Value y = a.cast(q.values, DType::kI32);
  if (q.zero) y = a.sub(y, a.cast(spread(c, *q.zero, q.values, q.axis, 0), DType::kI32));
  const Value scale = a.cast(spread(c, q.scale, q.values, q.axis, 0), DType::kF32);
  const Value real = a.mul(a.cast(y, DType::kF32), scale);
  c.g.note_quantised(real, q);
  return real;
}

bool is_scaled_alike(const GraphBuilder::Quantised& a, const GraphBuilder::Quantised& b) {
  const auto one = [](const Value& v) -> std::optional<double> {
    if (!v.is_constant() || v.atom.constant->elements() != 1) return std::nullopt;
    return v.atom.constant->value(0);
  };
  // 255 steps stay finite.
  constexpr double kLargest = 1e30;
  const auto scale = one(a.scale);
  if (!scale || !(*scale > 0) || *scale > kLargest || one(b.scale) != scale ||
      a.scale.dtype() != b.scale.dtype() || a.values.dtype() != b.values.dtype())
    return false;
  const auto zero = [&](const GraphBuilder::Quantised& q) { return q.zero ? one(*q.zero) : 0.0; };
  return zero(a) && zero(a) == zero(b);
}

std::optional<Values> moved_bytes(NodeContext& c, Rule rule) {
  auto from = c.has(0) ? c.g.quantised(c.in(0)) : std::nullopt;
  const auto alone = [](const Value& v) {
    return ir::element_count(v.type).is_constant(1) && v.rank() < 2;
  };
  if (!from || !alone(from->scale) || (from->zero && !alone(*from->zero))) return std::nullopt;
  std::vector<std::optional<Value>> inputs = c.inputs;
  inputs[0] = from->values;
  NodeContext of_bytes{c.node, c.opset, c.g,     c.module,   c.external,
                       c.file, inputs,  c.place, c.subgraphs};
  Values out = rule(of_bytes);
  for (Value& v : out)
    if (v.type->kind == ir::TypeKind::kTensor && v.dtype() == from->values.dtype())
      v = dequantised(c, {v, from->scale, from->zero, 0});
  return out;
}

namespace {

Values quantize(NodeContext& c) {
  Arithmetic a(c.g);
  const Value& x = c.in(0);
  DType to = DType::kU8;
  if (c.has(2))
    to = c.in(2).dtype();
  else if (int64_t given = c.integer("output_dtype", 0))
    to = dtype_of(given, c.place);
  require_integers(c, to);
  // Of what bytes stand for at the same scale, these: a quotient is off by two roundings at most,
  // which is far from the middle of two integers.
  if (const auto q = c.g.quantised(x); q && q->values.dtype() == to && !c.integer("precision", 0)) {
    GraphBuilder::Quantised wanted{q->values, c.in(1), std::nullopt, 0};
    if (c.has(2)) wanted.zero = c.in(2);
    if (is_scaled_alike(*q, wanted)) return {q->values};
  }
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
  const bool noted = is_byte(x.dtype()) || x.dtype() == DType::kI32;
  if (block == 0 && noted && to == DType::kF32 && c.in(1).dtype() == to &&
      (!c.has(2) || c.in(2).dtype() == x.dtype()))
    return {dequantised(c, {x, c.in(1), c.has(2) ? std::optional(c.in(2)) : std::nullopt, axis})};
  Value y = a.cast(x, DType::kI32);
  if (c.has(2)) y = a.sub(y, a.cast(spread(c, c.in(2), x, axis, block), DType::kI32));
  const Value scale = a.cast(spread(c, c.in(1), x, axis, block), DType::kF32);
  return {a.cast(a.mul(a.cast(y, DType::kF32), scale), to)};
}

Values dynamic_quantize(NodeContext& c) {
  const DynamicallyQuantised q = quantised_by_range(c, c.in(0));
  return {q.values, q.scale, q.zero};
}

}  // namespace

std::span<const Operator> quantised_operators() {
  static const Operator kRows[] = {
      {"QuantizeLinear", quantize},
      {"DequantizeLinear", dequantize},
      {"DynamicQuantizeLinear", dynamic_quantize},
  };
  return kRows;
}

}  // namespace nimble::frontend::onnx
