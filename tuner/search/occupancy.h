// What a kernel's code takes of a GPU's multiprocessor, as the assembler tells, and which
// candidates are therefore not worth a measurement.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "compiler/kernels/target.h"

namespace nimble::tuner {

// Threads that a multiprocessor of 8.0, 9.0 and 10.0 holds at most.
inline constexpr int64_t kMultiprocessorThreads = 2048;

struct GpuCode {
  int64_t threads = 0;       // of a block
  int64_t shared_bytes = 0;  // of a block
  int64_t registers = 0;     // of a thread; 0: not known, as of what a driver assembles
  int64_t spill_bytes = 0;   // of a thread: what its stores to and loads from local memory move
};

// Blocks that live on a multiprocessor at a time; 0: not even one.
int64_t blocks_at_once(const GpuCode& code, const kernels::TargetInfo& target);

// Why a candidate need not be measured, beside the default schedule; nothing where it must be, as
// where the assembler said nothing of either.
std::optional<std::string> why_not_measured(const GpuCode& code, const GpuCode& usual,
                                            const kernels::TargetInfo& target);

}  // namespace nimble::tuner
