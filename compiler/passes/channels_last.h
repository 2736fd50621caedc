// The pass channels-last with the question that it asks of the templates as a parameter.
#pragma once

#include <functional>

#include "compiler/passes/pass.h"

namespace nimble::passes {

// Whether a kernel computes a call of one operator on operands of these types.
using HasKernel = std::function<bool(const ir::Expr& call, const std::vector<ir::Type>& operands,
                                     const ir::Type& result)>;

// channels_last, where `has_kernel` says what can be computed with channels last.
ir::Module channels_last_where(const ir::Module& m, const HasKernel& has_kernel,
                               PassContext& context);

}  // namespace nimble::passes
