// What the host computes for itself where kernels run on another device.
#pragma once

#include <unordered_set>

#include "compiler/ir/expr.h"

namespace nimble::passes {

// The values of a function that are on the host and should be: extents, counters, what only its own
// kernels make, and the few integers that are made of such alone. On another device each would cost
// a copy there, and one back for whoever reads them as extents. `entry`: its parameters are a
// user's tensors.
std::unordered_set<const ir::Var*> host_values(const ir::Function& f, bool entry);

}  // namespace nimble::passes
