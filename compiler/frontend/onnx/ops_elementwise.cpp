// Element-wise operators.
#include <cmath>
#include <limits>
#include <unordered_map>

#include "compiler/frontend/onnx/arithmetic.h"
#include "compiler/frontend/onnx/operators.h"

namespace nimble::frontend::onnx {
namespace {

// ONNX operators that are one operator of the IR, operand for operand.
const char* same_name(const std::string& op) {
  static const std::unordered_map<std::string, const char*> kNames = {
      {"Neg", "neg"},           {"Abs", "abs"},
      {"Exp", "exp"},           {"Log", "log"},
      {"Sqrt", "sqrt"},         {"Reciprocal", "reciprocal"},
      {"Tanh", "tanh"},         {"Sigmoid", "sigmoid"},
      {"Erf", "erf"},           {"Relu", "relu"},
      {"Softplus", "softplus"}, {"Floor", "floor"},
      {"Ceil", "ceil"},         {"Round", "round"},
      {"Sin", "sin"},           {"Cos", "cos"},
      {"Not", "not"},           {"Add", "add"},
      {"Sub", "sub"},           {"Mul", "mul"},
      {"Div", "div"},           {"Equal", "equal"},
      {"Less", "less"},         {"LessOrEqual", "less_equal"},
      {"Greater", "greater"},   {"GreaterOrEqual", "greater_equal"},
      {"And", "and"},           {"Or", "or"},
      {"Max", "maximum"},       {"Min", "minimum"},
      {"Sum", "add"},           {"Mean", "add"}};
  auto it = kNames.find(op);
  NIMBLE_CHECK(it != kNames.end(), "ONNX operator {}", op);
  return it->second;
}

Values unary(NodeContext& c) {
  return {c.g.call(same_name(c.node.op), {c.in(0)})};
}

// Before opset 7 the second operand broadcasts only where the node says so, from an axis on.
Value second_operand(NodeContext& c) {
  const Value &x = c.in(0), &y = c.in(1);
  if (c.opset >= 7 || !c.integer("broadcast", 0) || !c.node.find("axis")) return y;
  Axes behind;
  for (int64_t i = c.axis(c.integer("axis"), x.rank()) + y.rank(); i < x.rank(); ++i)
    behind.push_back(static_cast<int64_t>(behind.size()) + y.rank());
  return behind.empty() ? y : c.g.call("unsqueeze", {y}, {{"axes", behind}});
}

Values binary(NodeContext& c) {
  return {c.g.broadcast_call(same_name(c.node.op), c.in(0), second_operand(c))};
}

Values variadic(NodeContext& c) {
  Value all = c.in(0);
  for (size_t i = 1; i < c.count(); ++i)
    all = c.g.broadcast_call(same_name(c.node.op), all, c.in(i));
  if (c.node.op == "Mean")
    all = c.g.call("mul", {all, c.g.scalar(1.0 / static_cast<double>(c.count()), all.dtype())});
  return {all};
}

// Equality of bools and exclusive or go through integers: the IR compares numbers.
Values equality(NodeContext& c) {
  Value a = c.in(0), b = second_operand(c);
  if (a.dtype() == DType::kBool) {
    a = c.g.call("cast", {a}, {{"dtype", DType::kI32}});
    b = c.g.call("cast", {b}, {{"dtype", DType::kI32}});
  }
  return {c.g.broadcast_call(c.node.op == "Xor" ? "not_equal" : "equal", a, b)};
}

Values identity(NodeContext& c) {
  return {c.in(0)};
}

Values cast(NodeContext& c) {
  const DType to = c.node.op == "CastLike" ? c.in(1).dtype() : dtype_of(c.integer("to"), c.place);
  if (to == c.in(0).dtype()) return {c.in(0)};
  return {c.g.call("cast", {c.in(0)}, {{"dtype", to}})};
}

Values bit_cast(NodeContext& c) {
  const DType to = dtype_of(c.integer("to"), c.place);
  if (to == c.in(0).dtype()) return {c.in(0)};
  return {c.g.call("bitcast", {c.in(0)}, {{"dtype", to}})};
}

Values gelu(NodeContext& c) {
  return {c.g.call(c.text("approximate", "none") == "tanh" ? "gelu_tanh" : "gelu", {c.in(0)})};
}

Values leaky_relu(NodeContext& c) {
  return {c.g.call("leaky_relu", {c.in(0)}, {{"alpha", c.real("alpha", 0.01)}})};
}

Values parametric_relu(NodeContext& c) {
  const Value& x = c.in(0);
  Value slope = c.in(1);
  // Before opset 7 a vector of slopes is one per channel.
  if (c.opset < 7 && slope.rank() == 1 && !slope.dim(0).is_constant(1)) {
    Axes behind;
    for (int64_t i = 2; i < x.rank(); ++i) behind.push_back(i - 1);
    if (!behind.empty()) slope = c.g.call("unsqueeze", {slope}, {{"axes", behind}});
  }
  Value positive = c.g.call("greater", {x, c.g.scalar(0, x.dtype())});
  return {c.g.call("where", {positive, x, c.g.broadcast_call("mul", x, slope)})};
}

Values hard_sigmoid(NodeContext& c) {
  const Value& x = c.in(0);
  const bool swish = c.node.op == "HardSwish";
  const double alpha = swish ? 1.0 / 6 : c.real("alpha", 0.2);
  Value y = c.g.call("mul", {x, c.g.scalar(alpha, x.dtype())});
  y = c.g.call("add", {y, c.g.scalar(swish ? 0.5 : c.real("beta", 0.5), x.dtype())});
  y = c.g.call("clip", {y}, {{"min", 0.0}, {"max", 1.0}});
  return {swish ? c.g.call("mul", {x, y}) : y};
}

Values is_nan(NodeContext& c) {
  return {c.g.call("not_equal", {c.in(0), c.in(0)})};
}

// One element of each sign: x compared with 0 on both sides.
Values sign(NodeContext& c) {
  const Value &x = c.in(0), zero = c.g.scalar(0, x.dtype());
  Value above = c.g.call("cast", {c.g.call("greater", {x, zero})}, {{"dtype", x.dtype()}});
  Value below = c.g.call("cast", {c.g.call("less", {x, zero})}, {{"dtype", x.dtype()}});
  return {c.g.call("sub", {above, below})};
}

// The base decides the result's type; integers to a power of floats are computed in f64.
Values power(NodeContext& c) {
  const Value& x = c.in(0);
  if (auto exponent = c.number(1); exponent && c.in(1).rank() <= x.rank()) {
    if (*exponent == 1) return {x};
    if (*exponent == 2) return {c.g.call("mul", {x, x})};
    if (*exponent == 0.5 && is_float(x.dtype())) return {c.g.call("sqrt", {x})};
  }
  const auto as = [&](const Value& v, DType t) {
    return v.dtype() == t ? v : c.g.call("cast", {v}, {{"dtype", t}});
  };
  const Value exponent = second_operand(c);
  const bool mixed = !is_float(x.dtype()) && is_float(exponent.dtype());
  const DType type = mixed ? DType::kF64 : x.dtype();
  Value y = c.g.broadcast_call("pow", as(x, type), as(exponent, type));
  if (mixed) {
    // Integers cut fractions off: a result that is whole but for rounding must not lose one.
    Arithmetic a(c.g);
    const Value whole = a.unary("round", y);
    const Value near = a.less_equal(a.abs(a.sub(y, whole)), a.mul(a.abs(whole), 1e-12));
    y = a.where(near, whole, y);
  }
  return {as(y, x.dtype())};
}

Values clip(NodeContext& c) {
  const Value& x = c.in(0);
  ir::Attrs attrs;
  Values bounds[2];
  for (size_t i = 0; i < 2; ++i) {
    const char* name = i == 0 ? "min" : "max";
    if (c.opset < 11) {
      const double none = std::numeric_limits<float>::max();
      const double v = c.real(name, i == 0 ? -none : none);
      if (std::fabs(v) < none) attrs[name] = v;
    } else if (auto v = c.number(i + 1)) {
      attrs[name] = *v;
    } else if (c.has(i + 1)) {
      bounds[i].push_back(c.in(i + 1));
    }
  }
  Value y = x;
  if (!attrs.empty()) y = c.g.call("clip", {y}, attrs);
  if (!bounds[0].empty()) y = c.g.call("maximum", {y, bounds[0][0]});
  if (!bounds[1].empty()) y = c.g.call("minimum", {y, bounds[1][0]});
  return {y};
}

Values where(NodeContext& c) {
  return {c.g.call("where", {c.in(0), c.in(1), c.in(2)})};
}

std::string check_cast(const Node& n, int64_t) {
  const Attribute* to = n.find("to");
  if (!to) return "";
  try {
    dtype_of(to->i, "");
  } catch (const Error& e) {
    return e.problem();
  }
  return "";
}

}  // namespace

std::span<const Operator> elementwise_operators() {
  static const Operator kRows[] = {
      {"Neg", unary},
      {"Abs", unary},
      {"Exp", unary},
      {"Log", unary},
      {"Sqrt", unary},
      {"Reciprocal", unary},
      {"Tanh", unary},
      {"Sigmoid", unary},
      {"Erf", unary},
      {"Relu", unary},
      {"Softplus", unary},
      {"Floor", unary},
      {"Ceil", unary},
      {"Round", unary},
      {"Sin", unary},
      {"Cos", unary},
      {"Not", unary},
      {"Add", binary},
      {"Sub", binary},
      {"Mul", binary},
      {"Div", binary},
      {"Less", binary},
      {"LessOrEqual", binary},
      {"Greater", binary},
      {"GreaterOrEqual", binary},
      {"And", binary},
      {"Or", binary},
      {"Equal", equality},
      {"Xor", equality},
      {"Max", variadic},
      {"Min", variadic},
      {"Sum", variadic},
      {"Mean", variadic},
      {"Identity", identity, nullptr, "", true},
      {"Cast", cast, check_cast},
      {"CastLike", cast},
      {"Gelu", gelu},
      {"BitCast", bit_cast},
      {"LeakyRelu", leaky_relu},
      {"PRelu", parametric_relu},
      {"HardSigmoid", hard_sigmoid},
      {"HardSwish", hard_sigmoid},
      {"IsNaN", is_nan},
      {"Sign", sign},
      {"Pow", power},
      {"Clip", clip},
      {"Where", where},
  };
  return kRows;
}

}  // namespace nimble::frontend::onnx
