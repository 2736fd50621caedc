// Type inference and the IR verifier.
#pragma once

#include <string>
#include <vector>

#include "compiler/ir/diagnostic.h"
#include "compiler/ir/expr.h"

namespace nimble::ir {

// Infers every binding's type, with symbolic dims, forwards and backwards; replaces `?` of
// parameters by fresh symbols; tracks symbolic contents of small integer tensors; inserts
// assert_shape where equality of dims is demanded but not provable (gradual typing, paper 3.1).
// Idempotent. Goes on after a fault, so that one run reports all (diagnostic.h).
struct InferResult {
  Module module;                        // of no use if there are diagnostics
  std::vector<Diagnostic> diagnostics;  // in order of their place
};
InferResult infer_module(const Module& m);
// The same, throwing one nimble::Error (kInvalidArgument) that carries every diagnostic's text. If
// what is known of elements that the program reads refutes what it asserts of them, nothing is
// taken for known: the run fails, if it comes there.
Module infer_types(const Module& m);

// Rules of a well-formed module (scoping, arity, ANF, types agree with relations); returns all
// faults, empty if none. Shares no code with inference beyond the operator table.
std::vector<std::string> verify(const Module& m);

// What inference knows about the symbols of a function.
DimContext dim_context(const Function& f);

}  // namespace nimble::ir
