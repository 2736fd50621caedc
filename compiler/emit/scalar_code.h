// Scalar operators as postfix code of the VM's scalar functions.
#pragma once

#include <vector>

#include "compiler/ir/expr.h"
#include "vm/executable/dim_program.h"

namespace nimble::emit {

using ScalarCode = std::vector<exec::DimInstruction>;

// The code of a call of a scalar operator (the trait `scalar`); kArg stands for its operands. A
// scalar is an element of a tensor of rank 0 and computed as kernels would: it wraps where
// arithmetic on extents fails.
const ScalarCode& scalar_code(const ir::Expr& e);

// Appends the code with that of the operands in their places: `operand(i)` is operand i's.
template <class Operand>
void append_code(ScalarCode& out, const ScalarCode& code, const Operand& operand) {
  for (const exec::DimInstruction& i : code) {
    if (i.op != exec::DimOp::kArg) {
      out.push_back(i);
      continue;
    }
    const ScalarCode& inner = operand(static_cast<size_t>(i.immediate));
    out.insert(out.end(), inner.begin(), inner.end());
  }
}

}  // namespace nimble::emit
