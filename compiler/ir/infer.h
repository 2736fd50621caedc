// Type inference and the IR verifier.
#pragma once

#include <string>
#include <vector>

#include "compiler/ir/expr.h"

namespace nimble::ir {

// Infers every binding's type, with symbolic dims, forwards and backwards; replaces `?` of
// parameters by fresh symbols; tracks symbolic contents of small integer tensors; inserts
// assert_shape where equality of dims is demanded but not provable (gradual typing, paper 3.1).
// Throws nimble::Error with a location when dims or dtypes contradict. Idempotent.
Module infer_types(const Module& m);

// Rules of a well-formed module (scoping, arity, ANF, types agree with relations); returns all
// faults, empty if none. Shares no code with inference beyond the operator table.
std::vector<std::string> verify(const Module& m);

// What inference knows about the symbols of a function.
DimContext dim_context(const Function& f);

}  // namespace nimble::ir
