// The verifier of memory plans: what makes, views and ends memory.
#include <fmt/format.h>

#include <algorithm>

#include "compiler/ir/op.h"
#include "compiler/passes/analysis/plan_verifier.h"

namespace nimble::passes {

using ir::Atom;
using ir::Dim;
using ir::Expr;
using ir::Proof;
using ir::TypeKind;
using ir::Var;

void PlanVerifier::kill(const Expr& e, State& state) {
  const Atom& a = e.args[0];
  if (!a.is_var() || !visible_.count(a.var.get()))
    return fault("P1", "what is killed does not exist");
  const Var* v = same(a.var.get());
  const bool frees = e.op == "memory.kill" && v->type && v->type->kind == TypeKind::kStorage;
  if (frees) {
    const std::set<size_t> objects = objects_of(a);
    for (size_t o : objects) {
      if (objects.size() > 1 || objects_[o].storage != v)
        fault("P4", fmt::format("%{} is freed, and may be another's memory", v->name));
      else if (state.held.count(o))
        fault("P4", fmt::format("%{} is freed, and may still be held elsewhere", v->name));
      state.freed.insert(o);
    }
  }
  end_life(v, state);
}

void PlanVerifier::alloc_tensor(const Var* v, const Expr& e, State& state) {
  const Atom& base = e.args[0];
  for (const Atom& a : e.args) use(a, state);
  Name name;
  name.objects = objects_of(base);
  const Dim begin = ir::attr<Dim>(e.attrs, "offset");
  const Dim end = begin + bytes_of(e);
  const Var* whole = base.is_var() ? same(base.var.get()) : nullptr;
  if (whole && whole->type && whole->type->kind == TypeKind::kTensor) {
    name.taken_over = whole;
    const Dim size = bytes_of(whole->type->dtype, whole->type->dims);
    // A part of a tensor may be as long as the run's data says: the VM compares.
    if (dims_.less_equal(end, size) == Proof::kNo)
      fault("P8", fmt::format("%{} needs {} bytes, and %{} has {}", v->name, end.str(), whole->name,
                              size.str()));
    ++(dims_.less_equal(end, size) == Proof::kYes ? report_.proved_sizes : report_.checked_sizes);
    name.set_part(names_[whole], begin, bytes_of(e));
    names_[v] = std::move(name);
    return;  // the old tensor is good until the new one is written
  }
  if (name.objects.size() == 1 && objects_[*name.objects.begin()].storage == whole) {
    fits(v, end, objects_[*name.objects.begin()].bytes);
    name.set_range(begin, bytes_of(e));
  } else {
    ++report_.checked_sizes;  // some storage: the VM compares
  }
  if (e.attrs.contains("part")) name.part = part_of(v, e);
  const auto number = name.part ? std::optional(name.part->whole) : std::nullopt;
  names_[v] = std::move(name);
  make_stale(v, fmt::format("its memory was given to %{}", v->name), state, number);
}

std::optional<PlanVerifier::Part> PlanVerifier::part_of(const Var* v, const Expr& e) {
  const auto& part = ir::attr<std::vector<Dim>>(e.attrs, "part");
  const auto number = part.size() == 4 ? part[0].as_constant() : std::nullopt;
  if (!number) {
    fault("P10", fmt::format("%{} has a part that is not four extents", v->name));
    return std::nullopt;
  }
  Part p{*number, part[1], part[2], part[3],
         static_cast<int64_t>(size_of(ir::attr<DType>(e.attrs, "dtype")))};
  if (dims_.equal(ir::attr<Dim>(e.attrs, "offset"), p.first * p.size) != Proof::kYes)
    fault("P10", fmt::format("%{} does not begin at its first column", v->name));
  // Beyond it the columns are the next row's first ones.
  if (dims_.less_equal(p.last, p.pitch) == Proof::kNo ||
      dims_.less_equal(p.first, p.last) == Proof::kNo)
    fault("P10", fmt::format("%{} has columns that its rows have not", v->name));
  // All of it are its columns, or its last axes are a row.
  Dim count = 1;
  bool rows = false;
  const auto& shape = ir::attr<std::vector<Dim>>(e.attrs, "shape");
  for (size_t i = shape.size(); i-- > 0;) {
    count = count * shape[i];
    rows |= dims_.equal(count, p.pitch) == Proof::kYes;
  }
  if (!rows && dims_.equal(count, p.count()) != Proof::kYes)
    fault("P10",
          fmt::format("%{} has neither its columns' extents nor those of whole rows", v->name));
  return p;
}

void PlanVerifier::fits(const Var* v, const Dim& needed, const Dim& there) {
  if (dims_.less_equal(needed, there) == Proof::kYes) {
    ++report_.proved_sizes;
    return;
  }
  ++report_.checked_sizes;
  std::set<std::string> symbols = needed.symbols();
  symbols.merge(there.symbols());
  for (int64_t sample : {1, 2, 3, 7, 64, 1000}) {
    int64_t shift = 0;
    std::map<std::string, int64_t> values;
    for (const std::string& s : symbols) {
      const ir::SymbolFacts facts = dims_.facts(s);
      const int64_t wanted = std::clamp(sample + shift++, facts.low, facts.high);
      values[s] = std::max(facts.low, wanted / facts.divisor * facts.divisor);
    }
    auto value = [&](const std::string& s) -> std::optional<int64_t> { return values.at(s); };
    try {
      if (needed.evaluate(value) <= there.evaluate(value)) continue;
    } catch (const Error&) {
      continue;  // no extents of a run
    }
    return fault("P8", fmt::format("%{} needs {} bytes, and there are {}", v->name, needed.str(),
                                   there.str()));
  }
}

std::optional<Dim> PlanVerifier::value_of(const Atom& a) const {
  if (a.is_constant()) return Dim(a.constant->integer(0));
  const auto size = a.is_var() ? sizes_.find(same(a.var.get())) : sizes_.end();
  return size == sizes_.end() ? std::nullopt : std::optional(size->second);
}

void PlanVerifier::view(const Var* v, const Expr& e) {
  if (!has_memory(v->type)) return;
  Name name;
  name.objects = objects_of(e.args[0]);
  if (e.args[0].is_var()) {
    const Var* whole = same(e.args[0].var.get());
    if (e.op == "memory.row_view") {
      name.viewed = whole;
      std::optional<Dim> offset = value_of(e.args[1]);
      if (offset) offset = *offset * ir::attr<Dim>(e.attrs, "row_bytes");
      name.set_part(names_[whole], offset, bytes_of(e));
    } else {
      name.begin = names_[whole].begin;
      name.end = names_[whole].end;
      name.exact = names_[whole].exact;
    }
  }
  views_[v] = &e;
  names_[v] = std::move(name);
}

}  // namespace nimble::passes
