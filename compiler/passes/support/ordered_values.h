// The values of a function in several orders of their axes (axis_order.h), for a pass that gives
// variables another order than the program's.
#pragma once

#include <unordered_map>
#include <utility>
#include <vector>

#include "compiler/ir/builder.h"
#include "compiler/passes/support/axis_order.h"

namespace nimble::passes {

// In which orders each variable's value is there: first of all in the one that it was set in, which
// is the program's where it never was. What is asked for in a further order is transposed once, at
// the end of `out`, or only reshaped where that moves no element, and is there from then on.
class OrderedValues {
 public:
  // Whether the value was set in another order than the program's.
  bool is_turned(const ir::Atom& a) const;
  // Of a turned value: the order that it was set in, and the value so.
  const Axes& order_of(const ir::Atom& turned) const;
  const ir::Atom& first_of(const ir::Atom& turned) const;
  // `a` is the value of `v` in this order.
  void set(const ir::VarRef& v, const Axes& order, ir::Atom a);

  // In the program's order; of any type.
  ir::Atom plain(const ir::Atom& a, ir::BlockBuilder& out);
  // A tensor.
  ir::Atom in_order(const ir::Atom& a, const Axes& order, ir::BlockBuilder& out);
  // A tensor of no more axes, as it is broadcast into a result in this order.
  ir::Atom broadcast_in(const ir::Atom& a, const Axes& order, ir::BlockBuilder& out);

 private:
  using Orders = std::vector<std::pair<Axes, ir::Atom>>;
  const Orders* find(const ir::Atom& a) const;

  std::unordered_map<const ir::Var*, Orders> values_;
};

}  // namespace nimble::passes
