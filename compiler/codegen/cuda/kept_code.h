// What the cache of code (code_cache.h) keeps of a kernel of a GPU: the code, and what was said of
// it when it was made, which decides as much.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "compiler/codegen/cuda/nvrtc.h"
#include "compiler/kernels/target.h"
#include "vm/base/hash.h"

namespace nimble::codegen {

// What code depends on beside its source and the compiler's options: target and compiler.
std::string maker_of(const kernels::TargetInfo& target);

// Of CUDA C++ for a target.
Hash128 key_of_cuda(const std::string& source, const kernels::TargetInfo& target);
// Without `ptx`.
std::vector<uint8_t> packed(const Nvrtc::Output& output);
// Nothing of bytes that packed() did not give.
std::optional<Nvrtc::Output> unpacked(std::span<const uint8_t> bytes);

}  // namespace nimble::codegen
