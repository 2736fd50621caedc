// The verifier's rules of matrix registers: what types and sizes buffers of them have. They throw
// a Fault (verify_fault.h). Which buffers a region has shaped, and how, the walk knows.
#pragma once

#include "compiler/kernels/kernel_ir.h"

namespace nimble::kir {

void check_tile_buffer(const Buffer& b);
// Of the operands of a product.
void check_tile_operands(const TileFragmentRow& row, const Buffer& sum, const Buffer& a,
                         const Buffer& b);

}  // namespace nimble::kir
