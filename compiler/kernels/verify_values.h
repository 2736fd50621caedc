// The verifier's rules of a value that is computed from its operands alone: how many there are, of
// which types and lanes. They throw a Fault (verify_fault.h).
#pragma once

#include <string>

#include "compiler/kernels/kernel_ir.h"

namespace nimble::kir {

void check_lanes(int lanes, const std::string& where);
void check_arity(const Value& v, size_t n);
// Whether an operand has the value's type and lanes.
void check_same(const Value& v, const Value& operand);
// Not of a dot, nor of what names, memory, registers or other lanes give.
void check_computed(const Value& v);

}  // namespace nimble::kir
