// Reductions and normalisations.
#include <vector>

#include "compiler/frontend/onnx/operators.h"

namespace nimble::frontend::onnx {
namespace {

using ir::Dim;

Values reduce(NodeContext& c) {
  Value x = c.in(0);
  const std::string& op = c.node.op;
  Axes axes = c.axes(1).value_or(Axes{});
  if (axes.empty()) {
    if (c.integer("noop_with_empty_axes", 0)) return {x};
    for (int64_t i = 0; i < x.rank(); ++i) axes.push_back(i);
  }
  const bool square = op == "ReduceL2" || op == "ReduceSumSquare";
  if (square) x = c.g.call("mul", {x, x});
  if (op == "ReduceL1") x = c.g.call("abs", {x});
  const char* name = op == "ReduceMean"   ? "mean"
                     : op == "ReduceMax"  ? "reduce_max"
                     : op == "ReduceMin"  ? "reduce_min"
                     : op == "ReduceProd" ? "prod"
                                          : "sum";
  Value y = c.g.call(name, {x}, {{"axes", axes}, {"keepdims", c.integer("keepdims", 1) != 0}});
  return {op == "ReduceL2" ? c.g.call("sqrt", {y}) : y};
}

Values argmax(NodeContext& c) {
  return {c.g.call("argmax", {c.in(0)},
                   {{"axis", c.integer("axis", 0)}, {"keepdims", c.integer("keepdims", 1) != 0}})};
}

std::string check_argmax(const Node& n, int64_t) {
  const Attribute* last = n.find("select_last_index");
  return last && last->i ? "select_last_index is not supported" : "";
}

// Before opset 13 the axes from `axis` on are one; from it on there is one axis.
Values softmax(NodeContext& c) {
  const Value& x = c.in(0);
  const char* op = c.node.op == "LogSoftmax" ? "log_softmax" : "softmax";
  const int64_t axis = c.axis(c.integer("axis", c.opset < 13 ? 1 : -1), x.rank());
  if (c.opset >= 13 || axis == x.rank() - 1) return {c.g.call(op, {x}, {{"axis", axis}})};
  Dims flat = {Dim(1), Dim(1)};
  for (int64_t i = 0; i < x.rank(); ++i) {
    Dim& side = flat[i < axis ? 0 : 1];
    side = side * x.dims()[static_cast<size_t>(i)];
  }
  Value y = c.g.call(op, {c.g.reshape(x, flat)}, {{"axis", int64_t{1}}});
  return {c.g.reshape(y, x.dims())};
}

Values layer_norm(NodeContext& c) {
  const Value& x = c.in(0);
  const int64_t axis = c.axis(c.integer("axis", -1), x.rank());
  const Value& gamma = c.in(1);
  Value beta = c.has(2) ? c.in(2) : c.g.full(gamma.dims(), 0, x.dtype());
  return {c.g.call("layer_norm", {x, gamma, beta},
                   {{"epsilon", c.real("epsilon", 1e-5)}, {"axis", axis}})};
}

Values batch_norm(NodeContext& c) {
  return {c.g.call("batch_norm", {c.in(0), c.in(1), c.in(2), c.in(3), c.in(4)},
                   {{"epsilon", c.real("epsilon", 1e-5)}})};
}

bool uses_output(const Node& n, size_t from) {
  for (size_t i = from; i < n.outputs.size(); ++i)
    if (!n.outputs[i].empty()) return true;
  return false;
}

std::string check_layer_norm(const Node& n, int64_t) {
  return uses_output(n, 1) ? "its outputs Mean and InvStdDev are not supported" : "";
}

std::string check_batch_norm(const Node& n, int64_t) {
  const Attribute* training = n.find("training_mode");
  return (training && training->i) || uses_output(n, 1) ? "training mode is not supported" : "";
}

}  // namespace

std::span<const Operator> reduction_operators() {
  static const Operator kRows[] = {
      {"ReduceSum", reduce},
      {"ReduceMean", reduce},
      {"ReduceMax", reduce},
      {"ReduceMin", reduce},
      {"ReduceProd", reduce},
      {"ReduceL1", reduce},
      {"ReduceL2", reduce},
      {"ReduceSumSquare", reduce},
      {"ArgMax", argmax, check_argmax},
      {"Softmax", softmax},
      {"LogSoftmax", softmax},
      {"LayerNormalization", layer_norm, check_layer_norm},
      {"BatchNormalization", batch_norm, check_batch_norm},
  };
  return kRows;
}

}  // namespace nimble::frontend::onnx
