// What templates of convolutions of NCHW images know of a workload.
#pragma once

#include <optional>
#include <vector>

#include "compiler/kernels/kernel_ir.h"
#include "compiler/kernels/templates/frame.h"
#include "compiler/kernels/workload.h"

namespace nimble::kernels {

using kir::Dim;

struct Convolution {
  DType type = DType::kF32;  // of sums and result
  std::vector<Dim> in, out;  // NCHW
  int64_t channels = 1;      // input channels of a group
  int64_t filters = 1;       // output channels of a group
  int64_t groups = 1, kh = 1, kw = 1;
  std::vector<int64_t> strides, pads, dilations;
  bool direct = false;  // the image is a parameter without padding: read where it lies
};
// A convolution by weights of constant extents, with an element-wise epilogue and no checks, its
// operands of any types. Nothing for any other workload.
std::optional<Convolution> convolution_of_any(const Workload& w);
// The same of f32 or f64, operands and result alike.
std::optional<Convolution> convolution_of(const Workload& w);

// An element of the weights (operand 1) or the bias (2) of the frame's convolution, its operands
// and result of one type.
kir::ValueRef operand_element(const Workload& w, const Frame& f, size_t operand, const Dim& index);

}  // namespace nimble::kernels
