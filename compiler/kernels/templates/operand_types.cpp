#include "compiler/kernels/templates/operand_types.h"

#include "compiler/ir/op.h"
#include "compiler/kernels/tiles.h"

namespace nimble::kernels {

namespace {

template <typename Predicate>
std::optional<kir::Fragment> find_fragment(Predicate is_wanted) {
  for (const kir::FragmentRow& row : kir::all_fragments())
    if (is_wanted(row)) return row.id;
  return {};
}

template <typename Predicate>
std::optional<kir::TileFragment> find_tile_fragment(const TargetInfo& t, Predicate is_wanted) {
  for (const kir::TileFragmentRow& row : kir::all_tile_fragments())
    if (is_wanted(row) && t.has(std::string(row.feature))) return row.id;
  return {};
}

// Whether a type has each value of another one.
bool has_values(DType wide, DType narrow) {
  if (wide == narrow) return true;
  return is_int(wide) && is_int(narrow) && size_of(narrow) < size_of(wide) &&
         (is_signed_int(wide) || is_unsigned_int(narrow));
}

// Whether a fragment can multiply operands of these types into such sums, where no element of the
// right-hand side exceeds `most` in size.
bool can_multiply(const kir::FragmentRow& f, DType lhs, DType rhs, DType sum,
                  int64_t most = kir::kAnyWeight) {
  return f.sum == sum && has_values(f.a, lhs) && has_values(f.b, rhs) && kir::keep_bound(f, most);
}

}  // namespace

std::optional<kir::Fragment> fragment_of(DType lhs, DType rhs, DType sum) {
  return find_fragment([&](const kir::FragmentRow& f) {
    return f.a == lhs && f.b == rhs && f.sum == sum && kir::keep_bound(f, kir::kAnyWeight);
  });
}

int group_of(std::optional<kir::Fragment> fragment) {
  return fragment ? kir::row_of(*fragment).group : 1;
}

std::optional<kir::Fragment> fragment_of(DType rhs) {
  return find_fragment(
      [&](const kir::FragmentRow& f) { return f.b == rhs && kir::keep_bound(f, kir::kAnyWeight); });
}

std::optional<kir::Fragment> fragment_of_groups(DType lhs, DType rhs, DType sum, int64_t group) {
  return find_fragment([&](const kir::FragmentRow& f) {
    return f.group == group && can_multiply(f, lhs, rhs, sum);
  });
}

std::vector<kir::Fragment> fragments_for(kir::Fragment own, int64_t most) {
  const kir::FragmentRow& row = kir::row_of(own);
  std::vector<kir::Fragment> all = {own};
  for (const kir::FragmentRow& f : kir::all_fragments())
    if (f.id != own && can_multiply(f, row.a, row.b, row.sum, most)) all.push_back(f.id);
  return all;
}

std::optional<kir::Fragment> multiplying_fragment(const TargetInfo& t, kir::Fragment own,
                                                  int64_t most) {
  for (const kir::Fragment f : fragments_for(own, most))
    if (kir::multiplies(kir::row_of(f), t)) return f;
  return {};
}

std::optional<kir::Fragment> packing_fragment(const TargetInfo& t, DType weights, int64_t most) {
  const auto own = fragment_of(weights);
  if (!own) return {};
  if (const auto multiplies = multiplying_fragment(t, *own, most)) return multiplies;
  return kir::is_taken(kir::row_of(*own), t) ? own : std::nullopt;
}

kir::Fragment fragment_of_call(const TargetInfo& t, kir::Fragment own, const ir::Expr& call) {
  return fragment_within(t, own, ir::attr_or<int64_t>(call.attrs, "max_weight", kir::kAnyWeight));
}

kir::Fragment fragment_within(const TargetInfo& t, kir::Fragment own, int64_t most) {
  const kir::FragmentRow& row = kir::row_of(own);
  for (const kir::Fragment f : fragments_for(own, most)) {
    const kir::FragmentRow& other = kir::row_of(f);
    if (other.a == row.a && other.b == row.b && other.group == row.group &&
        kir::multiplies(other, t))
      return f;
  }
  return own;
}

int group_for(const TargetInfo& t, DType lhs, DType rhs, DType sum, int64_t most) {
  return fragment_of(lhs, rhs, sum) ? group_of(packing_fragment(t, rhs, most)) : 1;
}

bool is_converted(DType operand, DType sum) {
  return operand == sum || (is_narrow_float(operand) && sum == DType::kF32);
}

DType sum_of(DType rhs) {
  if (const auto fragment = fragment_of(rhs)) return kir::row_of(*fragment).sum;
  return is_converted(rhs, DType::kF32) ? DType::kF32 : rhs;
}

std::optional<kir::TileFragment> tile_fragment_of(const TargetInfo& t, DType lhs, DType rhs,
                                                  DType sum) {
  return find_tile_fragment(
      t, [&](const kir::TileFragmentRow& f) { return f.a == lhs && f.b == rhs && f.sum == sum; });
}

std::optional<kir::TileFragment> tile_fragment_of(const TargetInfo& t, DType rhs) {
  return find_tile_fragment(t, [&](const kir::TileFragmentRow& f) { return f.b == rhs; });
}

DType rows_type(const TargetInfo& t, DType weights, bool in_groups) {
  const auto fragment = fragment_of(weights);
  if (!fragment) return sum_of(weights);
  const kir::FragmentRow& row = kir::row_of(*fragment);
  const bool multiplied = kir::is_taken(row, t) || tile_fragment_of(t, row.a, row.b, row.sum);
  if (row.feature.empty() && !(multiplied && in_groups)) return row.sum;
  return row.a;
}

int64_t weight_bound(const TargetInfo& t, DType rows, DType weights, int64_t most) {
  if (!fragment_of(rows, weights, sum_of(weights))) return 0;
  const auto fragment = packing_fragment(t, weights, most);
  return fragment ? kir::row_of(*fragment).within : 0;
}

}  // namespace nimble::kernels
