// Functions with symbols replaced by other dims.
#pragma once

#include <map>
#include <string>

#include "compiler/ir/expr.h"

namespace nimble::ir {

// A copy of `f`, with variables of its own, in which each symbol that `values` names is its value,
// in types and attributes alike, nested blocks, groups and literals included.
FunctionRef substitute(const Function& f, const std::map<std::string, Dim>& values);

}  // namespace nimble::ir
