#include "compiler/passes/analysis/batch_recursion_group.h"

#include <algorithm>
#include <set>

#include "compiler/passes/batch_operators.h"
#include "compiler/passes/support/rewrite.h"

namespace nimble::passes {

using ir::Atom;
using ir::Binding;
using ir::Dim;
using ir::Expr;
using ir::ExprKind;
using ir::Type;
using ir::TypeKind;

namespace {

constexpr size_t kUnknown = SIZE_MAX;

[[noreturn]] void refuse(const std::string& why) {
  throw NotBatchable{why};
}

}  // namespace

RecursionGroup::RecursionGroup(const ir::Module& m, const Recursion& recursion,
                               const std::string& root, bool collects)
    : module_(m) {
  if (collects) {
    add(root);
    members_[0].collects = true;
    visit_bindings(*members_[0].f->body, [&](const Binding& b) {
      const Expr& e = *b.value;
      if (e.kind != ExprKind::kCall || !e.callee || !e.callee->is_global()) return;
      const std::string& name = e.callee->global;
      if (name != root && recursion.calls(name, name) && !member_called(e))
        add_recursion(recursion, name);
    });
    if (members_.size() == 1) refuse("@" + root + " calls no other recursion");
  } else {
    add_recursion(recursion, root);
  }
  for (Member& member : members_) classify(member);
  follow_invariants();
  for (size_t i = 0; i < members_.size(); ++i) cases_of(i);
  if (collects) check_collector();
}

void RecursionGroup::add_recursion(const Recursion& recursion, const std::string& name) {
  add(name);
  for (const auto& [other, f] : module_.functions)
    if (other != name && recursion.calls(name, other) && recursion.calls(other, name)) add(other);
}

// The tasks of the case that goes on stand in the order of the list, the last element first, so
// that an element's number is enough to find its results.
void RecursionGroup::check_collector() const {
  size_t going_on = 0;
  for (size_t k = 0; k < cases_.size(); ++k) {
    if (cases_[k].member != 0 || schema_.kinds[k].calls.empty()) continue;
    ++going_on;
    const auto& calls = schema_.kinds[k].calls;
    const auto own = std::count_if(calls.begin(), calls.end(),
                                   [](const RecursionSchema::Call& c) { return c.function == 0; });
    if (own != 1) refuse("@" + members_[0].name + " does not walk along a list");
  }
  if (going_on != 1) refuse("@" + members_[0].name + " goes on in several cases");
}

std::optional<size_t> RecursionGroup::member_called(const Expr& e) const {
  if (e.kind != ExprKind::kCall || !e.callee || !e.callee->is_global()) return std::nullopt;
  for (size_t i = 0; i < members_.size(); ++i)
    if (members_[i].name == e.callee->global) return i;
  return std::nullopt;
}

size_t RecursionGroup::call_index(size_t kind, size_t field, size_t callee) const {
  const auto& calls = schema_.kinds[kind].calls;
  for (size_t i = 0; i < calls.size(); ++i)
    if (calls[i].field == static_cast<int64_t>(field) &&
        calls[i].function == static_cast<int64_t>(callee))
      return i;
  refuse("a call on what is not a field");
}

void RecursionGroup::add(const std::string& name) {
  members_.push_back({name, module_.find(name), 0, {}, nullptr, {}, false, false});
}

void RecursionGroup::classify(Member& m) {
  const ir::Function& f = *m.f;
  if (!f.type_variables.empty()) refuse("@" + m.name + " is polymorphic");
  if (f.attrs.contains("device")) refuse("@" + m.name + " names a device");
  std::vector<size_t> data;
  for (size_t i = 0; i < f.parameters.size(); ++i) {
    const TypeKind kind = f.parameters[i]->type->kind;
    if (kind == TypeKind::kData) data.push_back(i);
    if (kind != TypeKind::kData && kind != TypeKind::kTensor && !m.collects)
      refuse(fmt::format("@{} takes {}", m.name, ir::str(f.parameters[i]->type)));
  }
  if (data.size() != 1) refuse(fmt::format("@{} takes {} data values", m.name, data.size()));
  m.data = data[0];
  const ir::Block& body = *f.body;
  const Binding* last = body.bindings.empty() ? nullptr : &body.bindings.back();
  if (!last || last->value->kind != ExprKind::kMatch || !body.result.is_var() ||
      body.result.var != last->var || !last->value->args[0].is_var() ||
      last->value->args[0].var != f.parameters[m.data])
    refuse("@" + m.name + " does more than match on its value");
  m.match = last->value.get();
  if (m.collects) return;
  const Type& result = f.result_type;
  m.tuple = result->kind == TypeKind::kTuple;
  m.results = m.tuple ? result->elements : std::vector<Type>{result};
  if (m.results.empty() || !std::all_of(m.results.begin(), m.results.end(), is_static_tensor))
    refuse(fmt::format("@{} returns {}", m.name, ir::str(result)));
}

// Parameters other than the value must be handed on as they came.
void RecursionGroup::follow_invariants() {
  for (Member& m : members_) m.invariant.assign(m.f->parameters.size(), kUnknown);
  for (size_t i = 0; i < members_[0].f->parameters.size(); ++i) members_[0].invariant[i] = i;
  std::vector<size_t> work = {0};
  std::set<size_t> seen = {0};
  while (!work.empty()) {
    const Member& from = members_[work.back()];
    work.pop_back();
    visit_bindings(*from.f->body, [&](const Binding& b) {
      const auto callee = member_called(*b.value);
      if (!callee) return;
      Member& to = members_[*callee];
      for (size_t i = 0; i < b.value->args.size(); ++i) {
        if (i == to.data) continue;
        const size_t mine = parameter_of(from, b.value->args[i]);
        if (from.collects && to.collects) {  // may change what it hands to nobody else
          if (mine != i) to.invariant[i] = kUnknown;
          continue;
        }
        if (mine == kUnknown || (to.invariant[i] != kUnknown && to.invariant[i] != mine))
          refuse(fmt::format("@{} changes a parameter of @{}", from.name, to.name));
        to.invariant[i] = mine;
      }
      if (seen.insert(*callee).second) work.push_back(*callee);
    });
  }
}

size_t RecursionGroup::parameter_of(const Member& m, const Atom& a) const {
  for (size_t i = 0; i < m.f->parameters.size(); ++i)
    if (a.is_var() && a.var == m.f->parameters[i] && i != m.data) return m.invariant[i];
  return kUnknown;
}

void RecursionGroup::cases_of(size_t member) {
  const Member& m = members_[member];
  const std::string& type = m.f->parameters[m.data]->type->name;
  const auto data = std::find_if(module_.data_types.begin(), module_.data_types.end(),
                                 [&](const ir::DataType& d) { return d.name == type; });
  NIMBLE_CHECK(data != module_.data_types.end(), "there is no data type {}", type);
  for (size_t tag = 0; tag < data->constructors.size(); ++tag) {
    const std::string& name = data->constructors[tag].name;
    const auto it = std::find_if(m.match->cases.begin(), m.match->cases.end(), [&](const auto& c) {
      return c.pattern.kind == ir::Pattern::Kind::kWildcard ||
             (c.pattern.kind == ir::Pattern::Kind::kConstructor && c.pattern.constructor == name);
    });
    if (it == m.match->cases.end()) refuse("a case binds the whole value");
    Case c{member, &*it, {}};
    RecursionSchema::Kind kind;
    kind.function = static_cast<int64_t>(member);
    kind.tag = static_cast<int64_t>(tag);
    for (size_t i = 0; i < it->pattern.fields.size(); ++i) {
      const ir::Pattern& p = it->pattern.fields[i];
      if (p.kind == ir::Pattern::Kind::kWildcard) continue;
      if (p.kind != ir::Pattern::Kind::kVar) refuse("a nested pattern");
      c.field[p.var.get()] = i;
    }
    reads(m, c, &kind);
    cases_.push_back(std::move(c));
    schema_.kinds.push_back(std::move(kind));
  }
}

void RecursionGroup::reads(const Member& m, const Case& c, RecursionSchema::Kind* kind) {
  const UseCounts uses = count_uses(*c.source->body);
  UseCounts calls;
  visit_bindings(*c.source->body, [&](const Binding& b) {
    const auto callee = member_called(*b.value);
    if (!callee) return;
    const Atom& value = b.value->args[members_[*callee].data];
    if (std::none_of(c.source->body->bindings.begin(), c.source->body->bindings.end(),
                     [&](const Binding& top) { return top.var == b.var; }))
      refuse("@" + m.name + " recurses under a condition");
    const auto it = value.is_var() ? c.field.find(value.var.get()) : c.field.end();
    if (it == c.field.end()) refuse("@" + m.name + " recurses over what is not a field");
    ++calls[value.var.get()];
    const RecursionSchema::Call call{static_cast<int64_t>(it->second),
                                     static_cast<int64_t>(*callee)};
    const bool known = std::any_of(kind->calls.begin(), kind->calls.end(), [&](const auto& k) {
      return k.field == call.field && k.function == call.function;
    });
    if (!known) kind->calls.push_back(call);
  });
  for (const ir::Pattern& p : c.source->pattern.fields) {
    if (!p.var) continue;
    const auto used = uses.find(p.var.get());
    if (used == uses.end()) continue;
    if (const auto n = calls.find(p.var.get()); n != calls.end()) {
      if (n->second != used->second && !m.collects)
        refuse("a field is used apart from the recursion");
      continue;
    }
    if (m.collects) continue;
    const Type& t = p.var->type;
    if (!is_static_tensor(t)) refuse(fmt::format("a field of type {}", ir::str(t)));
    RecursionSchema::Data d;
    d.field = static_cast<int64_t>(c.field.at(p.var.get()));
    d.dtype = t->dtype;
    for (const Dim& e : t->dims) d.extents.push_back(*e.as_constant());
    kind->data.push_back(std::move(d));
  }
}

}  // namespace nimble::passes
