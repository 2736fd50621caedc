// How the template "blockwise" wants its weights.
#pragma once

#include <cstdint>
#include <string>

#include "compiler/kernels/target.h"

namespace nimble::kernels {

// The layout (compiler/ir/blockwise.h) in which `n` columns of 4- or 8-bit weights with scales by
// blocks should be packed for `t`.
std::string blockwise_layout(const TargetInfo& t, int64_t bits, int64_t n);

}  // namespace nimble::kernels
