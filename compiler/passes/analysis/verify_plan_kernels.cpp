// The verifier of memory plans: who writes which memory, and which columns of it.
#include <fmt/format.h>

#include <algorithm>

#include "compiler/ir/op.h"
#include "compiler/passes/analysis/plan_verifier.h"

namespace nimble::passes {

using ir::Atom;
using ir::Binding;
using ir::Dim;
using ir::Expr;
using ir::ExprKind;
using ir::Proof;
using ir::Var;

namespace {

const Expr* definition_in(const ir::Function& group, const Atom& a) {
  for (const Binding& b : group.body->bindings)
    if (a.is_var() && b.var == a.var) return b.value.get();
  return nullptr;
}

// Elements of a row of `dims` that begins at an axis.
Dim row_of(const std::vector<Dim>& dims, int64_t axis) {
  Dim count = 1;
  for (auto i = static_cast<size_t>(axis); i < dims.size(); ++i) count = count * dims[i];
  return count;
}

}  // namespace

void PlanVerifier::write(const Atom& a) {
  if (!a.is_var()) return fault("P6", "a constant is written");
  const std::set<size_t> objects = objects_of(a);
  if (objects.empty()) return fault("P6", fmt::format("%{} has no memory known", a.var->name));
  for (size_t o : objects) {
    if (objects_[o].storage) continue;
    if (entry_)
      fault("P6", fmt::format("%{} may lie in an argument of the user's", a.var->name));
    else
      written_.insert({function_, objects_[o].parameter});
  }
}

void PlanVerifier::invoke(const Expr& e, State& state) {
  const auto inputs = static_cast<size_t>(ir::attr<int64_t>(e.attrs, "inputs"));
  for (size_t i = 0; i < e.args.size(); ++i) {
    use(e.args[i], state, i >= inputs);
    check_columns(e, i, inputs);
  }
  for (size_t i = inputs; i < e.args.size(); ++i) {
    const Atom& out = e.args[i];
    write(out);
    if (!out.is_var()) continue;
    const Var* w = same(out.var.get());
    for (size_t k = 0; k < e.args.size(); ++k) {
      if (k == i || !e.args[k].is_var()) continue;
      const Var* other = same(e.args[k].var.get());
      if (!names_.count(other) || !overlap(names_[w], names_[other])) continue;
      if (k >= inputs || e.args.size() != inputs + 1 || !same_elements(e, k, other, w))
        fault("P7", fmt::format("%{} is written while %{} is read or written in its place", w->name,
                                other->name));
    }
  }
  for (size_t i = inputs; i < e.args.size(); ++i)
    if (e.args[i].is_var()) {
      const Var* w = same(e.args[i].var.get());
      make_stale(w, fmt::format("%{} was written over it", w->name), state);
      const Name& name = names_[w];
      if (name.part && name.objects.size() == 1)
        state.written[{*name.objects.begin(), name.part->whole}].emplace_back(name.part->first,
                                                                              name.part->last);
    }
}

void PlanVerifier::check_columns(const Expr& e, size_t i, size_t inputs) {
  if (!e.args[i].is_var() || !e.primitive) return;
  const Var* v = same(e.args[i].var.get());
  const auto name = names_.find(v);
  if (name == names_.end() || !name->second.part) return;
  const Part& part = *name->second.part;
  if (i >= inputs ? !writes_columns(*e.primitive, i - inputs, *v, part)
                  : !reads_columns(*e.primitive, i, *v, part))
    fault("P10",
          fmt::format("%{} is {} beyond its columns", v->name, i >= inputs ? "written" : "read"));
}

bool PlanVerifier::is_all_its_own(const Var& v, const Part& part) const {
  return dims_.equal(row_of(v.type->dims, 0), part.count()) == Proof::kYes ||
         dims_.equal(part.pitch, part.count()) == Proof::kYes;
}

bool PlanVerifier::writes_columns(const ir::Function& group, size_t result, const Var& v,
                                  const Part& part) const {
  const Expr* all = definition_in(group, group.body->result);
  Atom a = group.body->result;
  if (all && all->kind == ExprKind::kTuple) {
    if (result >= all->args.size()) return false;
    a = all->args[result];
  }
  const Expr* made = definition_in(group, a);
  if (!made || !ir::traits_of(*made).in_out) return is_all_its_own(v, part);
  const auto axis = ir::attr<int64_t>(made->attrs, "axis");
  return dims_.equal(row_of(ir::type_of(made->args[0])->dims, axis), part.count()) == Proof::kYes &&
         dims_.equal(row_of(v.type->dims, axis), part.pitch) == Proof::kYes;
}

bool PlanVerifier::reads_columns(const ir::Function& group, size_t i, const Var& v,
                                 const Part& part) const {
  if (is_all_its_own(v, part)) return true;
  if (i >= group.parameters.size()) return false;
  const Var* p = group.parameters[i].get();
  const auto is_p = [&](const Atom& a) { return a.is_var() && a.var.get() == p; };
  if (is_p(group.body->result)) return false;
  for (const Binding& b : group.body->bindings) {
    const Expr& e = *b.value;
    if (std::none_of(e.args.begin(), e.args.end(), is_p)) continue;
    if (e.op != "slice" || e.args.size() != 1) return false;
    const auto& axes = ir::attr<std::vector<int64_t>>(e.attrs, "axes");
    const auto starts = ir::attr_or<std::vector<Dim>>(e.attrs, "starts", {});
    if (axes.size() != 1 || starts != std::vector<Dim>{0} || e.attrs.contains("steps"))
      return false;
    if (dims_.equal(row_of(v.type->dims, axes[0]), part.pitch) != Proof::kYes ||
        dims_.less_equal(row_of(b.var->type->dims, axes[0]), part.count()) != Proof::kYes)
      return false;
  }
  return true;
}

bool PlanVerifier::same_elements(const Expr& e, size_t k, const Var* in, const Var* out) {
  if (!e.primitive || k >= e.primitive->parameters.size()) return false;
  for (const Binding& b : e.primitive->body->bindings) {
    if (b.value->kind == ExprKind::kAtom) continue;
    const ir::OpInfo* op = b.value->kind == ExprKind::kCall ? ir::find_op(b.value->op) : nullptr;
    if (!op || op->fusion != ir::FusionKind::kElementwise) return false;
  }
  if (in == out || in->type->dtype != out->type->dtype ||
      in->type->dims.size() != out->type->dims.size())
    return false;
  for (size_t d = 0; d < in->type->dims.size(); ++d)
    if (dims_.equal(in->type->dims[d], out->type->dims[d]) != Proof::kYes) return false;
  if (names_[out].taken_over == in) return true;
  auto a = views_.find(in), b = views_.find(out);
  return a != views_.end() && b != views_.end() && a->second->op == "memory.row_view" &&
         b->second->op == "memory.row_view" &&
         dims_.equal(ir::attr<Dim>(a->second->attrs, "row_bytes"),
                     ir::attr<Dim>(b->second->attrs, "row_bytes")) == Proof::kYes;
}

void PlanVerifier::call(const Expr& e, State& state) {
  if (e.callee->is_var()) use(*e.callee, state);
  for (const Atom& a : e.args) use(a, state);
  hold(e, state);
  if (!e.callee->is_global()) return;
  for (size_t k = 0; k < e.args.size(); ++k) {
    if (!written_.count({e.callee->global, k})) continue;
    write(e.args[k]);
    if (!e.args[k].is_var()) continue;
    const Var* given = same(e.args[k].var.get());
    for (size_t i = 0; i < e.args.size(); ++i)
      if (i != k && e.args[i].is_var() && names_.count(same(e.args[i].var.get())) &&
          overlap(names_[given], names_[same(e.args[i].var.get())]))
        fault("P6", fmt::format("%{} is given away to @{} and passed to it again", given->name,
                                e.callee->global));
    const std::string reason = fmt::format("it was given away to @{}", e.callee->global);
    make_stale(given, reason, state);
    state.stale.emplace(given, reason);
  }
}

}  // namespace nimble::passes
