// How a GPU's thread accesses elements that follow one another in memory: what the printer
// (codegen/cuda) relies on, and the emulator checks.
#pragma once

#include "compiler/kernels/kernel_ir.h"

namespace nimble::kir {

// Bytes of a thread's widest access. Each lies at a multiple of its own width, or the hardware
// faults.
inline constexpr int kWidestAccess = 16;

// Bytes of each access to `lanes` neighbours from buffer[index] on: as many as the base's alignment
// and what is known of the index prove aligned, an element at least.
int access_bytes(const Buffer& b, const Dim& index, int lanes, const ir::DimContext& facts);

}  // namespace nimble::kir
