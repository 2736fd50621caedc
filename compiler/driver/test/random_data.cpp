// Steps of a random program over values of data types: lists, options and trees.
#include "compiler/driver/test/random_generator.h"

namespace nimble::driver::testing {

using ir::Atom;
using ir::BlockBuilder;
using ir::Dim;
using ir::Type;
using ir::VarRef;

namespace {

ir::Pattern any() {
  return {};
}
ir::Pattern variable(const VarRef& v) {
  ir::Pattern p;
  p.kind = ir::Pattern::Kind::kVar;
  p.var = v;
  return p;
}
ir::Pattern constructor(const char* name, std::vector<ir::Pattern> fields) {
  ir::Pattern p;
  p.kind = ir::Pattern::Kind::kConstructor;
  p.constructor = name;
  p.fields = std::move(fields);
  return p;
}

}  // namespace

void RandomGenerator::declare_data() {
  const Type a = ir::variable_type("A");
  module_.data_types.push_back(
      {"List", {"A"}, {{"Nil", {}, {}}, {"Cons", {a, ir::data_type("List", {a})}, {}}}, {}});
  module_.data_types.push_back({"Option", {"A"}, {{"None", {}, {}}, {"Some", {a}, {}}}, {}});
  const Type tree = ir::data_type("Tree");
  module_.data_types.push_back(
      {"Tree", {}, {{"Leaf", {tensor({Dim::any(), 4})}, {}}, {"Node", {tree, tree}, {}}}, {}});
}

Atom RandomGenerator::construct(const char* constructor, std::vector<Atom> fields, const Type& type,
                                BlockBuilder& out, Scope& scope) {
  VarRef v = ir::make_var(name("d"), type);
  out.append({v, ir::make_construct(constructor, std::move(fields))});
  rough_.insert(v);
  scope.push_back(v);
  return v;
}

Atom RandomGenerator::data_value(const Type& type, BlockBuilder& out, Scope& scope, int depth) {
  if (type->name == "Tree") {
    if (depth > 3 || chance(40)) {
      const VarRef* leaf = find(scope, [](const VarRef& v) {
        return is_tensor(v->type) && v->type->dtype == DType::kF32 && v->type->dims.size() == 2 &&
               v->type->dims[1].is_constant(4);
      });
      const Atom x = leaf ? Atom(*leaf) : value_of(tensor({1 + pick(3), 4}), out, scope, depth);
      return construct("Leaf", {x}, type, out, scope);
    }
    const Atom left = data_value(type, out, scope, depth + 1);
    const Atom right = data_value(type, out, scope, depth + 1);
    return construct("Node", {left, right}, type, out, scope);
  }
  const Type& element = type->elements[0];
  if (type->name == "Option") {
    if (chance(30)) return construct("None", {}, type, out, scope);
    return construct("Some", {value_of(element, out, scope, depth)}, type, out, scope);
  }
  Atom list = construct("Nil", {}, type, out, scope);
  for (int i = pick(4); i > 0; --i)
    list = construct("Cons", {value_of(element, out, scope, depth), list}, type, out, scope);
  return list;
}

VarRef RandomGenerator::bound(const Type& type, Scope& scope) {
  VarRef v = ir::make_var(name("b"), type);
  rough_.insert(v);
  scope.push_back(v);
  return v;
}

bool RandomGenerator::data_step(BlockBuilder& out, Scope& scope, int depth) {
  switch (pick(4)) {
    case 0: {  // an option, taken apart
      const Type element = some_type(scope), result = some_type(scope);
      const Atom o = value_of(ir::data_type("Option", {element}), out, scope, depth);
      Scope some = scope;
      const VarRef x = bound(element, some);
      std::vector<ir::MatchCase> cases = {
          {constructor("Some", {variable(x)}), block(some, result, depth, pick(3))},
          {chance(50) ? any() : constructor("None", {}), block(scope, result, depth, pick(2))}};
      bind(out, scope, ir::make_match(o, std::move(cases)), result, true);
      return true;
    }
    case 1: {  // a list by nested patterns
      const Type element = some_type(scope), result = some_type(scope);
      const Type list = ir::data_type("List", {element});
      const Atom l = value_of(list, out, scope, depth);
      Scope one = scope, two = scope;
      const VarRef x = bound(element, one), y = bound(element, two), z = bound(element, two);
      std::vector<ir::MatchCase> cases = {
          {constructor("Cons", {variable(x), constructor("Nil", {})}),
           block(one, result, depth, pick(2))},
          {constructor("Cons", {variable(y), constructor("Cons", {variable(z), any()})}),
           block(two, result, depth, pick(3))},
          {any(), block(scope, result, depth, pick(2))}};
      bind(out, scope, ir::make_match(l, std::move(cases)), result, true);
      return true;
    }
    case 2:
      return fold_step(out, scope, depth);
    default:
      return tree_step(out, scope, depth);
  }
}

bool RandomGenerator::fold_step(BlockBuilder& out, Scope& scope, int depth) {
  const Type element = tensor({1 + pick(3), 4});
  const Type list = ir::data_type("List", {element});
  const Type result = tensor({4});
  const Atom l = value_of(list, out, scope, depth);
  const std::string f = name("fold");
  const VarRef p = ir::make_var(name("l"), list), acc = ir::make_var(name("acc"), result);
  rough_.insert(acc);
  Scope cons = {acc};
  const VarRef head = bound(element, cons);
  const VarRef tail = ir::make_var(name("tail"), list);
  BlockBuilder again;
  const ExtentsOf inside(*this, {});
  for (int s = pick(3); s >= 0; --s) step(again, cons, depth + 1);
  const VarRef sum =
      again.call("mean", {head}, {{"axes", std::vector<int64_t>{0}}, {"keepdims", false}}, "mean");
  const VarRef next = again.call("add", {sum, value_of(result, again, cons, depth)}, {}, "next");
  const VarRef rest = again.bind(ir::make_call_function(Atom::of_global(f), {tail, next}), "rest");
  BlockBuilder nil, body;
  std::vector<ir::MatchCase> cases = {
      {constructor("Cons", {variable(head), variable(tail)}), again.finish(rest)},
      {constructor("Nil", {}), nil.finish(acc)}};
  const VarRef r = body.bind(ir::make_match(p, std::move(cases)), "r");
  module_.set(f, ir::make_function_of({p, acc}, body.finish(r), result));
  bind(out, scope,
       ir::make_call_function(Atom::of_global(f), {l, value_of(result, out, scope, depth)}), result,
       true);
  return true;
}

bool RandomGenerator::tree_step(BlockBuilder& out, Scope& scope, int depth) {
  const Type tree = ir::data_type("Tree"), result = tensor({1, 4});
  const Atom t = value_of(tree, out, scope, depth);
  const std::string f = name("walk");
  const VarRef p = ir::make_var(name("t"), tree);
  const VarRef x = ir::make_var(name("leaf"), tensor({Dim::any(), 4}));
  const VarRef left = ir::make_var(name("left"), tree), right = ir::make_var(name("right"), tree);
  BlockBuilder leaf, node, body;
  const VarRef mean =
      leaf.call("reduce_max", {x}, {{"axes", std::vector<int64_t>{0}}, {"keepdims", true}}, "top");
  const VarRef a = node.bind(ir::make_call_function(Atom::of_global(f), {left}), "a");
  const VarRef b = node.bind(ir::make_call_function(Atom::of_global(f), {right}), "b");
  const VarRef sum = node.call("sub", {a, b}, {}, "difference");
  sum->type = result;
  rough_.insert(sum);
  Scope visible = {sum};
  const ExtentsOf inside(*this, {});
  for (int s = pick(3); s > 0; --s) step(node, visible, depth + 1);
  const Atom combined = value_of(result, node, visible, depth);
  std::vector<ir::MatchCase> cases = {
      {constructor("Leaf", {variable(x)}), leaf.finish(mean)},
      {constructor("Node", {variable(left), variable(right)}), node.finish(combined)}};
  const VarRef r = body.bind(ir::make_match(p, std::move(cases)), "r");
  module_.set(f, ir::make_function_of({p}, body.finish(r), result));
  bind(out, scope, ir::make_call_function(Atom::of_global(f), {t}), result, true);
  return true;
}

}  // namespace nimble::driver::testing
