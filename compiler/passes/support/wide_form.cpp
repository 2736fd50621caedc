#include "compiler/passes/support/wide_form.h"

#include "compiler/ir/image_layout.h"
#include "compiler/ir/op.h"

namespace nimble::passes {

DType wide_type(const ir::Expr& e, const ir::Type& weights, const ir::Type& result) {
  if (!ir::traits_of(e).images || is_float(result->dtype)) return result->dtype;
  // So many products of two bytes stay below 2^24, and their sums on the way.
  const int64_t largest = weights->dtype == DType::kI8 ? 128 : 255;
  const int64_t most_terms = (int64_t{1} << 24) / (255 * largest);
  const ir::ImageLayout l = ir::image_layout_of(e.attrs);
  ir::Dim terms = 1;
  for (const size_t axis : {l.input, l.taps[0], l.taps[1]}) terms = terms * weights->dims[axis];
  const auto known = terms.as_constant();
  return known && *known <= most_terms ? DType::kF32 : DType::kF64;
}

}  // namespace nimble::passes
