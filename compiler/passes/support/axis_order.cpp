#include "compiler/passes/support/axis_order.h"

#include <algorithm>
#include <numeric>

namespace nimble::passes {
namespace {

using Dims = std::vector<ir::Dim>;

bool contains(const Axes& axes, int64_t axis) {
  return std::find(axes.begin(), axes.end(), axis) != axes.end();
}

ir::Dim product(const Dims& dims, size_t begin, size_t count) {
  ir::Dim p = 1;
  for (size_t i = begin; i < begin + count; ++i) p = p * dims[i];
  return p;
}

Axes axes_from(size_t first, size_t count) {
  Axes out(count);
  std::iota(out.begin(), out.end(), static_cast<int64_t>(first));
  return out;
}

// The group of each axis of x.
std::vector<size_t> group_of_each(const std::vector<AxisGroup>& groups, size_t rank) {
  std::vector<size_t> out(rank, 0);
  for (size_t g = 0; g < groups.size(); ++g)
    for (int64_t axis : groups[g].from) out[static_cast<size_t>(axis)] = g;
  return out;
}

}  // namespace

Axes natural_order(size_t rank) {
  return axes_from(0, rank);
}

bool is_natural(const Axes& order) {
  return order == natural_order(order.size());
}

Axes inverse(const Axes& order) {
  Axes out(order.size());
  for (size_t i = 0; i < order.size(); ++i)
    out[static_cast<size_t>(order[i])] = static_cast<int64_t>(i);
  return out;
}

Dims permuted(const Dims& dims, const Axes& order) {
  Dims out;
  out.reserve(order.size());
  for (int64_t axis : order) out.push_back(dims[static_cast<size_t>(axis)]);
  return out;
}

ir::Type permuted(const ir::Type& tensor, const Axes& order) {
  return ir::tensor_type(permuted(tensor->dims, order), tensor->dtype);
}

Axes channels_last_order(size_t rank) {
  Axes out = natural_order(rank);
  if (rank > 2) std::rotate(out.begin() + 1, out.begin() + 2, out.end());
  return out;
}

bool keeps_elements(const Dims& dims, const Axes& order) {
  int64_t last = -1;
  for (int64_t axis : order) {
    if (dims[static_cast<size_t>(axis)].is_constant(1)) continue;
    if (axis < last) return false;
    last = axis;
  }
  return true;
}

Axes without_axes(const Axes& order, const Axes& dropped) {
  Axes out;
  for (int64_t axis : order) {
    if (contains(dropped, axis)) continue;
    out.push_back(
        axis - std::count_if(dropped.begin(), dropped.end(), [&](int64_t d) { return d < axis; }));
  }
  return out;
}

Axes with_axes(const Axes& order, const Axes& added, size_t rank) {
  const Axes wanted = channels_last_order(rank);
  Axes others;
  for (int64_t axis : wanted)
    if (!contains(added, axis)) others.push_back(axis);
  if (others == order) return wanted;
  // Each behind the axis that it follows in x.
  Axes out = order, ascending = added;
  std::sort(ascending.begin(), ascending.end());
  for (int64_t axis : ascending) {
    const auto before = std::find(out.begin(), out.end(), axis - 1);
    out.insert(axis == 0 || before == out.end() ? out.begin() : before + 1, axis);
  }
  return out;
}

std::optional<std::vector<AxisGroup>> groups_of_reshape(const Dims& from, const Dims& to,
                                                        const ir::DimContext& facts) {
  std::vector<AxisGroup> groups;
  size_t i = 0, j = 0;
  const auto take = [&](size_t axes, size_t becoming) {
    groups.push_back({axes_from(i, axes), axes_from(j, becoming)});
    i += axes;
    j += becoming;
  };
  const auto is_reshape = [&](size_t axes, size_t becoming) {
    return i + axes <= from.size() && j + becoming <= to.size() &&
           facts.equal(product(from, i, axes), product(to, j, becoming)) == ir::Proof::kYes;
  };
  // The shortest runs of equal extents.
  const auto take_runs = [&] {
    const size_t most = from.size() - i + to.size() - j;
    for (size_t both = 3; both <= most; ++both)
      for (size_t axes = 1; axes < both; ++axes)
        if (is_reshape(axes, both - axes)) {
          take(axes, both - axes);
          return true;
        }
    return false;
  };
  while (i < from.size() || j < to.size()) {
    if (is_reshape(1, 1))
      take(1, 1);
    else if (i < from.size() && from[i].is_constant(1))
      take(1, 0);
    else if (j < to.size() && to[j].is_constant(1))
      take(0, 1);
    else if (!take_runs())
      return std::nullopt;
  }
  return groups;
}

Axes gathered(const Axes& order, const std::vector<AxisGroup>& groups) {
  const std::vector<size_t> group = group_of_each(groups, order.size());
  std::vector<size_t> met(groups.size(), 0);
  Axes out;
  for (int64_t axis : order) {
    const size_t g = group[static_cast<size_t>(axis)];
    if (++met[g] == groups[g].from.size())
      out.insert(out.end(), groups[g].from.begin(), groups[g].from.end());
  }
  return out;
}

Axes reshaped(const Axes& order, const std::vector<AxisGroup>& groups, size_t rank) {
  const std::vector<size_t> group = group_of_each(groups, order.size());
  Axes kept, added;
  for (int64_t axis : order) {
    const AxisGroup& g = groups[group[static_cast<size_t>(axis)]];
    if (g.from.front() == axis) kept.insert(kept.end(), g.to.begin(), g.to.end());
  }
  for (const AxisGroup& g : groups)
    if (g.from.empty()) added.insert(added.end(), g.to.begin(), g.to.end());
  return with_axes(kept, added, rank);
}

}  // namespace nimble::passes
