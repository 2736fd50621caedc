// The values of a function in several orders of their axes (axis_order.h), for a pass that gives
// variables another order than the program's.
#pragma once

#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "compiler/ir/builder.h"
#include "compiler/passes/support/axis_order.h"

namespace nimble::passes {

// In which orders each variable's value is there. One that was never set is there as it is. What
// is asked for in a further order is transposed once, at the end of `out`, or only reshaped where
// that moves no element, and is there from then on.
class OrderedValues {
 public:
  // Whether `a` is there in other orders than the program's only.
  bool is_turned(const ir::Atom& a) const;
  // The first order of a turned value.
  const Axes& order_of(const ir::Atom& turned) const;
  // The value in that order.
  const ir::Atom& first_of(const ir::Atom& turned) const;
  void set(const ir::VarRef& v, const Axes& order, ir::Atom a);

  // In the program's order; of any type.
  ir::Atom plain(const ir::Atom& a, ir::BlockBuilder& out);
  // A tensor.
  ir::Atom in_order(const ir::Atom& a, const Axes& order, ir::BlockBuilder& out);
  // A tensor of no more axes, as it is broadcast into a result in this order.
  ir::Atom broadcast_in(const ir::Atom& a, const Axes& order, ir::BlockBuilder& out);

 private:
  struct Value {
    std::optional<ir::Atom> plain;                   // in the program's order
    std::vector<std::pair<Axes, ir::Atom>> ordered;  // in others
  };

  const Value* find(const ir::Atom& a) const;
  ir::Atom as_it_is(const ir::Atom& a) const;
  std::unordered_map<const ir::Var*, Value> values_;
};

}  // namespace nimble::passes
