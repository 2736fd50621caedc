// Axes of operators. A program may count them from the end; inference counts them from the front,
// so what comes after it reads the attributes as they stand (rule V5 of the verifier).
#pragma once

#include <cstdint>

#include "compiler/ir/expr.h"
#include "vm/base/error.h"

namespace nimble::ir {

// An axis of a tensor of `rank` dims, from the end if negative, counted from the front.
constexpr int64_t axis_from_front(int64_t axis, int64_t rank) {
  return axis < 0 ? axis + rank : axis;
}

// The attribute `axis` of an inferred call.
inline size_t axis_of(const Expr& e) {
  const auto axis = attr<int64_t>(e.attrs, "axis");
  NIMBLE_CHECK(axis >= 0, "{} counts its axis from the end", e.op);
  return static_cast<size_t>(axis);
}

// Counts the attributes `axis` and `axes` of a call from the front, given the types of its first
// operand and of its result.
void count_axes_from_front(Expr& call, const Type& operand, const Type& result);

}  // namespace nimble::ir
