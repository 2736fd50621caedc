// What tests ask of the stand-in for NVIDIA's driver (cuda.cpp), beside what the driver's own
// functions do. It is a library that is opened at run time: standin_cuda() gives these functions.
// There are two, one of them as the oldest driver that is used: without what need not be there.
#pragma once

#include <dlfcn.h>

#include <cstddef>
#include <cstdint>

struct StandInLaunch {
  unsigned grid[3];
  unsigned threads, shared_bytes;
  void* const* pointers;   // as the host sees them
  const int64_t* symbols;  // behind the pointers
  void* scratch;
  int32_t* status;
};
// What a kernel of the stand-in computes, on the host; returns a result of the driver's.
using StandInKernel = int (*)(const StandInLaunch& launch);

struct StandInCuda {
  // Forgets all but what is alive, and what was set: a device of 9.0, driver 13.0 (or 12.0).
  void (*reset)();
  void (*set)(int version, int devices, int capability);
  // "*": what computes any kernel that has no name here.
  void (*add_kernel)(const char* name, int pointers, int symbols, StandInKernel kernel);
  // Lets the n-th call of a function from now (1: the next) give that result.
  void (*fail)(const char* function, int nth, int result);
  // Calls of a function since the reset.
  int (*calls)(const char* function);
  // What was against the driver's rules, a line each; "" if nothing was.
  const char* (*violations)();
  // Allocations, pinned memory, streams, events, modules and graphs that are alive.
  size_t (*alive)();
  // Of these, bytes of the device.
  size_t (*bytes)();
  // For stand-ins of libraries that work in the driver's streams. The host's address of these bytes
  // of the device; nullptr, noted as a violation, where it has not all of them.
  void* (*host_of)(uint64_t address, size_t bytes);
  // Lets a stream do this, in its order; what it returns is a result of the driver's. Refused, and
  // noted, without a current context or for no stream.
  int (*add_work)(void* stream, int (*run)(void* what), void* what);
  // In a kernel: it takes so much longer, by the device's clock.
  void (*take)(float milliseconds);
  // Each piece of work takes so long from now on; a millisecond after the reset.
  void (*tick)(float milliseconds);
};

inline const StandInCuda& standin_cuda(const char* file) {
  void* library = ::dlopen(file, RTLD_NOW | RTLD_LOCAL);
  return *reinterpret_cast<const StandInCuda* (*)()>(::dlsym(library, "standin_cuda_table"))();
}

// A module's image: these kernels. One of PTX has those of its entries; of more the stand-in looks
// at its version, which the driver's bounds, and whether what stands outside of bodies is a
// directive.
#define STANDIN_CUDA_IMAGE "stand-in module:"
