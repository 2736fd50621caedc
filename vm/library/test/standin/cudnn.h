// What tests ask of the stand-in for cuDNN (cudnn.cpp), beside what the library's own functions do.
// It is opened at run time: standin_cudnn() gives these functions.
#pragma once

#include <cstddef>

#include "vm/runtime/test/standin/standin.h"

// Set by the reset: one engine without notes or workspace. Alive are handles and descriptors.
struct StandInCudnn : StandIn {
  // Proposes an engine more, after those that were set since the last reset: with this numerical
  // note (-1: none), a plan that wants so many bytes, and that is refused if so. `rules`: 3 or 2,
  // by which it is proposed.
  void (*add_engine)(int rules, int note, size_t workspace, int refused);
  // The graphs that were started since the reset, a line each: their operations in order.
  const char* (*graphs)();
};

inline const StandInCudnn& standin_cudnn(const char* file) {
  return open_standin<StandInCudnn>(file, "standin_cudnn_table");
}
