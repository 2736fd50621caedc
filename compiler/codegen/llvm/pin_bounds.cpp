#include "compiler/codegen/llvm/pin_bounds.h"

#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/InstIterator.h>
#include <llvm/IR/IntrinsicInst.h>

#include <vector>

namespace nimble::codegen {

llvm::PreservedAnalyses PinBounds::run(llvm::Function& f, llvm::FunctionAnalysisManager&) {
  std::vector<llvm::MinMaxIntrinsic*> bounds;
  for (llvm::Instruction& i : llvm::instructions(f))
    if (auto* bound = llvm::dyn_cast<llvm::MinMaxIntrinsic>(&i);
        bound && bound->getType()->isIntegerTy())
      bounds.push_back(bound);
  for (llvm::MinMaxIntrinsic* bound : bounds) {
    llvm::IRBuilder<> after(bound->getNextNode());
    auto* pinned = llvm::cast<llvm::Instruction>(after.CreateFreeze(bound));
    bound->replaceUsesWithIf(pinned, [&](llvm::Use& use) { return use.getUser() != pinned; });
  }
  if (bounds.empty()) return llvm::PreservedAnalyses::all();
  llvm::PreservedAnalyses kept;
  kept.preserveSet<llvm::CFGAnalyses>();
  return kept;
}

}  // namespace nimble::codegen
