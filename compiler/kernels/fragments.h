// A dot (kernel_ir.h) in other operations, for machines without an instruction for its fragment.
#pragma once

#include "compiler/kernels/kernel_ir.h"

namespace nimble::kir {

// What a kDot computes, in the order of its row, with a multiply-add for every factor. How far it
// may differ from the row stands in Fragments.def.
ValueRef expand_dot(const Value& dot);

}  // namespace nimble::kir
