// The status with which a kernel ends when one of its own checks fails: a hash of the check's
// message, never 0. So all variants of a kernel and its portable form name a check alike, whatever
// other checks they have, and the message is found among the executable's texts.
#pragma once

#include <cstdint>
#include <string_view>

#include "vm/base/hash.h"

namespace nimble::exec {

inline int32_t check_status(std::string_view message) {
  return static_cast<int32_t>(hash64(message) % INT32_MAX) + 1;
}

}  // namespace nimble::exec
