// Random numbers.
//
// A program of nimble has no state, so a draw is a function of where it happens: the operator
// random_bits (Philox, a counter-based generator) maps the number's place in the node's result, the
// iterations of the loops around the node, and a key of the node to 64 bits. The key is the
// attribute `seed` (the bits of that float), or without one a number of the node's own, so that
// two nodes draw different numbers unless their seeds are equal. Every run of a model draws the
// same, unless it was compiled with an input for what its runs differ by (GraphBuilder::draw_from).
//
// The rest is arithmetic that every executor does alike: a uniform number is the upper bits of a
// draw over a power of two, which is exact; normal ones come by Box and Muller's transform ("A Note
// on the Generation of Random Normal Deviates", 1958) of the two halves of one draw.
#include <bit>
#include <cmath>

#include "compiler/frontend/onnx/arithmetic.h"
#include "compiler/frontend/onnx/operators.h"

namespace nimble::frontend::onnx {
namespace {

int64_t key_of(NodeContext& c) {
  if (!c.node.find("seed")) return c.g.next_random_key();
  if (c.node.op == "Dropout") return static_cast<uint32_t>(c.integer("seed"));  // an integer there
  return std::bit_cast<uint32_t>(static_cast<float>(c.real("seed", 0)));
}

// Bits of the mantissa, the leading one among them.
int digits_of(DType t) {
  switch (t) {
    case DType::kF64:
      return 53;
    case DType::kF16:
      return 11;
    case DType::kBF16:
      return 8;
    default:
      return 24;
  }
}
// What numbers of a type are computed in.
DType computed_in(DType t) {
  return t == DType::kF64 ? t : DType::kF32;
}

Value draws(NodeContext& c, const Dims& shape) {
  return c.g.reshape(
      c.g.random_bits(product_of(shape, 0, static_cast<int64_t>(shape.size())), key_of(c)), shape);
}
// The `count` bits of draws from bit `from` on, as a float.
Value bits(NodeContext& c, const Value& draws, int from, int count, DType type) {
  Arithmetic a(c.g);
  const auto number = [&](uint64_t v) {
    return c.g.constant(ir::Tensor::of<uint64_t>(DType::kU64, {}, {v}));
  };
  Value v = from == 0 ? draws : a.binary("shift_right", draws, number(static_cast<uint64_t>(from)));
  if (from + count < 64) v = a.binary("bitwise_and", v, number((uint64_t{1} << count) - 1));
  return a.cast(a.cast(v, DType::kI64), type);
}
// Multiples of 2^-digits in [0, 1).
Value unit(NodeContext& c, const Dims& shape, DType type) {
  const int digits = digits_of(computed_in(type));
  const Value v = bits(c, draws(c, shape), 64 - digits, digits, computed_in(type));
  return Arithmetic(c.g).mul(v, std::ldexp(1.0, -digits));
}

// A number of the type below `x`, one step of its binade away at most.
double below(double x, DType type) {
  if (x == 0) return type == DType::kF16 ? -0x1p-14 : -0x1p-126;
  const double step = std::ldexp(1.0, std::ilogb(x) + 1 - digits_of(type));
  return (std::ceil(x / step) - 1) * step;
}

DType result_type(NodeContext& c, DType otherwise) {
  const DType t = c.node.find("dtype") ? dtype_of(c.integer("dtype"), c.place) : otherwise;
  if (!is_float(t)) c.fail(fmt::format("random numbers of type {}", name_of(t)));
  return t;
}
Values uniform(NodeContext& c, const Dims& shape, DType type) {
  const double low = c.real("low", 0), high = c.real("high", 1);
  if (!std::isfinite(low) || !std::isfinite(high))
    c.fail(fmt::format("random numbers from {} to {}", low, high));
  Arithmetic a(c.g);
  Value v = a.add(a.mul(unit(c, shape, type), high - low), low);
  // Rounding may reach `high`, which is not among the numbers.
  if (high > low) v = a.minimum(v, below(high, type));
  return {a.cast(v, type)};
}
Values normal(NodeContext& c, const Dims& shape, DType type) {
  Arithmetic a(c.g);
  const DType in = computed_in(type);
  const Value d = draws(c, shape);
  // In (0, 1] and [0, 1].
  const Value u = a.mul(a.add(bits(c, d, 32, 32, in), 1.0), 0x1p-32);
  const Value angle = a.mul(bits(c, d, 0, 32, in), 0x1p-31 * M_PI);
  const Value z = a.mul(a.sqrt(a.mul(a.log(u), -2.0)), a.unary("cos", angle));
  return {a.cast(a.add(a.mul(z, c.real("scale", 1)), c.real("mean", 0)), type)};
}

Dims shape_of(NodeContext& c) {
  if (!c.node.find("shape")) c.fail("the attribute shape is missing");
  Dims shape;
  for (int64_t d : c.integers("shape")) {
    if (d < 0) c.fail(fmt::format("the extent {} in shape", d));
    shape.emplace_back(d);
  }
  return shape;
}

Values random_uniform(NodeContext& c) {
  return uniform(c, shape_of(c), result_type(c, DType::kF32));
}
Values random_normal(NodeContext& c) {
  return normal(c, shape_of(c), result_type(c, DType::kF32));
}
// The type is the input's where that is a float; of others the standard leaves it open.
DType like_type(NodeContext& c) {
  return result_type(c, is_float(c.in(0).dtype()) ? c.in(0).dtype() : DType::kF32);
}
Values random_uniform_like(NodeContext& c) {
  return uniform(c, c.in(0).dims(), like_type(c));
}
Values random_normal_like(NodeContext& c) {
  return normal(c, c.in(0).dims(), like_type(c));
}

// 1 with the probability that the input says.
Values bernoulli(NodeContext& c) {
  const Value& p = c.in(0);
  const DType to = c.node.find("dtype") ? dtype_of(c.integer("dtype"), c.place) : p.dtype();
  Arithmetic a(c.g);
  return {a.cast(a.less(unit(c, p.dims(), p.dtype()), a.widened(p)), to)};
}

// Classes by their unnormalised log-probabilities, a row of samples for each row: the first class
// at which the cumulated probability exceeds a uniform part of the whole, which it does at the last
// class that has any.
Values multinomial(NodeContext& c) {
  const Value x = Arithmetic(c.g).widened(c.in(0));
  if (x.rank() != 2) c.fail(fmt::format("the input has rank {}, not 2", x.rank()));
  const int64_t samples = c.integer("sample_size", 1);
  if (samples < 0) c.fail(fmt::format("sample_size {}", samples));
  if (x.dim(1).is_constant(0)) c.fail("there is no class to draw");
  const DType to = dtype_of(c.integer("dtype", 6), c.place);
  Arithmetic a(c.g);
  const Value sums = c.g.call("cumsum", {a.softmax(x, 1)}, {{"axis", int64_t{1}}});
  const Value total = c.g.slice(sums, 1, x.dim(1) - 1, x.dim(1));
  const Value part = a.mul(unit(c, {x.dim(0), ir::Dim(samples)}, x.dtype()), total);
  const Value passed = a.less_equal(a.unsqueeze(sums, {1}), a.unsqueeze(part, {2}));
  return {a.cast(a.sum(a.cast(passed, DType::kI64), {2}, false), to)};
}

// In training mode each element is 0 with the probability `ratio`, else divided by that of staying.
// Else nothing is dropped, which at run time is a ratio of 0.
Values dropout(NodeContext& c) {
  const Value& x = c.in(0);
  const bool as_attribute = c.opset < 12;
  const bool trains = c.opset < 7 ? !c.integer("is_test", 0) : !as_attribute && c.has(2);
  const auto training = c.opset < 7 ? std::optional(1.0) : c.number(2);
  const auto known = as_attribute ? std::optional(c.real("ratio", 0.5))
                     : c.has(1)   ? c.number(1)
                                  : std::optional(0.5);
  if (!trains || training == 0.0 || known == 0.0) {
    Values out = {x};
    if (c.wants(1)) out.push_back(c.g.full(x.dims(), 1, DType::kBool));
    return out;
  }
  Arithmetic a(c.g);
  const DType in = computed_in(x.dtype());
  const auto scalar = [&](size_t i) { return c.g.reshape(c.in(i), {}); };
  Value ratio = known ? c.g.scalar(*known, in) : a.cast(scalar(1), in);
  if (!training) ratio = a.where(scalar(2), ratio, 0.0);
  const Value stays = a.greater_equal(unit(c, x.dims(), x.dtype()), ratio);
  const Value part = a.sub(c.g.scalar(1, in), ratio);
  Values out = {a.cast(a.where(stays, a.div(a.cast(x, in), part), 0.0), x.dtype())};
  if (c.wants(1)) out.push_back(stays);
  return out;
}

}  // namespace

std::span<const Operator> random_operators() {
  static const Operator kRows[] = {
      {"Bernoulli", bernoulli},
      {"Dropout", dropout},
      {"Multinomial", multinomial},
      {"RandomNormal", random_normal},
      {"RandomNormalLike", random_normal_like},
      {"RandomUniform", random_uniform},
      {"RandomUniformLike", random_uniform_like},
  };
  return kRows;
}

}  // namespace nimble::frontend::onnx
