// What tests ask of the stand-in for cuBLASLt (cublaslt.cpp), beside what the library's own
// functions do. It is opened at run time: standin_cublaslt() gives these functions.
#pragma once

#include <cstddef>

#include "vm/runtime/test/standin/standin.h"

// Set by the reset: one algorithm, without a workspace. Alive are handles and descriptors.
struct StandInCublasLt : StandIn {
  // What the search for algorithms finds: `unusable` ones, then `usable` ones that want so many
  // bytes of workspace.
  void (*set)(int unusable, int usable, size_t workspace);
  // The products that were started since the reset, a line each.
  const char* (*products)();
};

inline const StandInCublasLt& standin_cublaslt(const char* file) {
  return open_standin<StandInCublasLt>(file, "standin_cublaslt_table");
}
