// The groups of kernels whose operands and results are parts of a concatenation's memory
// (join_in_place.cpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "compiler/ir/expr.h"

namespace nimble::passes {

inline bool is_var(const ir::Atom& a, const ir::Var* v) {
  return a.is_var() && a.var.get() == v;
}
ir::Dim product(const std::vector<ir::Dim>& dims, size_t begin, size_t end);
// The type with another extent along an axis.
ir::Type with_extent(const ir::Type& t, size_t axis, const ir::Dim& extent);

// A concatenation's memory.
struct Whole {
  ir::VarRef storage;
  int64_t number = 0;
  size_t axis = 0;
  ir::Type type;      // of all operands together
  ir::Dim begin = 0;  // where along the axis this concatenation's own part of it begins
  bool outermost = true;

  ir::Dim inner() const { return product(type->dims, axis + 1, type->dims.size()); }
  ir::Dim pitch() const { return type->dims[axis] * inner(); }
  bool contiguous() const { return product(type->dims, 0, axis).is_constant(1); }
};

// The call's group with result `v` as the first elements of the whole's rows; null if the group
// does not make it but passes it through.
ir::FunctionRef with_pitched_result(const ir::Expr& call, const ir::Var* v, const Whole& whole);
// The call's group with `v` read from the whole's rows; null if it does not compute with it.
ir::FunctionRef with_pitched_operand(const ir::Expr& call, const ir::Var* v, const Whole& whole);
// A group that copies a tensor of the type to its place in the whole.
ir::FunctionRef pitched_copy(const ir::Type& type, const Whole& whole, int64_t device);

}  // namespace nimble::passes
