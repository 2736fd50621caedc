// What a product or convolution with `out` becomes where no kernel takes its operands as they are.
#pragma once

#include "compiler/ir/expr.h"

namespace nimble::passes {

// The element type in which such a call is computed: its result's. Kernels convolve floats only,
// so the sums of bytes are floats: f32 where it holds every one of them exactly, else f64.
DType wide_type(const ir::Expr& e, const ir::Type& weights, const ir::Type& result);

}  // namespace nimble::passes
