// Rules of single values and statements that need neither names in scope nor the order of
// statements. Each function tells the first fault; "" if there is none.
#pragma once

#include <string>

#include "compiler/kernels/kernel_ir.h"

namespace nimble::kir {

// Of its operands' types and lanes.
std::string dot_fault(const Value& v);
std::string async_copy_fault(const Stmt& s);
// Whether a statement is of a signal, which its `buffer` then holds.
bool is_of_signal(StmtKind kind);
std::string signal_fault(const Stmt& s);
// `facts`: of the contract's symbols.
std::string tensor_map_fault(const Function& f, const ir::DimContext& facts, const TensorMap* m);
std::string tensor_copy_fault(const Function& f, const Stmt& s);
// Of the lines that a swizzle's pattern goes through: copies of boxes begin at multiples of it.
int pattern_bytes(const TensorMap& m);

}  // namespace nimble::kir
