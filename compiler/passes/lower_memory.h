// What other passes and the emitter need to know of lower-memory's conventions.
#pragma once

#include "compiler/ir/expr.h"

namespace nimble::passes {

// The type of a value after lowering.
ir::Type lowered_type(const ir::Type& t);
// Whether a call is an operator on scalars, which becomes scalar code instead of a kernel.
bool is_scalar_op(const ir::Expr& call);
// Whether computing a Dim may stop the run (broadcasting, division by a symbol).
bool can_fail(const ir::Dim& d);

}  // namespace nimble::passes
