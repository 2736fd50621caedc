// Matrix registers (kernel_ir.h) in other statements, for machines without them.
#pragma once

#include "compiler/kernels/kernel_ir.h"
#include "compiler/kernels/target.h"

namespace nimble::kir {

// Whether the target has the matrix registers and products that the function uses; true if it uses
// none.
bool has_tiles(const kernels::TargetInfo& target, const Function& f);

// The function with each tile buffer in a thread's scratch memory, in the place that scratch_bytes
// keeps for it, and loops in place of its statements. A product becomes dots (kDot) of the vectors'
// fragment with the same types; how far its sums may differ stands in Fragments.def.
Function expand_tiles(const Function& f);

}  // namespace nimble::kir
