// Ends the life of every value where no path reads it any more.
#pragma once

#include "compiler/ir/expr.h"

namespace nimble::passes {

// The function with memory.kill and memory.release after the last uses; see place_kills.cpp.
ir::FunctionRef place_kills(const ir::FunctionRef& f, bool entry);

}  // namespace nimble::passes
