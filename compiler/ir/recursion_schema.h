// The type of the operator linearise.
#pragma once

#include <vector>

#include "compiler/ir/type.h"
#include "vm/base/recursion_schema.h"

namespace nimble::ir {

// The steps (steps, 4), then for each kind k its calls (counts[k]) and its data (counts[k],
// extents…).
Type type_of_linearise(const RecursionSchema& schema, const Dim& steps,
                       const std::vector<Dim>& counts);

}  // namespace nimble::ir
