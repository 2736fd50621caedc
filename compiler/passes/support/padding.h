// When the padding of a convolution may be left out.
#pragma once

#include "compiler/ir/expr.h"

namespace nimble::passes {

// Whether leaving out the taps of a convolution that fall into the padding changes nothing: zeros
// times weights that would have to be infinite or NaN to count. Of weights that are no constant
// nothing is known. Needs an operator with `pads` and weights as operand 1.
bool may_skip_padding(const ir::Expr& convolution);

}  // namespace nimble::passes
