// What tests ask of the stand-in for NVIDIA's driver (cuda.cpp), beside what the driver's own
// functions do. It is a library that is opened at run time: standin_cuda() gives these functions.
// There are two, one of them as the oldest driver that is used: without what need not be there.
#pragma once

#include <cstddef>
#include <cstdint>

#include "vm/runtime/test/standin/standin.h"

// A tensor map that a kernel got, as it was described.
struct StandInMap {
  int type;
  unsigned rank;
  const void* memory;  // as the host sees it; nullptr of a map of zeros
  uint64_t extents[5], pitches[4];
  uint32_t box[5];
  int swizzle;
};

struct StandInLaunch {
  unsigned grid[3];
  unsigned threads, shared_bytes;
  void* const* pointers;   // as the host sees them
  const int64_t* symbols;  // behind the pointers
  void* scratch;
  int32_t* status;
  const StandInMap* maps;
  // Of a kernel with steps of its whole grid.
  int64_t first_step, end_step;
  bool together;  // its blocks are there at once
};
// What a kernel of the stand-in computes, on the host; returns a result of the driver's.
using StandInKernel = int (*)(const StandInLaunch& launch);

// Set by the reset: a device of 9.0, driver 13.0 (or 12.0). Alive are allocations, pinned memory,
// streams, events, modules and graphs.
struct StandInCuda : StandIn {
  void (*set)(int version, int devices, int capability);
  // "*": what computes any kernel that has no name here.
  void (*add_kernel)(const char* name, int pointers, int symbols, StandInKernel kernel);
  // One with steps.
  void (*add_stepped_kernel)(const char* name, int pointers, int symbols, StandInKernel kernel);
  // So many blocks of it are on a multiprocessor at once, of which there are 132; 1 after the
  // reset.
  void (*hold_blocks)(int blocks);
  // Of what is alive, bytes of the device.
  size_t (*bytes)();
  // For stand-ins of libraries that work in the driver's streams. The host's address of these bytes
  // of the device; nullptr, noted as a violation, where it has not all of them.
  void* (*host_of)(uint64_t address, size_t bytes);
  // Lets a stream do this, in its order, or each time that the graph runs into which the stream is
  // captured; what it returns is a result of the driver's. Behind the last time, or at once where
  // it is refused, `what` is dropped. Refused, and noted, without a current context or for no
  // stream.
  int (*add_work)(void* stream, int (*run)(void* what), void (*drop)(void* what), void* what);
  // In a kernel: it takes so much longer, by the device's clock.
  void (*take)(float milliseconds);
  // Each piece of work takes so long from now on; a millisecond after the reset.
  void (*tick)(float milliseconds);
  // A kernel that was added takes so many tensor maps, too.
  void (*expect_maps)(const char* name, int maps);
  // The device's name from now on, any bytes; "Stand-in GPU" after the reset.
  void (*rename)(const char* name);
};

inline const StandInCuda& standin_cuda(const char* file) {
  return open_standin<StandInCuda>(file, "standin_cuda_table");
}

// A module's image: these kernels. One of PTX has those of its entries; of more the stand-in looks
// at its version, which the driver's bounds, and whether what stands outside of bodies is a
// directive.
#define STANDIN_CUDA_IMAGE "stand-in module:"
