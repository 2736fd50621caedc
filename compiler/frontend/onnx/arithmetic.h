// Operators of the IR under short names, for rules that write formulas.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "compiler/frontend/onnx/graph_builder.h"
#include "vm/base/error.h"

namespace nimble::frontend::onnx {

class Arithmetic {
 public:
  explicit Arithmetic(GraphBuilder& g) : g_(g) {}

  // A constant scalar of x's dtype.
  Value like(const Value& x, double v) { return g_.scalar(v, x.dtype()); }

  Value unary(const char* op, const Value& x) { return g_.call(op, {x}); }
  Value neg(const Value& x) { return unary("neg", x); }
  Value abs(const Value& x) { return unary("abs", x); }
  Value exp(const Value& x) { return unary("exp", x); }
  Value log(const Value& x) { return unary("log", x); }
  Value sqrt(const Value& x) { return unary("sqrt", x); }
  Value floor(const Value& x) { return unary("floor", x); }
  Value negation(const Value& x) { return unary("not", x); }

  // Of two values that broadcast, or of a value and a number.
  Value binary(const char* op, const Value& a, const Value& b) { return g_.call(op, {a, b}); }
  Value binary(const char* op, const Value& a, double b) { return binary(op, a, like(a, b)); }
  template <class B>
  Value add(const Value& a, const B& b) {
    return binary("add", a, b);
  }
  template <class B>
  Value sub(const Value& a, const B& b) {
    return binary("sub", a, b);
  }
  template <class B>
  Value mul(const Value& a, const B& b) {
    return binary("mul", a, b);
  }
  template <class B>
  Value div(const Value& a, const B& b) {
    return binary("div", a, b);
  }
  template <class B>
  Value mod(const Value& a, const B& b) {
    return binary("mod", a, b);
  }
  template <class B>
  Value maximum(const Value& a, const B& b) {
    return binary("maximum", a, b);
  }
  template <class B>
  Value minimum(const Value& a, const B& b) {
    return binary("minimum", a, b);
  }
  template <class B>
  Value equal(const Value& a, const B& b) {
    return binary("equal", a, b);
  }
  template <class B>
  Value less(const Value& a, const B& b) {
    return binary("less", a, b);
  }
  template <class B>
  Value less_equal(const Value& a, const B& b) {
    return binary("less_equal", a, b);
  }
  template <class B>
  Value greater(const Value& a, const B& b) {
    return binary("greater", a, b);
  }
  template <class B>
  Value greater_equal(const Value& a, const B& b) {
    return binary("greater_equal", a, b);
  }
  Value both(const Value& a, const Value& b) { return binary("and", a, b); }
  Value either(const Value& a, const Value& b) { return binary("or", a, b); }
  Value where(const Value& c, const Value& a, const Value& b) {
    return g_.call("where", {c, a, b});
  }
  Value where(const Value& c, const Value& a, double b) { return where(c, a, like(a, b)); }
  Value where(const Value& c, double a, const Value& b) { return where(c, like(b, a), b); }

  Value cast(const Value& x, DType to) {
    return x.dtype() == to ? x : g_.call("cast", {x}, {{"dtype", to}});
  }
  // What products, sums and functions of 16-bit floats are computed in.
  Value widened(const Value& x) { return is_narrow_float(x.dtype()) ? cast(x, DType::kF32) : x; }

  // A value that is held in f32 as its narrow type rounds it.
  Value rounded(const Value& x, DType type) { return widened(cast(x, type)); }

  // softmax, widened. Of narrow floats the standard defines it by operators that each round.
  Value softmax(const Value& x, int64_t axis) {
    const Value wide = widened(x);
    const DType type = x.dtype();
    if (wide.dtype() == type) return g_.call("softmax", {x}, {{"axis", axis}});
    const Value above = sub(wide, reduce("reduce_max", wide, {axis}, true));
    const Value e = rounded(unary("exp", rounded(above, type)), type);
    return div(e, rounded(reduce("sum", e, {axis}, true), type));
  }

