// What those who meet in a database bear with before they give up.
#pragma once

#include "vm/base/error.h"

namespace nimble::tuner {

inline constexpr double kMostPatience = 5;  // s between two tries to reach the database

// Whether another try may mend it: a connection that is lost, a disk that is full for the moment.
inline bool may_pass(const Error& e) {
  return e.status() == Status::kIo || e.status() == Status::kExhausted;
}

}  // namespace nimble::tuner
