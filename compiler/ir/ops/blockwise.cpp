// Products with weights that have a scale for each block of rows.
#include "compiler/ir/blockwise.h"

#include "compiler/ir/ops/relations.h"

namespace nimble::ir {
namespace {

// The form of the weights that a call states.
Blockwise checked_blockwise(const RelationContext& c) {
  const auto integer = [&](const char* name) { return attr<int64_t>(c.call.attrs, name); };
  const int64_t bits = integer("bits"), block = integer("block");
  if (bits != 4 && bits != 8)
    c.fail(fmt::format("weights of {} bits", bits), "use bits = 4 or bits = 8");
  if (block < Blockwise::kLeastBlock || block > Blockwise::kLargestBlock ||
      (block & (block - 1)) != 0)
    c.fail(fmt::format("blocks of {} rows", block),
           fmt::format("use a power of two from {} to {}", Blockwise::kLeastBlock,
                       Blockwise::kLargestBlock));
  for (const char* extent : {"k", "n"})
    if (integer(extent) < 1 || integer(extent) > INT32_MAX)
      c.fail(fmt::format("{} is {}", extent, integer(extent)),
             "give the rows k and the columns n of the matrix");
  if (c.call.attrs.contains("layout")) {
    const Layout layout = layout_of(c, Layout::Kind::kPanel);
    if (layout.group != 32 / bits)
      c.fail(fmt::format("layout {} of {} bits", layout.str(), bits),
             fmt::format("use groups of {} rows, such as panel16x{}", 32 / bits, 32 / bits));
  }
  if (attr_or(c.call.attrs, "activations", DType::kI8) != DType::kI8)
    c.fail("activations are rounded to i8 or not at all",
           "use activations = i8, or leave the attribute out");
  return blockwise_of(c.call.attrs);
}

void require_shape(RelationContext& c, size_t input, const std::vector<int64_t>& shape,
                   const std::string& what) {
  require_rank(c, input, static_cast<int64_t>(shape.size()));
  for (size_t i = 0; i < shape.size(); ++i)
    c.require_equal(dims(c, input)[i], Dim(shape[i]), fmt::format("axis {} of {}", i, what));
}

}  // namespace

RelationResult relate_blockwise_matmul(RelationContext& c) {
  const Blockwise form = checked_blockwise(c);
  require_dtype(c, 0, DType::kF32);
  require_rank_at_least(c, 0, 1);
  require_dtype(c, 1, DType::kU8);
  require_dtype(c, 2, DType::kF32);
  Dims out = dims(c, 0);
  c.require_equal(out.back(), Dim(form.k), "the contracted dim of blockwise_matmul");
  require_shape(c, 1, form.weight_shape(), "the weights");
  require_shape(c, 2, form.scale_shape(), "the scales");
  if (c.inputs.size() == 4) {
    if (dtype(c, 3) != DType::kF32) require_dtype(c, 3, DType::kU8);
    require_shape(c, 3, form.scale_shape(), "the zeros");
  }
  out.back() = Dim(form.n);
  return {tensor_type(std::move(out), DType::kF32), std::nullopt};
}

}  // namespace nimble::ir
