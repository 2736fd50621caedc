// Minima and maxima stay where a kernel computes them.
#pragma once

#include <llvm/IR/PassManager.h>

namespace nimble::codegen {

// LLVM's reduction of strength in loops writes addresses anew from what it knows of their parts, at
// the place that uses them: the least of two numbers of rows, computed once ahead of a product's
// loop, comes back as a comparison and a conditional move in each of its steps, next to the
// multiply-adds. Behind a `freeze`, which costs nothing, it knows nothing of a minimum but its
// name. The last pass before code is generated; others would see through it.
struct PinBounds : llvm::PassInfoMixin<PinBounds> {
  llvm::PreservedAnalyses run(llvm::Function& f, llvm::FunctionAnalysisManager&);
  static bool isRequired() { return true; }
};

}  // namespace nimble::codegen
