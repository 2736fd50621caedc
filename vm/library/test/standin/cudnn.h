// What tests ask of the stand-in for cuDNN (cudnn.cpp), beside what the library's own functions do.
// It is opened at run time: standin_cudnn() gives these functions.
#pragma once

#include <dlfcn.h>

#include <cstddef>

struct StandInCudnn {
  // Forgets all but what is alive, and what was set: one engine without notes or workspace.
  void (*reset)();
  // Proposes an engine more, after those that were set since the last reset: with this numerical
  // note (-1: none), a plan that wants so many bytes, and that is refused if so. `rules`: 3 or 2,
  // by which it is proposed.
  void (*add_engine)(int rules, int note, size_t workspace, int refused);
  // Lets the n-th call of a function from now (1: the next) give that status.
  void (*fail)(const char* function, int nth, int status);
  // Calls of a function since the reset.
  int (*calls)(const char* function);
  // What was against the library's rules, a line each; "" if nothing was.
  const char* (*violations)();
  // Handles and descriptors that are alive.
  size_t (*alive)();
  // The graphs that were started since the reset, a line each: their operations in order.
  const char* (*graphs)();
};

inline const StandInCudnn& standin_cudnn(const char* file) {
  void* library = ::dlopen(file, RTLD_NOW | RTLD_LOCAL);
  return *reinterpret_cast<const StandInCudnn* (*)()>(::dlsym(library, "standin_cudnn_table"))();
}
