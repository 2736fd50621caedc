// Unrolled loops (kernel_ir.h) in other statements, for printers, which know other loops alone.
#pragma once

#include <map>
#include <string>

#include "compiler/kernels/kernel_ir.h"

namespace nimble::kir {

// The function with the copies of its bodies in place of each kUnroll loop. `f` must be well
// formed (verify); the result is, and computes the same to the bit. In it
//   - every number of a register, of vectors or of matrices, is a constant within its buffer;
//   - what constants decide is decided: of an `if` that way stays which is taken, of its condition
//     and a check's what is open;
//   - a name bound by a kLet or kLetIndex is that of nothing else in the whole function: no other
//     such name, no symbol, no loop variable. A printer need not tell its scopes apart.
// Symbols in `known` have those values throughout: code for one thread has `thread` 0 and `threads`
// 1. The extents of buffers and a launch's grid stay as they are. In a function with a launch,
// `threads` becomes that launch's number.
//
// Internal error for a register beyond its buffer, in a copy where no condition that constants
// decide keeps it from being reached.
Function unroll(const Function& f, const std::map<std::string, Dim>& known = {});

}  // namespace nimble::kir
