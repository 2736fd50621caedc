// What the generator of random programs must know of operators beyond their rows in Ops.def.
#pragma once

#include <string>

#include "compiler/ir/op.h"

namespace nimble::emit::testing {

// The row needs attributes that only passes know how to make.
bool is_internal(const ir::OpInfo& op);
// What the elements of an operand are decides whether it succeeds, or what its extents are.
bool needs_values(const ir::OpInfo& op);
// Of an exact operand exact, of a rough one rough, and continuous.
bool moves_values(const ir::OpInfo& op);
// Discontinuous in a float operand.
bool jumps(const std::string& op);
// Index of the operand that must stay away from zero and below, or -1.
int guarded_operand(const std::string& op);

}  // namespace nimble::emit::testing
