// The rules of a loop of steps (LoopKind::kSteps): one launch for all of them computes what a
// launch for each does, and nobody waits for a block that does not come.
#pragma once

#include <string>

#include "compiler/kernels/kernel_ir.h"

namespace nimble::kir {

// The first fault of a function whose statements and values are all there; "" if there is none.
std::string steps_fault(const Function& f);

// Registers and shared memory that are made ready ahead of the steps, by their names: those that
// the steps find as they were.
bool is_ready_for_steps(const Function& f, const Buffer& b);

}  // namespace nimble::kir
