// Sliding windows over any number of spatial axes, shared by convolution and pooling.
#pragma once

#include "compiler/frontend/onnx/arithmetic.h"
#include "compiler/frontend/onnx/operators.h"
#include "vm/base/checked.h"

namespace nimble::frontend::onnx {

struct Window {
  Axes kernel, strides, dilations;  // one entry per spatial axis
  Dims before, after;               // padding

  size_t axes() const { return kernel.size(); }
  // What it covers; Error(kCorrupt) where that is no 64-bit number.
  int64_t reach(size_t i) const {
    return checked_add(checked_mul(kernel[i] - 1, dilations[i], Status::kCorrupt), int64_t{1},
                       Status::kCorrupt);
  }
  // The padding as top…, bottom… integers; nothing if some of it is symbolic.
  std::optional<Axes> constant_pads() const;
};

// The window that a node's attributes describe, over the axes of x from the third on.
Window window_of(const NodeContext& c, const Value& x, Axes kernel);

}  // namespace nimble::frontend::onnx
