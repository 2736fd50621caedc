// Products with a packed matrix: what the templates that serve them read off a workload.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "compiler/ir/layout.h"
#include "compiler/kernels/target.h"
#include "compiler/kernels/templates/frame.h"
#include "compiler/kernels/templates/rounded_rows.h"

namespace nimble::kernels {

// A matrix with any number of rows times a packed one, both of them parameters, an element-wise
// epilogue behind it.
struct PackedMatmul {
  Frame frame;
  kir::BufferRef lhs, rhs;
  ir::Layout layout;  // of the right-hand side
  DType dtype{};      // of the sums and, unless rows are rounded, the result
  // Where the product rounds its rows first (packed_groupwise_matmul): then the left-hand side are
  // these in whole numbers, and the result is f32.
  std::optional<RoundedRows> rounded;
  int64_t depth = 0, columns = 0;  // k and n
  std::vector<kir::Dim> row_dims;  // the result's axes but the last
  kir::Dim rows;                   // their product
};
std::optional<PackedMatmul> analyse_packed_matmul(const Workload& w, const TargetInfo& t);

}  // namespace nimble::kernels
