// Sliding windows over any number of spatial axes, shared by convolution and pooling.
#pragma once

#include "compiler/frontend/onnx/arithmetic.h"
#include "compiler/frontend/onnx/operators.h"

namespace nimble::frontend::onnx {

struct Window {
  Axes kernel, strides, dilations;  // one entry per spatial axis
  Dims before, after;               // padding

  size_t axes() const { return kernel.size(); }
  int64_t reach(size_t i) const { return (kernel[i] - 1) * dilations[i] + 1; }
  // The padding as top…, bottom… integers; nothing if some of it is symbolic.
  std::optional<Axes> constant_pads() const;
};

// The window that a node's attributes describe, over the axes of x from the third on.
Window window_of(const NodeContext& c, const Value& x, Axes kernel);

}  // namespace nimble::frontend::onnx
