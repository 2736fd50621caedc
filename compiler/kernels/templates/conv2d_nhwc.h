// How the template "conv2d_nhwc" wants its weights.
#pragma once

#include <cstdint>
#include <string>

#include "compiler/kernels/fragments.h"
#include "compiler/kernels/target.h"
#include "vm/base/dtype.h"

namespace nimble::kernels {

// The layout (compiler/ir/layout.h) in which the constant matrix (kh * kw * c_in, n) of a
// convolution, or of a group of one, with n output channels should be packed for `t`, where pixels
// are of a type, if nothing is said of rows_type(t, weights), and no weight exceeds `most` in size
// (dense.h).
std::string conv2d_nhwc_layout(const TargetInfo& t, DType pixels, DType weights, int64_t n,
                               int64_t most = kir::kAnyWeight);
std::string conv2d_nhwc_layout(const TargetInfo& t, DType weights, int64_t n);

}  // namespace nimble::kernels
