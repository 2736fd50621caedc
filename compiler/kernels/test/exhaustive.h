// How much the template tests try. With NIMBLE_EXHAUSTIVE=1 in the environment, 50 sampled
// configurations of every case meet every size from 0 to 130, as machine code too: minutes instead
// of seconds.
#pragma once

#include <cstdlib>

namespace nimble::kernels {

inline bool exhaustive() {
  static const bool set = std::getenv("NIMBLE_EXHAUSTIVE") != nullptr;
  return set;
}

}  // namespace nimble::kernels
