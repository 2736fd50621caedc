// What the stand-ins for NVIDIA's libraries have in common. Internal to them.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <mutex>
#include <string>

#include "vm/runtime/test/standin/calls.h"
#include "vm/runtime/test/standin/cuda.h"

namespace standin {

// The stand-in for the driver, in whose streams they work.
inline const StandInCuda& driver() {
  return standin_cuda(std::getenv("NIMBLE_CUDA_DRIVER"));
}

// The version that the environment's `variable` gives it, or else its own.
inline size_t version_of(const char* variable, size_t own) {
  const char* set = std::getenv(variable);
  return set ? std::strtoull(set, nullptr, 10) : own;
}

// What a library calls a status; valid until the thread asks again.
inline const char* text_of(int status, std::string* text) {
  *text = "status " + std::to_string(status) + " of the stand-in";
  return text->c_str();
}

}  // namespace standin

// How each function of a library begins.
#define ENTER                                        \
  const std::lock_guard lock(state().calls.mutex()); \
  if (const int bad = state().calls.enter(__func__)) return bad
