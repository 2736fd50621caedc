// Calls of kernels as lower-memory makes them: memory.invoke_mut of a group, on what it reads and
// then on what it writes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "compiler/ir/expr.h"

namespace nimble::passes {

inline bool is_kernel_call(const ir::Expr& e) {
  return e.op == "memory.invoke_mut" && e.primitive;
}
// How many of its arguments a kernel call reads; the others are its results.
inline size_t inputs_of(const ir::Expr& kernel_call) {
  return static_cast<size_t>(ir::attr<int64_t>(kernel_call.attrs, "inputs"));
}
// The device whose kernel a group is.
inline int64_t device_of(const ir::Function& group) {
  return ir::attr_or<int64_t>(group.attrs, "device", 0);
}

}  // namespace nimble::passes
