// How random programs are made (NNSmith, ASPLOS 2023, and Csmith, PLDI 2011, are the models).
//
// A program grows forwards: every step binds one more expression over what is visible. For an
// operator the row of Ops.def is all that is known: operands are drawn from the scope (or become
// new inputs of main), attributes by their kinds, and the operator's own type relation says
// whether they fit and what results. So a new row of the table is tested without a word here.
// Structure (if, loops, calls, closures, constructors, match) is made on purpose: a type is chosen
// first, then every branch is filled with steps and ends in a value of that type.
//
// Two kernels of one formula differ in the last bits, so a program must not turn such a
// difference into another branch or another index. A value is *rough* if rounding may have touched
// it; movements of exact values stay exact. Comparisons, casts to integers, rounding and indices
// take exact operands only. Functions with poles get their operand squared and shifted. What
// remains ill-conditioned is found by running the reference on perturbed inputs (differential.cpp).
#include "compiler/driver/test/random_program.h"

#include "compiler/driver/test/random_generator.h"
#include "vm/base/error.h"

namespace nimble::driver::testing {

using ir::Atom;
using ir::BlockBuilder;
using ir::BlockRef;
using ir::Dim;
using ir::Type;
using ir::TypeKind;
using ir::VarRef;

RandomGenerator::RandomGenerator(uint64_t seed, const RandomProgramOptions& options)
    : options_(options), random_(seed) {
  for (const ir::OpInfo& op : ir::all_ops())
    if (!is_internal(op) && (options.data_dependent || !needs_values(op))) ops_.push_back(&op);
}

ir::Module RandomGenerator::make() {
  if (options_.data_types) declare_data();
  Scope scope;
  const Dim n = Dim::symbol("n"), m = Dim::symbol("m");
  for (const Type& t : {tensor({n, m}), tensor({n, 1}), tensor({m}), tensor({m, 6})})
    scope.push_back(new_input(t));
  scope.push_back(new_input(i64_scalar()));
  // Extents that the caller must compute.
  const std::vector<std::vector<Dim>> expressions = {
      {2 * n, m}, {n + 1}, {n * m}, {ir::floordiv(m, 2), n}, {n, 2 * m + 1}, {3 * n, 2 * n}};
  for (int i = pick(3); i > 0; --i) scope.push_back(new_input(tensor(one_of(expressions))));
  BlockBuilder body;
  const int steps = options_.steps / 2 + pick(options_.steps);
  for (int i = 0; i < steps; ++i) step(body, scope, 0);
  std::vector<Atom> results;
  for (size_t i = scope.size(); i-- > 0 && results.size() < 4;)
    if (is_tensor(scope[i]->type) && (results.empty() || pick(2))) results.push_back(scope[i]);
  const VarRef result = body.bind(ir::make_tuple(std::move(results)), "results");
  module_.set("main", ir::make_function_of(inputs_, body.finish(result)));
  for (const auto& [name, f] : module_.functions) forget_types(*f->body, names_extents_);
  return std::move(module_);
}

VarRef RandomGenerator::bind(BlockBuilder& out, Scope& scope, ir::ExprRef e, Type type, bool rough,
                             const char* hint) {
  VarRef v = ir::make_var(name(hint), std::move(type));
  out.append({v, std::move(e)});
  if (rough) rough_.insert(v);
  alive_.push_back(v);
  scope.push_back(v);
  return v;
}

VarRef RandomGenerator::new_input(const Type& type) {
  inputs_.push_back(ir::make_var(fmt::format("p{}", inputs_.size()), type));
  return inputs_.back();
}

void RandomGenerator::step(BlockBuilder& out, Scope& scope, int depth) {
  const int dice = pick(100);
  bool done = false;
  if (depth < 3) {
    if (options_.control && dice < 7) done = if_step(out, scope, depth);
    if (options_.control && dice >= 7 && dice < 13) done = loop_step(out, scope, depth);
    if (options_.control && dice >= 13 && dice < 18) done = call_step(out, scope, depth);
    if (options_.closures && dice >= 18 && dice < 24) done = closure_step(out, scope, depth);
    if (options_.data_types && dice >= 24 && dice < 32) done = data_step(out, scope, depth);
  }
  for (int tries = 0; tries < 60 && !done; ++tries) done = operator_step(out, scope, depth == 0);
}

BlockRef RandomGenerator::block(Scope scope, const Type& type, int depth, int steps) {
  BlockBuilder out;
  for (int i = 0; i < steps; ++i) step(out, scope, depth + 1);
  return out.finish(value_of(type, out, scope, depth + 1));
}

Atom RandomGenerator::value_of(const Type& type, BlockBuilder& out, Scope& scope, int depth) {
  const VarRef* found = find(scope, [&](const VarRef& v) { return ir::equal(v->type, type); });
  if (found && chance(85)) return *found;
  switch (type->kind) {
    case TypeKind::kTuple: {
      std::vector<Atom> fields;
      for (const Type& e : type->elements) fields.push_back(value_of(e, out, scope, depth));
      return bind(out, scope, ir::make_tuple(std::move(fields)), type, true);
    }
    case TypeKind::kData:
      return data_value(type, out, scope, depth);
    case TypeKind::kTensor: {
      if (type->dtype == DType::kI64 && type->dims.empty())
        return Atom::of(ir::Tensor::scalar_i64(pick(4)));
      std::vector<Dim> dims = type->dims;
      for (Dim& d : dims)
        if (d.is_any()) d = Dim(1 + pick(3));
      const double value = is_float(type->dtype) ? 0.25 * (pick(9) - 4) : pick(2);
      return bind(
          out, scope,
          ir::make_call("full", {}, {{"shape", dims}, {"dtype", type->dtype}, {"value", value}}),
          tensor(dims, type->dtype), false);
    }
    default:
      NIMBLE_UNREACHABLE("a value of {}", ir::str(type));
  }
}

Type RandomGenerator::some_type(const Scope& scope) {
  for (int tries = 0; tries < 8; ++tries) {
    const VarRef& v = recent(scope);
    if (!is_tensor(v->type) || v->type->dims.size() > 4 || !is_stated(v->type)) continue;
    if (chance(20)) return ir::tuple_type({v->type, tensor({2})});
    return v->type;
  }
  return tensor({3});
}

Atom RandomGenerator::condition(BlockBuilder& out, Scope& scope) {
  static const std::vector<std::string> kCompare = {"less", "equal", "greater_equal"};
  return bind(out, scope,
              ir::make_call(one_of(kCompare), {exact_scalar(out, scope), exact_scalar(out, scope)}),
              ir::tensor_type({}, DType::kBool), false, "c");
}

Atom RandomGenerator::exact_scalar(BlockBuilder&, Scope& scope) {
  const VarRef* v = find(
      scope, [&](const VarRef& x) { return ir::equal(x->type, i64_scalar()) && !is_rough(x); });
  if (v && chance(60)) return *v;
  return Atom::of(ir::Tensor::scalar_i64(pick(3)));
}

ir::Module random_module(uint64_t seed, const RandomProgramOptions& options) {
  return RandomGenerator(seed, options).make();
}

}  // namespace nimble::driver::testing
