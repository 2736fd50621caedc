// What the template "reduce" computes of a workload.
#pragma once

#include <optional>
#include <vector>

#include "compiler/ir/expr.h"
#include "compiler/kernels/workload.h"

namespace nimble::kernels {

// What is reduced, and which axes of the operand are.
struct ReducePlan {
  const ir::Binding* anchor = nullptr;
  // Plain reductions of the rows that the anchor, a normalisation, makes; or of the same rows as
  // the anchor, one more of them.
  std::vector<const ir::Binding*> more;
  std::vector<ir::Dim> dims;  // of the operand
  std::vector<bool> reduced;  // by axis
  bool normalises = false;
  bool along = false;    // lanes run along the last axis, which is reduced
  bool spreads = false;  // some results have the operand's extents: the row is walked once more
};

// Nothing for a workload that the template does not take.
std::optional<ReducePlan> plan_reduction(const Workload& w);

}  // namespace nimble::kernels
