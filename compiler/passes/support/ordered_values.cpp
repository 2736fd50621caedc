#include "compiler/passes/support/ordered_values.h"

#include <algorithm>

namespace nimble::passes {
namespace {

using ir::Atom;
using ir::BlockBuilder;
using ir::Type;
using Dims = std::vector<ir::Dim>;

Atom call(const char* op, const Atom& x, ir::Attrs attrs, Type type, BlockBuilder& out) {
  const bool named = x.is_var();
  ir::VarRef v = out.call(op, {x}, std::move(attrs), named ? x.var->name : "turned",
                          named ? x.var->location : ir::Location{});
  v->type = std::move(type);
  return v;
}

Atom reshaped_to(const Atom& x, const Dims& dims, BlockBuilder& out) {
  return call("reshape", x, {{"shape", dims}, {"allow_zero", true}},
              ir::tensor_type(dims, ir::type_of(x)->dtype), out);
}

// `a`, a tensor of type `type` in the order `from`, in the order `to`.
Atom transposed(const Atom& a, const Type& type, const Axes& from, const Axes& to,
                BlockBuilder& out) {
  Axes axes;
  const Axes place = inverse(from);
  for (int64_t axis : to) axes.push_back(place[static_cast<size_t>(axis)]);
  const Type result = permuted(type, to);
  if (keeps_elements(permuted(type->dims, from), axes)) return reshaped_to(a, result->dims, out);
  return call("transpose", a, {{"axes", axes}}, result, out);
}

}  // namespace

const OrderedValues::Orders* OrderedValues::find(const Atom& a) const {
  const auto it = a.is_var() ? values_.find(a.var.get()) : values_.end();
  return it == values_.end() ? nullptr : &it->second;
}

bool OrderedValues::is_turned(const Atom& a) const {
  const Orders* orders = find(a);
  return orders && !is_natural(orders->front().first);
}

const Axes& OrderedValues::order_of(const Atom& turned) const {
  return find(turned)->front().first;
}

const Atom& OrderedValues::first_of(const Atom& turned) const {
  return find(turned)->front().second;
}

void OrderedValues::set(const ir::VarRef& v, const Axes& order, Atom a) {
  values_[v.get()].emplace_back(order, std::move(a));
}

Atom OrderedValues::plain(const Atom& a, BlockBuilder& out) {
  const Orders* orders = find(a);
  return orders ? in_order(a, natural_order(orders->front().first.size()), out) : a;
}

Atom OrderedValues::in_order(const Atom& a, const Axes& order, BlockBuilder& out) {
  if (const Orders* orders = find(a)) {
    for (const auto& [other, atom] : *orders)
      if (other == order) return atom;
    const auto& [from, first] = orders->front();
    const Atom made = transposed(first, ir::type_of(a), from, order, out);
    set(a.var, order, made);
    return made;
  }
  const Axes from = natural_order(order.size());
  if (order == from) return a;
  const Atom made = transposed(a, ir::type_of(a), from, order, out);
  if (a.is_var()) {
    set(a.var, from, a);
    set(a.var, order, made);
  }
  return made;
}

Atom OrderedValues::broadcast_in(const Atom& a, const Axes& order, BlockBuilder& out) {
  Dims dims = ir::type_of(a)->dims;
  const bool is_one =
      std::all_of(dims.begin(), dims.end(), [](const ir::Dim& d) { return d.is_constant(1); });
  if (is_one && !is_turned(a)) return plain(a, out);
  if (dims.size() == order.size() && a.is_var()) return in_order(a, order, out);
  // The axes that it lacks are 1. Of those that are left in front none is needed.
  Atom x = plain(a, out);
  const size_t missing = order.size() - dims.size();
  dims.insert(dims.begin(), missing, ir::Dim(1));
  if (!keeps_elements(dims, order)) {
    if (missing > 0) x = reshaped_to(x, dims, out);
    return transposed(x, ir::type_of(x), natural_order(order.size()), order, out);
  }
  dims = permuted(dims, order);
  while (!dims.empty() && dims.front().is_constant(1)) dims.erase(dims.begin());
  return dims == ir::type_of(x)->dims ? x : reshaped_to(x, dims, out);
}

}  // namespace nimble::passes
