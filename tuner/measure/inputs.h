// Test data for kernels: the same on both sides of the pipe, from a seed, so that the parent can
// compute the expected result without sending the inputs.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "vm/base/dtype.h"

namespace nimble::tuner {

// How one tensor argument is filled.
struct Fill {
  // Floats are uniform in [low, high); integers uniform in [low, high], ends included.
  double low = -1, high = 1;
  // A weight: it lies in several copies that runs use in turn (Policy::rotate_bytes).
  bool constant = false;
  friend bool operator==(const Fill&, const Fill&) = default;
};

// Raised when fill_tensor makes other data: what was expected before is of no use then.
inline constexpr int kDataVersion = 2;

// Fills `bytes` (a whole number of elements). Argument `index` of equal (seed, index, fill, dtype)
// is equal everywhere. A weight's does not depend on the seed: as in a model, it is the same at all
// sizes of the other operands.
void fill_tensor(const Fill& fill, DType dtype, uint64_t seed, uint32_t index,
                 std::span<uint8_t> bytes);

// max |got - want| / (scale + |want|), where scale is the root mean square of `want`; integers
// must be equal (error 1 if not), and so must infinities (infinity if not). NaN if one side is NaN
// and the other is not. `worst`, if given, gets the element that the result is of; it is left alone
// where all are equal or sizes differ.
double compare_tensors(DType dtype, std::span<const uint8_t> got, std::span<const uint8_t> want,
                       int64_t* worst = nullptr);

}  // namespace nimble::tuner
