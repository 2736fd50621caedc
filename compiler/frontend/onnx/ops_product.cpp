// Matrix products, convolution and pooling.
#include <algorithm>

#include "compiler/frontend/onnx/operators.h"

namespace nimble::frontend::onnx {
namespace {

using ir::Dim;

Values matmul(NodeContext& c) {
  return {c.g.call("matmul", {c.in(0), c.in(1)})};
}

Values gemm(NodeContext& c) {
  const DType type = c.in(0).dtype();
  ir::Attrs attrs;
  if (c.integer("transA", 0)) attrs["transpose_a"] = true;
  if (c.integer("transB", 0)) attrs["transpose_b"] = true;
  Value y = c.g.call("matmul", {c.in(0), c.in(1)}, attrs);
  const double alpha = c.real("alpha", 1), beta = c.real("beta", 1);
  if (alpha != 1) y = c.g.call("mul", {y, c.g.scalar(alpha, type)});
  if (!c.has(2) || beta == 0) return {y};
  Value bias = c.in(2);
  if (beta != 1) bias = c.g.call("mul", {bias, c.g.scalar(beta, type)});
  return {c.g.call("add", {y, bias})};
}

// ------------------------------------------------------------------------------- windows

// A sliding window over two spatial axes. One-dimensional ones get a leading axis of extent 1.
struct Window {
  Axes kernel, strides, pads, dilations;
};

Axes widen(Axes v, int64_t neutral, size_t spatial) {
  if (spatial == 1) v.insert(v.begin(), neutral);
  return v;
}

Window window(const NodeContext& c, const Value& x, Axes kernel) {
  const size_t spatial = x.dims().size() - 2;
  Window w;
  w.kernel = std::move(kernel);
  w.strides = c.integers("strides", Axes(spatial, 1));
  w.dilations = c.integers("dilations", Axes(spatial, 1));
  w.pads = c.integers("pads", Axes(2 * spatial, 0));
  if (w.kernel.size() != spatial || w.strides.size() != spatial || w.dilations.size() != spatial ||
      w.pads.size() != 2 * spatial)
    c.fail("kernel_shape, strides, dilations or pads don't fit the rank");
  for (size_t i = 0; i < spatial; ++i)
    if (w.kernel[i] < 1 || w.strides[i] < 1 || w.dilations[i] < 1)
      c.fail("kernel_shape, strides and dilations must be positive");
  const std::string mode = c.text("auto_pad", "NOTSET");
  if (mode == "VALID") w.pads.assign(2 * spatial, 0);
  if (mode == "SAME_UPPER" || mode == "SAME_LOWER") {
    for (size_t i = 0; i < spatial; ++i) {
      // As many results as ceil(extent / stride): for stride 1 that needs no extent.
      int64_t total = (w.kernel[i] - 1) * w.dilations[i];
      if (w.strides[i] != 1) {
        auto extent = x.dims()[i + 2].as_constant();
        if (!extent)
          c.unsupported(fmt::format("auto_pad {} over a symbolic extent", printable(mode)),
                        "export with explicit pads");
        const int64_t count = (*extent + w.strides[i] - 1) / w.strides[i];
        total = std::max<int64_t>(0, (count - 1) * w.strides[i] + total + 1 - *extent);
      }
      const int64_t small = total / 2, large = total - small;
      w.pads[i] = mode == "SAME_UPPER" ? small : large;
      w.pads[i + spatial] = mode == "SAME_UPPER" ? large : small;
    }
  } else if (mode != "NOTSET" && mode != "VALID") {
    c.fail(fmt::format("auto_pad {} has no meaning", printable(mode)));
  }
  if (spatial == 1) w.pads = {0, w.pads[0], 0, w.pads[1]};
  w.kernel = widen(std::move(w.kernel), 1, spatial);
  w.strides = widen(std::move(w.strides), 1, spatial);
  w.dilations = widen(std::move(w.dilations), 1, spatial);
  return w;
}

void require_spatial(const NodeContext& c, const Value& x) {
  if (x.rank() != 3 && x.rank() != 4)
    c.unsupported(fmt::format("{} over a tensor of rank {}", c.node.op, x.rank()),
                  "nimble has one and two spatial axes");
}

Value with_height(NodeContext& c, const Value& x) {
  return x.rank() == 3 ? c.g.call("unsqueeze", {x}, {{"axes", Axes{2}}}) : x;
}

Value without_height(NodeContext& c, const Value& y, const Value& like) {
  return like.rank() == 3 ? c.g.call("squeeze", {y}, {{"axes", Axes{2}}}) : y;
}

Values conv(NodeContext& c) {
  const Value &x = c.in(0), weight = c.in(1);
  require_spatial(c, x);
  if (weight.rank() != x.rank()) c.fail("weight and input differ in rank");
  Axes kernel = c.integers("kernel_shape");
  if (kernel.empty())
    for (size_t i = 2; i < weight.dims().size(); ++i) {
      auto k = weight.dims()[i].as_constant();
      if (!k) c.unsupported("the kernel's extent is symbolic", "export with constant weights");
      kernel.push_back(*k);
    }
  const Window w = window(c, x, std::move(kernel));
  Values args = {with_height(c, x), with_height(c, weight)};
  if (c.has(2)) args.push_back(c.in(2));
  Value y = c.g.call("conv2d", args,
                     {{"strides", w.strides},
                      {"pads", w.pads},
                      {"dilations", w.dilations},
                      {"groups", c.integer("group", 1)}});
  return {without_height(c, y, x)};
}

Values pool(NodeContext& c) {
  const Value& x = c.in(0);
  require_spatial(c, x);
  const Window w = window(c, x, c.integers("kernel_shape"));
  ir::Attrs attrs = {{"kernel", w.kernel},
                     {"strides", w.strides},
                     {"pads", w.pads},
                     {"dilations", w.dilations},
                     {"ceil_mode", c.integer("ceil_mode", 0) != 0}};
  const bool average = c.node.op == "AveragePool";
  if (average) attrs["count_include_pad"] = c.integer("count_include_pad", 0) != 0;
  Value y = c.g.call(average ? "avg_pool2d" : "max_pool2d", {with_height(c, x)}, attrs);
  return {without_height(c, y, x)};
}

std::string check_max_pool(const Node& n, int64_t) {
  return n.outputs.size() > 1 && !n.outputs[1].empty() ? "its output Indices is not supported" : "";
}

Values global_pool(NodeContext& c) {
  Axes axes;
  for (int64_t i = 2; i < c.in(0).rank(); ++i) axes.push_back(i);
  if (axes.empty()) c.fail("there is no spatial axis");
  return {c.g.call(c.node.op == "GlobalMaxPool" ? "reduce_max" : "mean", {c.in(0)},
                   {{"axes", axes}, {"keepdims", true}})};
}

}  // namespace

std::span<const Operator> product_operators() {
  static const Operator kRows[] = {
      {"MatMul", matmul},
      {"Gemm", gemm},
      {"Conv", conv},
      {"MaxPool", pool, check_max_pool},
      {"AveragePool", pool},
      {"GlobalAveragePool", global_pool},
      {"GlobalMaxPool", global_pool},
  };
  return kRows;
}

}  // namespace nimble::frontend::onnx
