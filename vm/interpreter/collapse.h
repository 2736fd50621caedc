// The extents of a tensor as a kernel's contract takes them.
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

// The bytes of a tensor whose shape the contract has accepted: they lie in its storage.
inline uint64_t bytes_of(const Tensor& t) {
  uint64_t bytes = size_of(t.dtype);
  for (const int64_t extent : t.shape()) {
    if (extent == 0) return 0;
    bytes *= static_cast<uint64_t>(extent);
  }
  return bytes;
}

}  // namespace nimble::rt
