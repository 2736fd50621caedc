#include "compiler/passes/support/padding.h"

#include "compiler/ir/image_layout.h"

namespace nimble::passes {

bool may_skip_padding(const ir::Expr& convolution) {
  if (!ir::has_padding(convolution.attrs)) return true;
  if (!convolution.args[1].is_constant()) return false;
  return convolution.args[1].constant->all_finite();
}

}  // namespace nimble::passes
