// The layout of tensors that a loop grows.
//
// A key/value cache of exporters is (b, heads, positions, d) and grows along axis 2. In that layout
// every row of every head has to move when a position is added; with the positions first, a
// position is a row behind the others, and append can write it in place (grow_tensors.cpp). So a
// parameter %p of a loop that extends it by concat(%p, …) {axis = a} and passes the result on is
// kept with axis a first:
//
//   fn @loop(%p: (b, h, m, d))                  fn @loop(%s: (m, b, h, d))
//                                                 let %p = transpose(%s) {axes = [1, 2, 0, 3]}
//     let %q = concat(%p, %k) {axis = 2}  ->      let %t = concat(%s, transpose(%k)) {axis = 0}
//                                                 let %q = transpose(%t) {axes = [1, 2, 0, 3]}
//     @loop(%q)                                   @loop(transpose(%q) {axes = [2, 0, 1, 3]})
//
// simplify cancels the pairs: @loop gets %t. Whoever reads %q reads %t by other strides, which the
// templates of products and attention can; where one cannot, the transposition is a copy, as the
// concatenation was.
//
// Only functions whose every call is known are changed: no entry, no function that is a value.
#include <algorithm>
#include <set>

#include "compiler/ir/entry.h"
#include "compiler/passes/analysis/recursion.h"
#include "compiler/passes/passes.h"
#include "compiler/passes/support/axis_order.h"
#include "compiler/passes/support/rewrite.h"

namespace nimble::passes {
namespace {

using ir::Atom;
using ir::Binding;
using ir::BlockBuilder;
using ir::Expr;
using ir::ExprKind;
using ir::Type;

// The permutation of a parameter's axes that puts the one it grows along first, and back.
struct Order {
  Axes forward, backward;
  Order(int64_t axis, size_t rank) : forward{axis} {
    for (int64_t a = 0; a < static_cast<int64_t>(rank); ++a)
      if (a != axis) forward.push_back(a);
    backward = inverse(forward);
  }
};
using Orders = std::map<size_t, Order>;  // by parameter

Atom transpose(const Atom& a, const Axes& axes, const std::string& hint, const ir::Location& at,
               BlockBuilder& out) {
  ir::VarRef v = out.call("transpose", {a}, {{"axes", axes}}, hint, at);
  v->type = permuted(ir::type_of(a), axes);
  return v;
}

// Which parameters of a loop grow along another axis than the first, from call to call of itself.
Orders grown_parameters(const std::string& name, const ir::Function& f) {
  std::map<const ir::Var*, size_t> parameters;
  for (size_t i = 0; i < f.parameters.size(); ++i) parameters[f.parameters[i].get()] = i;
  std::map<const ir::Var*, std::pair<size_t, int64_t>> grown;  // result: parameter, axis
  Orders out;
  visit_bindings(*f.body, [&](const Binding& b) {
    const Expr& e = *b.value;
    if (e.kind == ExprKind::kCall && e.op == "concat" && e.args.size() > 1 && e.args[0].is_var()) {
      const auto p = parameters.find(e.args[0].var.get());
      if (p != parameters.end() && ir::attr<int64_t>(b.value->attrs, "axis") != 0)
        grown[b.var.get()] = {p->second, ir::attr<int64_t>(b.value->attrs, "axis")};
    }
    if (!calls_function(e, name)) return;
    for (const auto& [var, place] : grown) {
      const Atom& passed = e.args[place.first];
      if (passed.is_var() && passed.var.get() == var)
        out.emplace(place.first, Order(place.second, var->type->dims.size()));
    }
  });
  return out;
}

ir::FunctionRef with_order(const ir::FunctionRef& f, const Orders& orders, PassContext& context) {
  auto changed = std::make_shared<ir::Function>(*f);
  std::map<const ir::Var*, std::pair<ir::VarRef, const Order*>> kept;  // %p: %s
  BlockBuilder body;
  for (const auto& [i, order] : orders) {
    const ir::VarRef p = f->parameters[i];
    ir::VarRef s = ir::make_var(p->name, permuted(p->type, order.forward), p->location);
    changed->parameters[i] = s;
    kept[p.get()] = {s, &order};
    auto view = std::make_shared<Expr>(
        *ir::make_call("transpose", {s}, {{"axes", order.backward}}, p->location));
    body.append({p, view});
    context.count("lay-out-states.parameters");
  }
  Rewriter rewriter([&](const Binding& b, BlockBuilder& out) -> std::optional<Atom> {
    const Expr& e = *b.value;
    if (e.kind != ExprKind::kCall || e.op != "concat" || !e.args[0].is_var()) return {};
    const auto it = kept.find(e.args[0].var.get());
    if (it == kept.end()) return {};
    const auto& [s, order] = it->second;
    if (order->forward[0] != ir::attr<int64_t>(b.value->attrs, "axis")) return {};
    std::vector<Atom> parts = {s};
    for (size_t i = 1; i < e.args.size(); ++i)
      parts.push_back(transpose(e.args[i], order->forward, "rows", e.location, out));
    ir::VarRef longer =
        out.call("concat", std::move(parts), {{"axis", int64_t{0}}}, b.var->name, e.location);
    longer->type = permuted(b.var->type, order->forward);
    return transpose(longer, order->backward, b.var->name, e.location, out);
  });
  const ir::BlockRef rest = rewriter.rewrite(f->body);
  for (const Binding& b : rest->bindings) body.append(b);
  changed->body = body.finish(rest->result, rest->location);
  return changed;
}

}  // namespace

ir::Module lay_out_states(const ir::Module& m, PassContext& context) {
  const Recursion recursion(m);
  std::set<std::string> open;  // functions with calls that are not seen
  for (const auto& [name, f] : m.functions) {
    if (ir::is_entry(m, name)) open.insert(name);
    visit_bindings(*f->body, [&](const Binding& b) {
      for (const Atom& a : b.value->args)
        if (a.is_global()) open.insert(a.global);
      if (b.value->kind == ExprKind::kClosure) open.insert(b.value->callee->global);
      for (const ir::BlockRef& nested : ir::blocks_of(*b.value))
        if (nested->result.is_global()) open.insert(nested->result.global);
    });
  }
  std::map<std::string, Orders> orders;
  for (const auto& [name, f] : m.functions) {
    if (open.count(name) || !recursion.calls(name, name)) continue;
    if (Orders found = grown_parameters(name, *f); !found.empty()) orders[name] = std::move(found);
  }
  if (orders.empty()) return m;

  ir::Module out = m;
  for (auto& [name, f] : out.functions) {
    if (const auto it = orders.find(name); it != orders.end())
      f = with_order(f, it->second, context);
    Rewriter calls([&](const Binding& b, BlockBuilder& to) -> std::optional<Atom> {
      const Expr& e = *b.value;
      if (e.kind != ExprKind::kCall || !e.callee || !e.callee->is_global()) return {};
      const auto it = orders.find(e.callee->global);
      if (it == orders.end()) return {};
      auto call = std::make_shared<Expr>(e);
      for (const auto& [i, order] : it->second)
        call->args[i] = transpose(e.args[i], order.forward, "state", e.location, to);
      to.append({b.var, call});
      return Atom(b.var);
    });
    f = calls.rewrite(f);
  }
  return out;
}

}  // namespace nimble::passes
