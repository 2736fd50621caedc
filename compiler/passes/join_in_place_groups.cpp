#include "compiler/passes/join_in_place_groups.h"

#include "compiler/ir/builder.h"
#include "compiler/ir/op.h"
#include "compiler/passes/support/kernel_call.h"

namespace nimble::passes {

using ir::Atom;
using ir::Binding;
using ir::Dim;
using ir::Expr;
using ir::Type;
using ir::Var;
using ir::VarRef;

namespace {

constexpr size_t kNowhere = SIZE_MAX;

}  // namespace

Type with_extent(const Type& t, size_t axis, const Dim& extent) {
  std::vector<Dim> dims = t->dims;
  dims[axis] = extent;
  return ir::tensor_type(std::move(dims), t->dtype);
}

Dim product(const std::vector<Dim>& dims, size_t begin, size_t end) {
  Dim p = 1;
  for (size_t i = begin; i < end; ++i) p = p * dims[i];
  return p;
}

ir::FunctionRef with_pitched_result(const Expr& call, const Var* v, const Whole& whole) {
  const Dim& extent = whole.type->dims[whole.axis];
  const ir::Function& group = *call.primitive;
  size_t which = kNowhere;
  for (size_t i = inputs_of(call); i < call.args.size(); ++i)
    if (is_var(call.args[i], v)) which = i - inputs_of(call);
  ir::BlockBuilder body;
  const Expr* tuple = nullptr;
  for (const Binding& b : group.body->bindings) {
    const bool last = is_var(group.body->result, b.var.get());
    if (last && b.value->kind == ir::ExprKind::kTuple)
      tuple = b.value.get();
    else
      body.append(b);
  }
  std::vector<Atom> results = tuple ? tuple->args : std::vector<Atom>{group.body->result};
  if (which >= results.size() || !results[which].is_var()) return nullptr;
  const VarRef value = results[which].var;
  if (value->type->kind != ir::TypeKind::kTensor || value->type->dims != v->type->dims)
    return nullptr;
  for (const VarRef& p : group.parameters)
    if (p == value) return nullptr;
  const Expr* made = nullptr;
  for (const Binding& b : group.body->bindings)
    if (b.var == value) made = b.value.get();
  if (!made || ir::traits_of(*made).in_out) return nullptr;
  const VarRef part =
      body.call("pitched", {value},
                {{"axis", static_cast<int64_t>(whole.axis)}, {"extent", extent}}, value->name);
  part->type = with_extent(value->type, whole.axis, extent);
  if (!tuple)
    return ir::make_function_of(group.parameters, body.finish(part), part->type, group.attrs,
                                group.location);
  results[which] = part;
  std::vector<Type> types;
  for (const Atom& a : results) types.push_back(ir::type_of(a));
  const VarRef all = body.bind(ir::make_tuple(std::move(results)), "results");
  all->type = ir::tuple_type(std::move(types));
  return ir::make_function_of(group.parameters, body.finish(all), all->type, group.attrs,
                              group.location);
}

ir::FunctionRef with_pitched_operand(const Expr& call, const Var* v, const Whole& whole) {
  const size_t axis = whole.axis;
  const ir::Function& group = *call.primitive;
  std::vector<VarRef> parameters = group.parameters;
  ir::BlockBuilder body;
  for (size_t i = 0; i < inputs_of(call); ++i) {
    if (!is_var(call.args[i], v)) continue;
    if (i >= parameters.size() || parameters[i]->type->dims != v->type->dims) return nullptr;
    const VarRef own = parameters[i];
    if (is_var(group.body->result, own.get())) return nullptr;
    parameters[i] = ir::make_var(own->name, with_extent(own->type, axis, whole.type->dims[axis]),
                                 own->location);
    const auto slice = ir::make_call("slice", {parameters[i]},
                                     {{"axes", std::vector<int64_t>{static_cast<int64_t>(axis)}},
                                      {"starts", std::vector<Dim>{0}},
                                      {"ends", std::vector<Dim>{own->type->dims[axis]}}},
                                     own->location);
    body.append({own, slice});
  }
  for (const Binding& b : group.body->bindings) body.append(b);
  return ir::make_function_of(std::move(parameters), body.finish(group.body->result),
                              group.result_type, group.attrs, group.location);
}

ir::FunctionRef pitched_copy(const Type& type, const Whole& whole, int64_t device) {
  const VarRef p = ir::make_var("p0", type);
  ir::BlockBuilder body;
  VarRef y = body.call("cast", {p}, {{"dtype", type->dtype}});
  y->type = type;
  if (!whole.contiguous()) {
    const Dim& extent = whole.type->dims[whole.axis];
    const VarRef part =
        body.call("pitched", {y}, {{"axis", static_cast<int64_t>(whole.axis)}, {"extent", extent}});
    part->type = with_extent(type, whole.axis, extent);
    y = part;
  }
  ir::Attrs attrs = {{"primitive", true}};
  if (device != 0) attrs["device"] = device;
  return ir::make_function_of({p}, body.finish(y), y->type, attrs);
}

}  // namespace nimble::passes
