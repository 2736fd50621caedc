// Rule V15 of the IR verifier: after device placement everything lies where it is read.
#pragma once

#include <string>
#include <vector>

#include "compiler/ir/expr.h"

namespace nimble::ir {

// Appends the faults of the functions that the pass place-devices has marked with `parameters_on`
// and `results_on`, before memory lowering and after it.
void verify_devices(const Module& m, std::vector<std::string>* faults);

}  // namespace nimble::ir
