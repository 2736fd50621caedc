// Fast Fourier transforms of a constant length.
#pragma once

#include <optional>

#include "compiler/frontend/onnx/graph_builder.h"

namespace nimble::frontend::onnx {

struct Complex {
  Value real, imaginary;
};

// Whether fast_transform() has the length: a product of twos, threes and fives.
bool has_fast_transform(const ir::Dim& n);

// The transform along the last axis, of constant extent n: sums of x[k] exp(-2 pi i j k / n), or,
// with `inverse`, of x[k] exp(2 pi i j k / n), not yet divided by n.
Complex fast_transform(GraphBuilder& g, const Complex& x, bool inverse);

}  // namespace nimble::frontend::onnx