  Value reduce(const char* op, const Value& x, Axes axes, bool keep) {
    if (axes.empty()) return x;
    return g_.call(op, {x}, {{"axes", std::move(axes)}, {"keepdims", keep}});
  }
  Value sum(const Value& x, Axes axes, bool keep) {
    return reduce("sum", x, std::move(axes), keep);
  }
  Value mean(const Value& x, Axes axes, bool keep) {
    return reduce("mean", x, std::move(axes), keep);
  }

  Value transpose(const Value& x, Axes axes) {
    return g_.call("transpose", {x}, {{"axes", std::move(axes)}});
  }
  Value unsqueeze(const Value& x, Axes axes) {
    return axes.empty() ? x : g_.call("unsqueeze", {x}, {{"axes", std::move(axes)}});
  }
  Value squeeze(const Value& x, Axes axes) {
    return axes.empty() ? x : g_.call("squeeze", {x}, {{"axes", std::move(axes)}});
  }
  Value expand(const Value& x, Dims to) {
    return x.dims() == to ? x : g_.call("expand", {x}, {{"shape", std::move(to)}});
  }
  Value concat(const std::vector<Value>& parts, int64_t axis) {
    return parts.size() == 1 ? parts[0] : g_.call("concat", parts, {{"axis", axis}});
  }
  Value gather(const Value& x, const Value& index, int64_t axis) {
    return g_.call("gather", {x, index}, {{"axis", axis}});
  }
  Value reversed(const Value& x, int64_t axis) {
    return g_.call("slice", {x},
                   {{"axes", Axes{axis}},
                    {"starts", Dims{ir::Dim(-1)}},
                    {"ends", Dims{ir::Dim(INT64_MIN)}},
                    {"steps", Dims{ir::Dim(-1)}}});
  }
  // Constant padding; `before` and `after` have one entry per axis.
  Value pad(const Value& x, Dims before, Dims after, double value = 0) {
    return g_.call("pad", {x},
                   {{"before", std::move(before)}, {"after", std::move(after)}, {"value", value}});
  }
  // 0, 1, … count - 1, as a vector along `axis` of a tensor of rank `rank`.
  Value range(const ir::Dim& count, DType type, int64_t axis = 0, int64_t rank = 1) {
    Value r = g_.call("range", {},
                      {{"count", count},
                       {"start", ir::Dim(0)},
                       {"step", ir::Dim(1)},
                       {"dtype", is_float(type) ? DType::kI64 : type}});
    r = cast(r, type);
    Axes axes;
    for (int64_t i = 0; i < rank; ++i)
      if (i != axis) axes.push_back(i);
    return unsqueeze(r, std::move(axes));
  }
  // numpy's matmul in a dtype that the templates multiply in.
  Value matmul(const Value& a, const Value& b, bool transpose_b = false) {
    ir::Attrs attrs;
    if (transpose_b) attrs["transpose_b"] = true;
    return g_.call("matmul", {a, b}, std::move(attrs));
  }

 private:
  GraphBuilder& g_;
};

// All numbers from `from` to `to` - 1.
inline Axes axes_between(int64_t from, int64_t to) {
  Axes out;
  for (int64_t i = from; i < to; ++i) out.push_back(i);
  return out;
}

// Of the axes `from` to `to` - 1, which a node's operand should have: Error(kCorrupt).
inline ir::Dim product_of(const Dims& dims, int64_t from, int64_t to) {
  if (from < 0 || to > static_cast<int64_t>(dims.size()))
    throw Error(
        Status::kCorrupt, "",
        fmt::format("an operand of rank {} has no axis {}", dims.size(), from < 0 ? from : to - 1),
        "export the model again");
  ir::Dim p = 1;
  for (int64_t i = from; i < to; ++i) p = p * dims[static_cast<size_t>(i)];
  return p;
}

}  // namespace nimble::frontend::onnx
