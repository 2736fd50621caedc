// Reductions.
#include <cmath>

#include "compiler/frontend/onnx/arithmetic.h"
#include "compiler/frontend/onnx/operators.h"
#include "compiler/frontend/onnx/run_axes.h"

namespace nimble::frontend::onnx {
namespace {

using ir::Dim;

// Bools reduce as bytes.
Value numbers_of(Arithmetic& a, const Value& x) {
  return x.dtype() == DType::kBool ? a.cast(x, DType::kU8) : a.widened(x);
}

Values reduce(NodeContext& c) {
  Arithmetic a(c.g);
  const DType type = c.in(0).dtype();
  const std::string& op = c.node.op;
  Value x = numbers_of(a, c.in(0));
  // Functions of sums are those of floats, and rounded back.
  const bool root = op == "ReduceL2", log = op == "ReduceLogSum", soft = op == "ReduceLogSumExp";
  if ((root || log || soft || op == "ReduceMean") && !is_float(x.dtype()))
    x = a.cast(x, DType::kF64);
  const bool keep = c.integer("keepdims", 1) != 0;
  std::optional<RunAxes> read;
  Axes axes;
  if (c.axes_are_read(1)) {
    read.emplace(c, 1, x.rank());
  } else {
    axes = c.axes(1).value_or(Axes{});
    if (axes.empty() && !c.integer("noop_with_empty_axes", 0)) axes = axes_between(0, x.rank());
  }
  // All axes stay, with extent 1, until the end.
  const auto over = [&](const char* name, const Value& v) {
    if (!read) return a.reduce(name, v, axes, true);
    return read->each(v, [&](const Value& w, int64_t i) { return a.reduce(name, w, {i}, true); });
  };
  if (root || op == "ReduceSumSquare") x = a.mul(x, x);
  if (op == "ReduceL1" && !is_unsigned_int(x.dtype())) x = a.abs(x);
  Value y = x;
  if (soft) {
    // Shifted by the maximum; a maximum that is infinite shifts nothing.
    const Value top = over("reduce_max", x);
    const Value finite = a.where(a.less(a.abs(top), HUGE_VAL), top, 0.0);
    y = a.add(a.log(over("sum", a.exp(a.sub(x, finite)))), finite);
  } else {
    const char* name = op == "ReduceMean"   ? "mean"
                       : op == "ReduceMax"  ? "reduce_max"
                       : op == "ReduceMin"  ? "reduce_min"
                       : op == "ReduceProd" ? "prod"
                                            : "sum";
    y = !read ? a.reduce(name, x, axes, keep) : over(name, x);
  }
  if (!keep && read) y = read->dropped(y);
  if (!keep && soft && !read) y = a.squeeze(y, axes);
  if (root) y = a.sqrt(y);
  if (log) y = a.log(y);
  return {a.cast(y, type)};
}

// The index of the first or last extreme; a minimum is the maximum of what is mirrored without
// overflow.
Values arg_extreme(NodeContext& c) {
  Arithmetic a(c.g);
  Value x = numbers_of(a, c.in(0));
  if (c.node.op == "ArgMin") x = is_float(x.dtype()) ? a.neg(x) : a.sub(a.like(x, -1), x);
  const int64_t axis = c.axis(c.integer("axis", 0), x.rank());
  const bool last = c.integer("select_last_index", 0) != 0;
  if (last) x = a.reversed(x, axis);
  const Value at =
      c.g.call("argmax", {x}, {{"axis", axis}, {"keepdims", c.integer("keepdims", 1) != 0}});
  if (!last) return {at};
  const Dim extent = x.dim(axis);
  return {a.sub(c.g.size(c.g.simplify(extent - Dim(1))), at)};
}

// 1 at the first maximum, else 0.
Values hardmax(NodeContext& c) {
  Arithmetic a(c.g);
  const Value& x = c.in(0);
  const int64_t axis = c.axis(c.integer("axis", c.opset < 13 ? 1 : -1), x.rank());
  if (c.opset < 13 && axis != x.rank() - 1) {
    const Dims flat = {product_of(x.dims(), 0, axis), product_of(x.dims(), axis, x.rank())};
    const Value wide = c.g.reshape(x, flat);
    const Value at = c.g.call("argmax", {wide}, {{"axis", int64_t{1}}, {"keepdims", true}});
    const Value hot = a.equal(a.range(flat[1], DType::kI64, 1, 2), at);
    return {c.g.reshape(a.cast(hot, x.dtype()), x.dims())};
  }
  const Value at = c.g.call("argmax", {a.widened(x)}, {{"axis", axis}, {"keepdims", true}});
  const Value place = a.range(x.dim(axis), DType::kI64, axis, x.rank());
  return {a.cast(a.equal(place, at), x.dtype())};
}

// Before opset 13 the axes from `axis` on are one; from it on there is one axis.
Values softmax(NodeContext& c) {
  Arithmetic a(c.g);
  const DType type = c.in(0).dtype();
  const Value x = a.widened(c.in(0));
  const auto along = [&](const Value& v, int64_t axis) {
    if (c.node.op == "Softmax") return a.softmax(a.cast(v, type), axis);
    return c.g.call("log_softmax", {v}, {{"axis", axis}});
  };
  const int64_t axis = c.axis(c.integer("axis", c.opset < 13 ? 1 : -1), x.rank());
  if (c.opset >= 13 || axis == x.rank() - 1) return {a.cast(along(x, axis), type)};
  Dims flat = {Dim(1), Dim(1)};
  for (int64_t i = 0; i < x.rank(); ++i) {
    Dim& side = flat[i < axis ? 0 : 1];
    side = side * x.dim(i);
  }
  const Value y = along(c.g.reshape(x, flat), 1);
  return {a.cast(c.g.reshape(y, x.dims()), type)};
}

}  // namespace

std::span<const Operator> reduction_operators() {
  static const Operator kRows[] = {
      {"ReduceSum", reduce},       {"ReduceMean", reduce},      {"ReduceMax", reduce},
      {"ReduceMin", reduce},       {"ReduceProd", reduce},      {"ReduceL1", reduce},
      {"ReduceL2", reduce},        {"ReduceSumSquare", reduce}, {"ReduceLogSum", reduce},
      {"ReduceLogSumExp", reduce}, {"ArgMax", arg_extreme},     {"ArgMin", arg_extreme},
      {"Hardmax", hardmax},        {"Softmax", softmax},        {"LogSoftmax", softmax},
  };
  return kRows;
}

}  // namespace nimble::frontend::onnx
