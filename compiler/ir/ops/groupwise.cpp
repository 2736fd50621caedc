// Products of rows that are rounded to bytes group by group.
#include "compiler/ir/groupwise.h"

#include "compiler/ir/ops/relations.h"

namespace nimble::ir {
namespace {

// The form of the operands that a call states.
Groupwise checked_groupwise(const RelationContext& c) {
  const auto integer = [&](const char* name) { return attr<int64_t>(c.call.attrs, name); };
  for (const char* extent : {"k", "n"})
    if (integer(extent) < 1 || integer(extent) > INT32_MAX)
      c.fail(fmt::format("{} is {}", extent, integer(extent)),
             "give the rows k and the columns n of the matrix");
  const int64_t group = integer("group"), k = integer("k");
  if (group < 1 || group > Groupwise::kLargestGroup || group % Groupwise::kUnit != 0)
    c.fail(
        fmt::format("groups of {}", group),
        fmt::format("use a multiple of {} up to {}", Groupwise::kUnit, Groupwise::kLargestGroup));
  if (k % group != 0)
    c.fail(fmt::format("{} elements are no whole groups of {}", k, group),
           "use a group that divides k");
  const auto steps = attr_or(c.call.attrs, "steps", Groupwise::kSteps);
  if (steps < 1 || steps > Groupwise::kSteps)
    c.fail(fmt::format("{} steps", steps),
           fmt::format("use 1 to {}, which bytes hold", Groupwise::kSteps));
  const Layout layout = layout_of(c, Layout::Kind::kPanel);
  if (layout.group != Groupwise::kByteRows && layout.group != Groupwise::kI16Rows)
    c.fail(fmt::format("layout {} of bytes", layout.str()),
           fmt::format("use groups of {0} or {1} rows, such as panel16x{0}", Groupwise::kByteRows,
                       Groupwise::kI16Rows));
  return groupwise_of(c.call.attrs);
}

void require_dims(RelationContext& c, size_t input, const Dims& wanted, const std::string& what) {
  require_rank(c, input, static_cast<int64_t>(wanted.size()));
  for (size_t i = 0; i < wanted.size(); ++i)
    c.require_equal(dims(c, input)[i], wanted[i], fmt::format("axis {} of {}", i, what));
}

}  // namespace

RelationResult relate_packed_groupwise_matmul(RelationContext& c) {
  const Groupwise form = checked_groupwise(c);
  require_dtype(c, 0, DType::kF32);
  require_rank_at_least(c, 0, 1);
  require_dtype(c, 1, DType::kI8);
  require_max_weight(c);
  require_dtype(c, 2, DType::kF32);
  require_dtype(c, 3, DType::kF32);
  Dims out = dims(c, 0);
  c.require_equal(out.back(), Dim(form.k), "the contracted dim of packed_groupwise_matmul");
  require_dims(c, 1, form.layout.packed_dims(form.k, form.n), "the weights");
  const Dims by_group = {form.groups(), form.stored()};
  require_dims(c, 2, by_group, "the scales");
  require_dims(c, 3, by_group, "the sums");
  out.back() = Dim(form.n);
  return {tensor_type(std::move(out), DType::kF32), std::nullopt};
}

}  // namespace nimble::ir
