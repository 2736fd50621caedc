// Axes of a tensor that a kernel's contract takes as one.
#pragma once

#include <cstdint>

#include "vm/runtime/object.h"

namespace nimble::rt {

// The first dim of a contract that collapses the `surplus` leading axes of `t` into it; false if it
// exceeds 63 bits.
inline bool try_collapse(const Tensor& t, int surplus, int64_t* extent) {
  *extent = t.extents[surplus];
  for (int e = 0; e < surplus; ++e)
    if (__builtin_mul_overflow(*extent, t.extents[e], extent)) return false;
  return true;
}

}  // namespace nimble::rt
