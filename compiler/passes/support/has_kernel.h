// Passes that choose between forms of an operator ask the templates which of them they take.
#pragma once

#include <vector>

#include "compiler/passes/pass.h"

namespace nimble::passes {

// Whether a kernel of `target` (PassContext::target_in, where the call stands) computes a call of
// one operator on operands of these types. Of the call only the operator and the attributes count.
bool has_kernel(const ir::Expr& call, const std::vector<ir::Type>& operands, const ir::Type& result,
                const kernels::TargetInfo& target, PassContext& context);

}  // namespace nimble::passes
