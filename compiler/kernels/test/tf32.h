// What factors of tf32 are, for tests: written otherwise than the emulator's.
#pragma once

#include <cmath>

namespace nimble::kernels::testing {

// With ten bits behind the first one, to the nearest, ties away from zero. Of normal numbers.
inline double tf32_of(double x) {
  int exponent = 0;
  const double fraction = std::frexp(x, &exponent);
  return std::ldexp(std::round(std::ldexp(fraction, 11)), exponent - 11);
}

}  // namespace nimble::kernels::testing
