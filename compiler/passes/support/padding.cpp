#include "compiler/passes/support/padding.h"

#include <cmath>

#include "compiler/ir/image_layout.h"

namespace nimble::passes {

bool may_skip_padding(const ir::Expr& convolution) {
  if (!ir::has_padding(convolution.attrs)) return true;
  if (!convolution.args[1].is_constant()) return false;
  const ir::Tensor& weights = *convolution.args[1].constant;
  for (int64_t i = 0; i < weights.elements(); ++i)
    if (!std::isfinite(weights.value(i))) return false;
  return true;
}

}  // namespace nimble::passes
