// What the verifier of memory plans knows of names: where they lie, and whether they are good.
#include <fmt/format.h>

#include <algorithm>

#include "compiler/passes/analysis/plan_verifier.h"

namespace nimble::passes {

using ir::Atom;
using ir::Dim;
using ir::Expr;
using ir::Proof;
using ir::Type;
using ir::TypeKind;
using ir::Var;

bool PlanVerifier::has_memory(const Type& t) {
  if (!t) return false;
  if (t->kind == TypeKind::kScalar) return false;
  if (t->kind != TypeKind::kTuple) return true;
  return std::any_of(t->elements.begin(), t->elements.end(), has_memory);
}

Dim PlanVerifier::bytes_of(DType dtype, const std::vector<Dim>& shape) {
  Dim bytes = static_cast<int64_t>(size_of(dtype));
  for (const Dim& d : shape) bytes = bytes * d;
  return bytes;
}

Dim PlanVerifier::bytes_of(const Expr& alloc) {
  return bytes_of(ir::attr<DType>(alloc.attrs, "dtype"),
                  ir::attr<std::vector<Dim>>(alloc.attrs, "shape"));
}

const Var* PlanVerifier::same(const Var* v) const {
  auto it = same_.find(v);
  return it == same_.end() ? v : it->second;
}

std::set<size_t> PlanVerifier::objects_of(const Atom& a) const {
  if (!a.is_var()) return {};
  auto it = names_.find(same(a.var.get()));
  return it == names_.end() ? std::set<size_t>{} : it->second.objects;
}

bool PlanVerifier::overlap(const Name& a, const Name& b) const {
  const bool common = std::any_of(a.objects.begin(), a.objects.end(),
                                  [&](size_t o) { return b.objects.count(o) > 0; });
  if (!common) return false;
  // Of the same rows; columns of others do not tell where in memory they are.
  if (a.part && b.part && a.part->whole == b.part->whole && a.part->size == b.part->size &&
      dims_.equal(a.part->pitch, b.part->pitch) == Proof::kYes)
    return dims_.less_equal(a.part->last, b.part->first) != Proof::kYes &&
           dims_.less_equal(b.part->last, a.part->first) != Proof::kYes;
  if (a.objects.size() > 1 || b.objects.size() > 1 || !a.begin || !b.begin) return true;
  return dims_.less_equal(*a.end, *b.begin) != Proof::kYes &&
         dims_.less_equal(*b.end, *a.begin) != Proof::kYes;
}

void PlanVerifier::use(const Atom& a, const State& state, bool writes) {
  if (!a.is_var()) {
    if (a.is_global()) function_value(a.global);
    return;
  }
  const Var* v = a.var.get();
  if (!visible_.count(v)) return fault("P1", fmt::format("%{} is used before it exists", v->name));
  v = same(v);
  auto name = names_.find(v);
  if (name == names_.end()) return;
  if (state.killed.count(v))
    return fault("P2", fmt::format("%{} is used after its life was ended", v->name));
  for (size_t o : name->second.objects)
    if (state.freed.count(o))
      return fault("P3", fmt::format("%{} is used after {} was freed", v->name,
                                     objects_[o].storage ? "%" + objects_[o].storage->name
                                                         : "an argument's memory"));
  auto stale = state.stale.find(v);
  if (stale != state.stale.end())
    fault("P5", fmt::format("%{} is used after {}", v->name, stale->second));
  if (!writes && name->second.part && !is_written(name->second, state))
    fault("P10", fmt::format("%{} is read before all of it was written", v->name));
}

bool PlanVerifier::is_written(const Name& name, const State& state) const {
  if (name.objects.size() != 1) return false;
  const Part& part = *name.part;
  const auto it = state.written.find({*name.objects.begin(), part.whole});
  auto left = it == state.written.end() ? std::vector<std::pair<Dim, Dim>>{} : it->second;
  Dim at = part.first;
  while (dims_.less_equal(part.last, at) != Proof::kYes) {
    const auto next = std::find_if(left.begin(), left.end(), [&](const auto& columns) {
      return dims_.less_equal(columns.first, at) == Proof::kYes &&
             dims_.less_equal(at, columns.second) == Proof::kYes;
    });
    if (next == left.end()) return false;
    at = next->second;
    left.erase(next);
  }
  return true;
}

void PlanVerifier::function_value(const std::string& name) {
  for (const auto& [function, parameter] : written_)
    if (function == name)
      fault("P6", fmt::format("@{} is a value, and writes into its parameter {}", name, parameter));
}

void PlanVerifier::make_stale(const Var* writer, const std::string& reason, State& state,
                              std::optional<int64_t> but) {
  const Name& w = names_[writer];
  for (const auto& [v, name] : names_) {
    if (but && name.part && name.part->whole == *but) continue;
    if (v == writer || v == w.viewed || !v->type || v->type->kind == TypeKind::kStorage) continue;
    if (visible_.count(v) && overlap(w, name)) state.stale.emplace(v, reason);
  }
}

void PlanVerifier::end_life(const Var* v, State& state) {
  if (!state.killed.insert(v).second) fault("P2", fmt::format("%{} is killed twice", v->name));
  state.ended.insert(v);
}

}  // namespace nimble::passes
