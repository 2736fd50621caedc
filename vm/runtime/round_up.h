// Sizes in whole units.
#pragma once

#include <cstddef>

namespace nimble::rt {

// The least multiple of `unit` from `bytes` on. The sum must not overflow.
constexpr size_t round_up(size_t bytes, size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

}  // namespace nimble::rt
