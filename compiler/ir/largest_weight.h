// How large weights of i8 are: what products and convolutions may promise of theirs (max_weight,
// Ops.def).
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>

#include "compiler/ir/tensor.h"

namespace nimble::ir {

// The size of the largest of a tensor of i8, 0 to 128; of none 0.
inline int64_t largest_weight(const Tensor& weights) {
  int largest = 0;
  for (const int8_t w : weights.as<int8_t>()) largest = std::max(largest, std::abs(int{w}));
  return largest;
}

}  // namespace nimble::ir
