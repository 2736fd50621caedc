// Operators whose results are as large as the values of tensors say.
#include "compiler/frontend/onnx/operators.h"

namespace nimble::frontend::onnx {
namespace {

Values nonzero(NodeContext& c) {
  Value x = c.in(0);
  // A scalar counts as one element of a vector.
  if (x.rank() == 0) x = c.g.reshape(x, {1});
  return {c.g.call("nonzero", {x})};
}

Values compress(NodeContext& c) {
  ir::Attrs attrs;
  if (c.node.find("axis")) attrs["axis"] = c.integer("axis");
  return {c.g.call("compress", {c.in(0), c.in(1)}, std::move(attrs))};
}

Values unique(NodeContext& c) {
  ir::Attrs attrs = {{"sorted", c.integer("sorted", 1) != 0}};
  if (c.node.find("axis")) attrs["axis"] = c.integer("axis");
  return c.g.fields(c.g.call("unique", {c.in(0)}, std::move(attrs)));
}

Values topk(NodeContext& c) {
  const bool largest = c.integer("largest", 1) != 0;
  ir::Attrs attrs = {{"axis", c.integer("axis", -1)}, {"largest", largest}};
  Values args = {c.in(0)};
  if (c.opset < 10) {
    attrs["k"] = ir::Dim(c.integer("k"));
  } else if (c.known(1)) {
    if (c.dims(1).size() != 1) c.fail("k of TopK is not one number");
    attrs["k"] = c.dims(1)[0];
  } else {
    args.push_back(c.in(1));
  }
  return c.g.fields(c.g.call("topk", args, std::move(attrs)));
}

Values nms(NodeContext& c) {
  auto threshold = [&](size_t i) { return c.has(i) ? c.in(i) : c.g.scalar(0, DType::kF32); };
  // Without a score threshold every box counts.
  Values args = {c.in(0), c.in(1), threshold(3),
                 c.has(4) ? c.in(4) : c.g.scalar(-3.4e38, DType::kF32)};
  ir::Attrs attrs = {{"center", c.integer("center_point_box", 0) != 0}};
  if (!c.has(2)) {
    attrs["limit"] = ir::Dim(0);  // as ONNX says: nothing is selected
  } else if (c.known(2)) {
    attrs["limit"] = c.dim(2);
  } else {
    args.push_back(c.in(2));
  }
  return {c.g.call("nms", args, std::move(attrs))};
}

}  // namespace

std::span<const Operator> dynamic_operators() {
  static const Operator kRows[] = {
      {"NonZero", nonzero}, {"Compress", compress},     {"Unique", unique},
      {"TopK", topk},       {"NonMaxSuppression", nms},
  };
  return kRows;
}

}  // namespace nimble::frontend::onnx
