// What the pass pack-weights can lay out, for passes that lead up to it.
#pragma once

#include <optional>
#include <vector>

#include "compiler/ir/expr.h"
#include "compiler/passes/pass.h"
#include "compiler/passes/support/rewrite.h"
#include "vm/base/dtype.h"

namespace nimble::passes {

// Whether a call of an operator that packs a matrix (Packs::kMatrix) is a product of rows with
// constant weights that can be packed, of these element types.
bool is_packable_product(const ir::Expr& e, DType rows, DType weights);
// The same of a convolution (Packs::kFilters) of channels-last images; depthwise ones are not
// packed.
bool is_packable_convolution(const ir::Expr& e, DType image, DType weights);
// What it reads through a transposition to channels last, and perhaps a cast, of images of so few
// channels that a pixel's make no stretch of memory: packed, it reads them as they were
// (image_layout nchw), any number of channels in whatever groups. Nothing if it is another operand.
std::optional<ir::Atom> planes_of(const ir::Expr& e, const Definitions& definitions);
// Whether a kernel takes a convolution of channels-last images, narrower than its result (`out`),
// once its constant weights are packed. Of the call only the attributes and whether the weights are
// a constant count; operand 1 is HWIO.
bool has_packed_kernel(const ir::Expr& e, const std::vector<ir::Type>& operands,
                       const ir::Type& result, PassContext& context);
// The same of the recurrent weights of a cell (Packs::kGates).
bool is_packable_cell(const ir::Expr& e, DType weights);

}  // namespace nimble::passes
