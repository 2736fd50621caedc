// Recurrent cells as the tests of their templates for GPUs have them: one step, or all of them.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "compiler/ir/expr.h"
#include "compiler/kernels/test/reference_harness.h"

namespace nimble::kernels::testing {

// An operator of a cell, or of all its steps, with so many hidden units for a batch of `b`. Of
// steps there are `n`, which is the contract's first symbol then.
Workload recurrent_workload(const std::string& op, int64_t hidden, ir::Attrs attrs, DType weights);

// The template must be the one that serves the workload on a GPU. `each` lowers and runs its
// default configuration, which is number 0, and so many drawn ones.
void check_recurrent_on_gpu(
    const Workload& w, const std::string& name, int configurations,
    const std::function<void(ReferenceHarness& harness, const Config& c, int number)>& each);

// Units, rows and threads that a block cannot have are refused.
void expect_refuses_shapes_of_no_block(const char* name, const Workload& w);

}  // namespace nimble::kernels::testing
