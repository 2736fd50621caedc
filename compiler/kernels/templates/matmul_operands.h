// What the operator matmul multiplies, as every template that takes it sees it: numpy's rules of
// vectors, transposed operands and broadcast batch axes resolved into products of matrices.
#pragma once

#include <optional>
#include <vector>

#include "compiler/kernels/templates/frame.h"

namespace nimble::kernels {

struct MatmulOperands {
  Frame frame;
  kir::BufferRef lhs, rhs;
  DType sum{};  // of products, sums and result
  bool transpose_lhs = false, transpose_rhs = false;
  bool vector_rhs = false;  // rhs of rank 1: the result has no column axis
  kir::Dim m, k, n;
  std::vector<kir::Dim> batch;                 // axes that are walked one product at a time
  std::vector<kir::Dim> lhs_batch, rhs_batch;  // the operands' own, right-aligned with `batch`
  std::vector<kir::Dim> row_dims;              // axes of the result that `m` rows run through
};

// Nothing unless the anchor is a matmul of two parameters with an element-wise epilogue. `frame` is
// the workload's.
std::optional<MatmulOperands> analyse_matmul(const Workload& w, Frame frame);

// Offset of one product's matrix, of `matrix` elements, in an operand whose batch axes `own`
// broadcast to `batch`.
kir::Dim batch_offset(const Workload& w, const std::vector<kir::Dim>& own,
                      const std::vector<kir::Dim>& batch, const std::vector<kir::Dim>& coordinates,
                      const kir::Dim& matrix);

}  // namespace nimble::kernels
