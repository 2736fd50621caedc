// Whether what a group of warps multiplies beside the threads is left alone until it is done: the
// rules of kGroupDot and its like that need the order of statements, and no numbers.
#pragma once

#include <string>

#include "compiler/kernels/kernel_ir.h"

namespace nimble::kir {

// The first fault of a function that is well formed otherwise; "" if there is none.
std::string group_order_fault(const Function& f);

}  // namespace nimble::kir
