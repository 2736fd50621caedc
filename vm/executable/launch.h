// What the VM does with launches before any driver sees them: the blocks of a call, and programs of
// a GPU where there is none.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "vm/executable/executable.h"

namespace nimble::exec {

// How many blocks a grid may have along each axis, by the CUDA C++ Programming Guide, table
// "Technical Specifications per Compute Capability".
inline constexpr std::array<int64_t, 3> kMaxGrid = {INT32_MAX, 65535, 65535};

// The blocks of a verified launch at these values of the contract's symbols; where an axis has none
// there is nothing to start. Error(kUnsupported) for more than a GPU takes or fewer than none,
// Error(kFatal) where the programs' arithmetic fails.
std::array<uint32_t, 3> grid_of(const Launch& launch, std::span<const int64_t> symbols);

// Steps of a grid, each of which may be a launch.
inline constexpr int64_t kMaxSteps = INT32_MAX;

// The steps that the grid does at these values; 1 of a launch without. Error(kUnsupported) for
// fewer than none and beyond kMaxSteps, Error(kFatal) where the program's arithmetic fails.
int64_t steps_of(const Launch& launch, std::span<const int64_t> symbols);

// Whether a kernel, a constant, a storage or a copy of it lies on a GPU.
bool uses_gpu(const Executable& executable);

// Moves all that lies on GPUs to the CPU, where portable forms then stand for the kernels' code:
// what a verified executable computes stays, and it stays a verified one. Returns a kernel that has
// no such form; then nothing has changed.
const Kernel* move_to_cpu(Executable* executable);

}  // namespace nimble::exec
