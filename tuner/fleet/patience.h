// What those who meet in a database bear with before they give up.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

#include "vm/base/error.h"

namespace nimble::tuner {

inline constexpr double kMostPatience = 5;  // s between two tries to reach the database

// Whether another try may mend it: a connection that is lost, a disk that is full for the moment.
inline bool may_pass(const Error& e) {
  return e.status() == Status::kIo || e.status() == Status::kExhausted;
}

// Sleeps so many seconds, or until `cancel` is set, which is noticed within 20 ms. False: it is.
inline bool sleep_unless(const std::atomic<bool>& cancel, double s) {
  using Clock = std::chrono::steady_clock;
  constexpr Clock::duration kTick = std::chrono::milliseconds(20);
  const auto end =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(s));
  while (!cancel) {
    const Clock::duration left = end - Clock::now();
    if (left <= Clock::duration::zero()) break;
    std::this_thread::sleep_for(std::min(kTick, left));
  }
  return !cancel;
}

}  // namespace nimble::tuner
