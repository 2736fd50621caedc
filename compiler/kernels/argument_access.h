// How wide a GPU's kernel may access its arguments at once.
#pragma once

#include <cstdint>

#include "compiler/kernels/kernel_ir.h"

namespace nimble::kir {

// Bytes, a power of two of at most 16: a multiple of them every argument's address has to be,
// whatever the buffers claim. No less than any access of the printer's (codegen/cuda).
uint32_t argument_alignment(const Function& f);

}  // namespace nimble::kir
