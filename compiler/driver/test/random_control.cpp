// Steps of a random program that branch, loop and call.
#include "compiler/driver/test/random_generator.h"

namespace nimble::driver::testing {

using ir::Atom;
using ir::BlockBuilder;
using ir::BlockRef;
using ir::Dim;
using ir::Type;
using ir::VarRef;

bool RandomGenerator::if_step(BlockBuilder& out, Scope& scope, int depth) {
  const Type type = some_type(scope);
  const Atom c = condition(out, scope);
  BlockRef yes = block(scope, type, depth, 1 + pick(3));
  BlockRef no = block(scope, type, depth, pick(3));
  bind(out, scope, ir::make_if(c, std::move(yes), std::move(no)), type, true);
  return true;
}

std::vector<VarRef> RandomGenerator::choose_arguments(const Scope& scope, int most) {
  for (int tries = 0; tries < 10; ++tries) {
    std::vector<VarRef> chosen;
    std::vector<Type> types;
    for (int i = 1 + pick(most); i > 0; --i) {
      const VarRef& v = recent(scope);
      if (!is_tensor(v->type) || v->type->dims.size() > 4 || !is_stated(v->type)) continue;
      chosen.push_back(v);
      types.push_back(v->type);
    }
    if (!chosen.empty() && closed(types)) return chosen;
  }
  return {};
}

RandomGenerator::Scope RandomGenerator::parameters_for(const std::vector<VarRef>& arguments) {
  Scope out;
  for (const VarRef& a : arguments) {
    out.push_back(ir::make_var(name("a"), a->type));
    if (is_rough(a)) rough_.insert(out.back());
  }
  return out;
}

bool RandomGenerator::call_step(BlockBuilder& out, Scope& scope, int depth) {
  const std::vector<VarRef> arguments = choose_arguments(scope, 3);
  if (arguments.empty()) return false;
  Scope parameters = parameters_for(arguments);
  const Type result = some_type(parameters);
  const std::string f = name("f");
  const ExtentsOf inside(*this, parameters);
  BlockRef body = block(parameters, result, depth, 2 + pick(3));
  module_.set(f, ir::make_function_of(parameters, std::move(body), result));
  std::vector<Atom> args(arguments.begin(), arguments.end());
  bind(out, scope, ir::make_call_function(Atom::of_global(f), std::move(args)), result, true);
  return true;
}

bool RandomGenerator::loop_step(BlockBuilder& out, Scope& scope, int depth) {
  const std::vector<VarRef> arguments = choose_arguments(scope, 3);
  if (arguments.empty()) return false;
  const Type type = arguments[0]->type;
  const bool grows = !type->dims.empty() && chance(25);
  Scope parameters = parameters_for(arguments);
  const Scope invariant(parameters.begin() + 1, parameters.end());
  Type open = type;
  if (grows) {
    std::vector<Dim> dims = type->dims;
    dims[0] = Dim::any();
    open = tensor(dims, type->dtype);
    // The other parameters must bind what its first extent no longer does.
    std::vector<Type> types = {open};
    for (const VarRef& p : invariant) types.push_back(p->type);
    if (!closed(types)) return false;
  }
  const VarRef acc = ir::make_var(name("acc"), open);
  rough_.insert(acc);
  const VarRef i = ir::make_var(name("i"), i64_scalar());
  const VarRef limit = ir::make_var(name("limit"), i64_scalar());
  const std::string f = name("loop");

  BlockBuilder head, again;
  Scope visible = invariant;
  visible.push_back(i);
  if (!grows) visible.push_back(acc);
  const VarRef more = head.call("less", {i, limit}, {}, "more");
  Scope bound = invariant;
  bound.push_back(acc);
  const ExtentsOf inside(*this, bound);
  for (int s = pick(3); s >= 0; --s) step(again, visible, depth + 1);
  Atom next;
  if (grows) {
    std::vector<Dim> row = type->dims;
    row[0] = 1;
    next = again.call("concat", {acc, value_of(tensor(row, type->dtype), again, visible, depth)},
                      {{"axis", int64_t{0}}}, "grown");
  } else {
    next = value_of(type, again, visible, depth);
  }
  const VarRef following = again.call("add", {i, Atom::of(ir::Tensor::scalar_i64(1))}, {}, "j");
  std::vector<Atom> args = {following, limit, next};
  args.insert(args.end(), invariant.begin(), invariant.end());
  const VarRef rest = again.bind(ir::make_call_function(Atom::of_global(f), args), "rest");
  BlockBuilder stop;
  const VarRef r = head.bind(ir::make_if(more, again.finish(rest), stop.finish(acc)), "r");
  std::vector<VarRef> all = {i, limit, acc};
  all.insert(all.end(), invariant.begin(), invariant.end());
  module_.set(f, ir::make_function_of(all, head.finish(r), open));

  args = {Atom::of(ir::Tensor::scalar_i64(0)), Atom::of(ir::Tensor::scalar_i64(pick(4))),
          arguments[0]};
  args.insert(args.end(), arguments.begin() + 1, arguments.end());
  Type result = type;
  if (grows) {
    std::vector<Dim> dims = type->dims;
    dims[0] = born_extent();
    result = tensor(dims, type->dtype);
  }
  bind(out, scope, ir::make_call_function(Atom::of_global(f), std::move(args)), result, true);
  return true;
}

bool RandomGenerator::closure_step(BlockBuilder& out, Scope& scope, int depth) {
  const VarRef* argument = find(scope, [](const VarRef& v) {
    return is_tensor(v->type) && v->type->dims.size() < 5 && is_stated(v->type);
  });
  if (!argument) return false;
  const Type from = (*argument)->type, to = some_type(scope);
  const VarRef p = ir::make_var(name("x"), from);
  if (is_rough(*argument)) rough_.insert(p);
  Scope inside = scope;
  inside.push_back(p);
  BlockRef body = block(inside, to, depth, 1 + pick(3));
  const Type type = ir::function_type({from}, to);
  Scope hidden;  // function values are not operands
  const VarRef f =
      bind(out, hidden, ir::make_function(ir::make_function_of({p}, body, to)), type, true, "g");
  const VarRef called =
      bind(out, scope, ir::make_call_function(Atom(f), {Atom(*argument)}), to, true);
  if (chance(30) && ir::equal(from, to) && is_tensor(to))
    bind(out, scope, ir::make_call_function(Atom(f), {Atom(called)}), to, true);
  return true;
}

}  // namespace nimble::driver::testing
