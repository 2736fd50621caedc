// Loops that do one thing as fast as the processor can: the peaks that rooflines are drawn under.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "vm/base/cpu.h"

namespace nimble {

// Independent chains of multiply-adds in registers.
struct ComputeLoop {
  std::string dtype;         // "f32", "f64", "i8" (products summed in i32), "bf16" (in f32)
  std::string instructions;  // that it was compiled for: "avx512f"
  double operations;         // of one step; a multiply-add counts as two
  void (*run)(int64_t steps);
};

// Reads `bytes`, a multiple of 1024, or runs a[i] = b[i] + 3 * c[i] over three parts of them.
struct MemoryLoop {
  std::string instructions;
  void (*read)(const void* data, int64_t bytes);
  void (*triad)(double* a, const double* b, const double* c, int64_t count);  // multiples of 128
};

// The fastest of each type that the CPU has the instructions for.
std::vector<ComputeLoop> compute_loops(const CpuInfo& cpu);
MemoryLoop memory_loop(const CpuInfo& cpu);

// Additions that each wait for the one before: a cycle each, so they tell the core's clock.
void dependent_additions(int64_t count);

}  // namespace nimble
