// What a run of a kernel gets from its caller, checked.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "compiler/kernels/interpreter_code.h"

namespace nimble::kir {

struct BoundMemory {
  std::byte* data = nullptr;
  int64_t extent = 0;  // elements; kThread: of one copy
};

// The slots of symbols, those of the contract filled in and `threads`.
std::vector<int64_t> bind_symbols(const InterpreterCode& code, std::span<const int64_t> values,
                                  int threads);
// Memory of the arguments, then of scratch buffers, which `scratch` owns.
std::vector<BoundMemory> bind_memory(const InterpreterCode& code,
                                     const std::vector<int64_t>& symbols,
                                     std::span<const std::span<std::byte>> buffers, int threads,
                                     std::vector<std::vector<std::byte>>& scratch);

}  // namespace nimble::kir
