// Loops of a GPU's kernels whose steps are known.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "compiler/kernels/kernel_ir.h"

namespace nimble::kernels::gpu {

// `count` steps of `var`, up to `most` of them in a straight stretch, so that what several load is
// on its way at once: serial loops stay loops in machine code.
kir::StmtRef stretched_loop(const std::string& var, int64_t count, int64_t most, kir::StmtRef body);

}  // namespace nimble::kernels::gpu
