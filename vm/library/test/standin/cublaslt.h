// What tests ask of the stand-in for cuBLASLt (cublaslt.cpp), beside what the library's own
// functions do. It is opened at run time: standin_cublaslt() gives these functions.
#pragma once

#include <dlfcn.h>

#include <cstddef>

struct StandInCublasLt {
  // Forgets all but what is alive, and what was set: one algorithm, without a workspace.
  void (*reset)();
  // What the search for algorithms finds: `unusable` ones, then `usable` ones that want so many
  // bytes of workspace.
  void (*set)(int unusable, int usable, size_t workspace);
  // Lets the n-th call of a function from now (1: the next) give that status.
  void (*fail)(const char* function, int nth, int status);
  // Calls of a function since the reset.
  int (*calls)(const char* function);
  // What was against the library's rules, a line each; "" if nothing was.
  const char* (*violations)();
  // Handles and descriptors that are alive.
  size_t (*alive)();
  // The products that were started since the reset, a line each.
  const char* (*products)();
};

inline const StandInCublasLt& standin_cublaslt(const char* file) {
  void* library = ::dlopen(file, RTLD_NOW | RTLD_LOCAL);
  return *reinterpret_cast<const StandInCublasLt* (*)()>(
      ::dlsym(library, "standin_cublaslt_table"))();
}
