// The clock that times on the host are taken by.
#pragma once

#include <time.h>

#include <cstdint>

namespace nimble::tuner {

// Of no date; never set back.
inline int64_t now_ns() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}

}  // namespace nimble::tuner
