// How long a stage of a compilation takes, for its report.
#pragma once

#include <chrono>

namespace nimble::driver {

inline double ms_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin)
      .count();
}

}  // namespace nimble::driver
