// Orders of a tensor's axes, and what operators make of them.
//
// A tensor in the order p is transpose(x, p): its axis i is axis p[i] of x, the tensor as the
// program has it.
#pragma once

#include <optional>
#include <vector>

#include "compiler/ir/dim.h"
#include "compiler/ir/type.h"

namespace nimble::passes {

using Axes = std::vector<int64_t>;

Axes natural_order(size_t rank);  // 0, 1, …
bool is_natural(const Axes& order);
// Where each axis of x stands: p[inverse(p)[a]] = a.
Axes inverse(const Axes& order);
std::vector<ir::Dim> permuted(const std::vector<ir::Dim>& dims, const Axes& order);
ir::Type permuted(const ir::Type& tensor, const Axes& order);

// Channels, axis 1, behind all others: (0, 2, 3, 1).
Axes channels_last_order(size_t rank);
// Whether the order leaves every element of a tensor of these dims where it is, as only axes of
// extent 1 pass others.
bool keeps_elements(const std::vector<ir::Dim>& dims, const Axes& order);

// Of the result of an operator that drops axes.
Axes without_axes(const Axes& order, const Axes& dropped);
// Of the result, of `rank` axes, of an operator that adds `added`: `order` names the others by
// their numbers there. Where that fits, the channels are last again.
Axes with_axes(const Axes& order, const Axes& added, size_t rank);

// A reshape as reshapes of neighbouring axes: those that `from` names become those that `to`
// names, in number one to one, one to several, several to one or several. Axes of extent 1 that
// come or go are groups of their own.
struct AxisGroup {
  Axes from, to;
};
// Nothing where it cannot be told.
std::optional<std::vector<AxisGroup>> groups_of_reshape(const std::vector<ir::Dim>& from,
                                                        const std::vector<ir::Dim>& to,
                                                        const ir::DimContext& facts);
// The order nearest to `order` in which the axes of each group stand side by side as in x: what a
// reshape can work on.
Axes gathered(const Axes& order, const std::vector<AxisGroup>& groups);
// That of the reshape's result, of `rank` axes; `order` is gathered.
Axes reshaped(const Axes& order, const std::vector<AxisGroup>& groups, size_t rank);

}  // namespace nimble::passes
