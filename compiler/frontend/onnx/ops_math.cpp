// Element-wise functions that are formulas of the IR's operators.
//
// Inverse and hyperbolic functions come from few: asin x = 2 atan(x / (1 + sqrt(1 - x^2))), acos x
// = 2 atan(sqrt(1 - x) / sqrt(1 + x)), both without loss at the ends of the interval; the
// hyperbolic ones from exp and log, odd ones by magnitude and sign. Near 0, where exp(x) - exp(-x)
// and log(1 + x) cancel, they are computed in f64.
#include <cmath>

#include "compiler/frontend/onnx/arithmetic.h"
#include "compiler/frontend/onnx/operators.h"

namespace nimble::frontend::onnx {
namespace {

// Computes a function in f64 and gives the operand's dtype back.
template <class F>
Values in_f64(NodeContext& c, F f) {
  Arithmetic a(c.g);
  return {a.cast(f(a, a.cast(c.in(0), DType::kF64)), c.in(0).dtype())};
}

Values tangent(NodeContext& c) {
  Arithmetic a(c.g);
  const Value x = a.widened(c.in(0));
  return {a.cast(a.div(a.unary("sin", x), a.unary("cos", x)), c.in(0).dtype())};
}

Values atan(NodeContext& c) {
  return {c.g.call("atan", {c.in(0)})};
}

Values asin(NodeContext& c) {
  return in_f64(c, [](Arithmetic& a, const Value& x) {
    const Value root = a.sqrt(a.mul(a.sub(a.like(x, 1), x), a.add(x, 1.0)));
    return a.mul(a.unary("atan", a.div(x, a.add(root, 1.0))), 2.0);
  });
}

Values acos(NodeContext& c) {
  return in_f64(c, [](Arithmetic& a, const Value& x) {
    const Value ratio = a.div(a.sqrt(a.sub(a.like(x, 1), x)), a.sqrt(a.add(x, 1.0)));
    return a.mul(a.unary("atan", ratio), 2.0);
  });
}

Values hyperbolic(NodeContext& c) {
  return in_f64(c, [&](Arithmetic& a, const Value& x) {
    const Value up = a.exp(x), down = a.exp(a.neg(x));
    return a.mul(c.node.op == "Sinh" ? a.sub(up, down) : a.add(up, down), 0.5);
  });
}

Values asinh(NodeContext& c) {
  return in_f64(c, [](Arithmetic& a, const Value& x) {
    const Value m = a.abs(x);
    const Value y = a.log(a.add(m, a.sqrt(a.add(a.mul(m, m), 1.0))));
    return a.where(a.less(x, 0.0), a.neg(y), y);
  });
}

Values acosh(NodeContext& c) {
  return in_f64(c, [](Arithmetic& a, const Value& x) {
    return a.log(a.add(x, a.sqrt(a.mul(a.sub(x, 1.0), a.add(x, 1.0)))));
  });
}

Values atanh(NodeContext& c) {
  return in_f64(c, [](Arithmetic& a, const Value& x) {
    return a.mul(a.log(a.div(a.add(x, 1.0), a.sub(a.like(x, 1), x))), 0.5);
  });
}

// ------------------------------------------------------------------------------ activations

// scale * (alpha * (exp(x / over) - 1) below zero, x above); the exponent is limited so that the
// branch that is not taken is finite.
Value exponential_unit(Arithmetic& a, const Value& x, double alpha, double over, double scale) {
  Value below = a.minimum(x, 0.0);
  if (over != 1) below = a.div(below, over);
  below = a.mul(a.sub(a.exp(below), 1.0), alpha);
  const Value y = a.where(a.greater(x, 0.0), x, below);
  return scale == 1 ? y : a.mul(y, scale);
}

Values elu(NodeContext& c) {
  Arithmetic a(c.g);
  return {exponential_unit(a, c.in(0), c.real("alpha", 1), 1, 1)};
}

Values selu(NodeContext& c) {
  Arithmetic a(c.g);
  return {exponential_unit(a, c.in(0), c.real("alpha", 1.67326319217681884765625), 1,
                           c.real("gamma", 1.05070102214813232421875))};
}

Values celu(NodeContext& c) {
  Arithmetic a(c.g);
  const double alpha = c.real("alpha", 1);
  return {exponential_unit(a, c.in(0), alpha, alpha, 1)};
}

Values thresholded_relu(NodeContext& c) {
  Arithmetic a(c.g);
  return {a.where(a.greater(c.in(0), c.real("alpha", 1)), c.in(0), 0.0)};
}

// x moved towards 0 by the bias where |x| > lambda, else 0.
Values shrink(NodeContext& c) {
  Arithmetic a(c.g);
  const Value& x = c.in(0);
  const double lambda = c.real("lambd", 0.5), bias = c.real("bias", 0);
  if (is_unsigned_int(x.dtype())) c.unsupported("Shrink of unsigned integers", "cast them first");
  const Value inner = a.where(a.less(x, -lambda), a.add(x, bias), 0.0);
  return {a.where(a.greater(x, lambda), a.sub(x, bias), inner)};
}

Values softsign(NodeContext& c) {
  Arithmetic a(c.g);
  return {a.div(c.in(0), a.add(a.abs(c.in(0)), 1.0))};
}

Values mish(NodeContext& c) {
  Arithmetic a(c.g);
  return {a.mul(c.in(0), a.unary("tanh", a.unary("softplus", c.in(0))))};
}

Value swish_of(Arithmetic& a, const Value& x, double alpha) {
  return a.mul(x, a.unary("sigmoid", alpha == 1 ? x : a.mul(x, alpha)));
}

Values swish(NodeContext& c) {
  Arithmetic a(c.g);
  return {swish_of(a, c.in(0), c.real("alpha", 1))};
}

Values swiglu(NodeContext& c) {
  Arithmetic a(c.g);
  return {a.mul(swish_of(a, c.in(0), c.real("alpha", 1)), c.in(1))};
}

Values is_infinite(NodeContext& c) {
  Arithmetic a(c.g);
  const bool up = c.integer("detect_positive", 1) != 0, down = c.integer("detect_negative", 1) != 0;
  Value x = c.in(0);
  if (up && down) x = a.abs(x);
  if (!up && down) x = a.neg(x);
  const Value found = a.equal(x, HUGE_VAL);
  return {up || down ? found : a.both(found, a.negation(found))};
}

// -------------------------------------------------------------------------- integers and bits

Values bitwise(NodeContext& c) {
  const char* op = c.node.op == "BitwiseAnd"  ? "bitwise_and"
                   : c.node.op == "BitwiseOr" ? "bitwise_or"
                                              : "bitwise_xor";
  return {c.g.broadcast_call(op, c.in(0), c.in(1))};
}

// All bits set, wrapped to the dtype, minus x: no borrow.
Values bitwise_not(NodeContext& c) {
  Arithmetic a(c.g);
  return {a.sub(a.like(c.in(0), -1), c.in(0))};
}

Values bit_shift(NodeContext& c) {
  const std::string direction = c.text("direction", "");
  if (direction != "LEFT" && direction != "RIGHT")
    c.fail(fmt::format("direction {} has no meaning", printable(direction)));
  return {c.g.broadcast_call(direction == "LEFT" ? "shift_left" : "shift_right", c.in(0), c.in(1))};
}

// fmod = 0: the sign of the divisor; 1: C's remainder, with the sign of the dividend. Of floats
// that is exact in f64 as long as the quotient has no more digits than f64 holds.
Values modulo(NodeContext& c) {
  Arithmetic a(c.g);
  const Value &x = c.in(0), &y = c.in(1);
  if (c.integer("fmod", 0) == 0) return {c.g.broadcast_call("mod", x, y)};
  if (!is_float(x.dtype())) return {a.sub(x, a.mul(a.div(x, y), y))};
  const Value wide_x = a.cast(x, DType::kF64), wide_y = a.cast(y, DType::kF64);
  const Value whole = a.unary("trunc", a.div(wide_x, wide_y));
  return {a.cast(a.sub(wide_x, a.mul(whole, wide_y)), x.dtype())};
}

}  // namespace

std::span<const Operator> math_operators() {
  static const Operator kRows[] = {
      {"Tan", tangent},
      {"Atan", atan},
      {"Asin", asin},
      {"Acos", acos},
      {"Sinh", hyperbolic},
      {"Cosh", hyperbolic},
      {"Asinh", asinh},
      {"Acosh", acosh},
      {"Atanh", atanh},
      {"Elu", elu},
      {"Selu", selu},
      {"Celu", celu},
      {"ThresholdedRelu", thresholded_relu},
      {"Shrink", shrink},
      {"Softsign", softsign},
      {"Mish", mish},
      {"Swish", swish},
      {"SwiGLU", swiglu},
      {"IsInf", is_infinite},
      {"BitwiseAnd", bitwise},
      {"BitwiseOr", bitwise},
      {"BitwiseXor", bitwise},
      {"BitwiseNot", bitwise_not},
      {"BitShift", bit_shift},
      {"Mod", modulo},
  };
  return kRows;
}

}  // namespace nimble::frontend::onnx
