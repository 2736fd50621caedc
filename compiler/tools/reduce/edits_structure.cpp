// Edits that take parts of the program away: functions, bindings, branches, calls.
#include <algorithm>

#include "compiler/ir/entry.h"
#include "compiler/tools/reduce/edits.h"

namespace nimble::reduce {

using ir::Atom;
using ir::Binding;
using ir::Expr;
using ir::ExprKind;
using ir::VarRef;

namespace {

constexpr int64_t kLargestStandIn = 16;  // elements; a larger constant would not be small

// An expression without operands for a tensor type.
std::optional<Expr> fill(const ir::Type& type) {
  if (!type || type->kind != ir::TypeKind::kTensor) return std::nullopt;
  for (const ir::Dim& d : type->dims)
    if (d.is_any()) return std::nullopt;
  Expr e{ExprKind::kCall};
  e.op = "full";
  e.attrs = {{"shape", type->dims}, {"dtype", type->dtype}, {"value", 0.0}};
  return e;
}

// Makes a nested block's bindings part of the enclosing one, its result the variable's substitute.
void splice(Copy& copy, const VarRef& v, const ir::Block& block, std::vector<Binding>& before) {
  before.insert(before.end(), block.bindings.begin(), block.bindings.end());
  copy.substitute(v, block.result);
}

// In place of a variable that is gone: an atom, or else a `full` under its name.
Fate replace(Copy& copy, const Scope& scope, const VarRef& v, Expr& e) {
  if (std::optional<Atom> a = stand_in(scope, v->type)) {
    copy.substitute(v, *a);
    return Fate::kDrop;
  }
  if (std::optional<Expr> filled = fill(v->type)) e = *filled;
  return Fate::kKeep;
}

}  // namespace

std::optional<Atom> stand_in(const Scope& scope, const ir::Type& type) {
  if (!type) return std::nullopt;
  for (const VarRef& p : scope.parameters)
    if (ir::equal(p->type, type)) return Atom(p);
  if (type->kind != ir::TypeKind::kTensor) return std::nullopt;
  std::vector<int64_t> shape;
  int64_t elements = 1;
  for (const ir::Dim& d : type->dims) {
    const std::optional<int64_t> extent = d.as_constant();
    if (!extent || *extent > kLargestStandIn || (elements *= *extent) > kLargestStandIn)
      return std::nullopt;
    shape.push_back(*extent);
  }
  uint8_t* data = nullptr;
  return Atom::of(ir::Tensor::make(type->dtype, std::move(shape), &data));
}

void drop_functions(Copy& copy, Sites& sites) {
  ir::Module& m = copy.module();
  std::vector<std::string> gone;
  for (const auto& [name, f] : m.functions)
    if (name != "main" && m.functions.size() > 1 && sites.wants()) gone.push_back(name);
  auto is_gone = [&](const std::string& name) {
    return std::find(gone.begin(), gone.end(), name) != gone.end();
  };
  std::erase_if(m.functions, [&](const auto& f) { return is_gone(f.first); });
  for (const std::string& name : gone) m.signatures.erase(name);
  copy.visit_bindings([&](Scope& scope, const VarRef& v, Expr& e, std::vector<Binding>&) {
    if (e.callee && e.callee->is_global() && is_gone(e.callee->global))
      return replace(copy, scope, v, e);
    return Fate::kKeep;
  });
}

// A site is a binding at the top of the entry: the first one that is wanted becomes the last.
void cut_off(Copy& copy, Sites& sites) {
  for (auto& [name, f] : copy.module().functions) {
    if (!ir::is_entry(copy.module(), name)) continue;
    auto& body = const_cast<ir::Block&>(*f->body);
    size_t end = body.bindings.size();
    for (size_t i = 0; i < body.bindings.size(); ++i)
      if (sites.wants()) end = std::min(end, i);
    if (end == body.bindings.size()) continue;
    if (end > 0)
      body.result = Atom(body.bindings[end - 1].var);
    else if (!f->parameters.empty())
      body.result = Atom(f->parameters[0]);
    body.bindings.resize(end);
    const_cast<ir::Function&>(*f).result_type = nullptr;
    if (auto s = copy.module().signatures.find(name); s != copy.module().signatures.end())
      s->second.output_names.clear();
  }
}

void drop_bindings(Copy& copy, Sites& sites) {
  copy.visit_bindings([&](Scope& scope, const VarRef& v, Expr& e, std::vector<Binding>&) {
    if (e.kind == ExprKind::kCall && e.op == "full" && !stand_in(scope, v->type))
      return Fate::kKeep;
    return sites.wants() ? replace(copy, scope, v, e) : Fate::kKeep;
  });
}

void drop_unused(Copy& copy, Sites& sites) {
  const auto used = uses(copy);
  copy.visit_bindings([&](Scope&, const VarRef& v, Expr&, std::vector<Binding>&) {
    return !used.count(v.get()) && sites.wants() ? Fate::kDrop : Fate::kKeep;
  });
}

void keep_then(Copy& copy, Sites& sites) {
  copy.visit_bindings([&](Scope&, const VarRef& v, Expr& e, std::vector<Binding>& before) {
    if (e.kind != ExprKind::kIf || !sites.wants()) return Fate::kKeep;
    splice(copy, v, *e.then_block, before);
    return Fate::kDrop;
  });
}

void keep_else(Copy& copy, Sites& sites) {
  copy.visit_bindings([&](Scope&, const VarRef& v, Expr& e, std::vector<Binding>& before) {
    if (e.kind != ExprKind::kIf || !sites.wants()) return Fate::kKeep;
    splice(copy, v, *e.else_block, before);
    return Fate::kDrop;
  });
}

void drop_cases(Copy& copy, Sites& sites) {
  copy.visit_bindings([&](Scope&, const VarRef&, Expr& e, std::vector<Binding>&) {
    if (e.kind != ExprKind::kMatch || e.cases.size() < 2) return Fate::kKeep;
    std::vector<ir::MatchCase> kept;
    for (const ir::MatchCase& c : e.cases)
      if (!sites.wants()) kept.push_back(c);
    if (!kept.empty()) e.cases = std::move(kept);
    return Fate::kKeep;
  });
}

// The case's variables need substitutes, since no value is matched any more.
void keep_last_case(Copy& copy, Sites& sites) {
  copy.visit_bindings([&](Scope& scope, const VarRef& v, Expr& e, std::vector<Binding>& before) {
    if (e.kind != ExprKind::kMatch || !sites.wants()) return Fate::kKeep;
    const ir::MatchCase& c = e.cases.back();
    for (const VarRef& bound : ir::variables_of(c.pattern)) {
      if (std::optional<Atom> a = stand_in(scope, bound->type)) {
        copy.substitute(bound, *a);
      } else if (std::optional<Expr> filled = fill(bound->type)) {
        before.push_back({bound, std::make_shared<const Expr>(*filled)});
      } else {
        return Fate::kKeep;
      }
    }
    splice(copy, v, *c.body, before);
    return Fate::kDrop;
  });
}

// A site is a field of the tuple that an entry returns.
void return_field(Copy& copy, Sites& sites) {
  for (auto& [name, f] : copy.module().functions) {
    if (!ir::is_entry(copy.module(), name)) continue;
    auto& body = const_cast<ir::Block&>(*f->body);
    for (const Binding& b : body.bindings) {
      if (b.value->kind != ExprKind::kTuple || !body.result.is_var() || body.result.var != b.var)
        continue;
      for (const Atom& field : b.value->args) {
        if (!sites.wants()) continue;
        body.result = field;
        const_cast<ir::Function&>(*f).result_type = nullptr;
        copy.module().signatures.erase(name);
        break;
      }
      break;
    }
  }
}

void inline_calls(Copy& copy, Sites& sites) {
  const ir::Module& m = copy.module();
  copy.visit_bindings([&](Scope&, const VarRef& v, Expr& e, std::vector<Binding>& before) {
    if (e.kind != ExprKind::kCall || !e.callee || !e.callee->is_global()) return Fate::kKeep;
    const ir::FunctionRef f = m.find(e.callee->global);
    if (!f || f->parameters.size() != e.args.size() || is_recursive(m, e.callee->global))
      return Fate::kKeep;
    if (!sites.wants()) return Fate::kKeep;
    std::unordered_map<const ir::Var*, Atom> map;
    for (size_t i = 0; i < e.args.size(); ++i) map[f->parameters[i].get()] = e.args[i];
    splice(copy, v, *copy.copy_of(f->body, std::move(map)), before);
    return Fate::kDrop;
  });
}

void inline_groups(Copy& copy, Sites& sites) {
  copy.visit_bindings([&](Scope&, const VarRef& v, Expr& e, std::vector<Binding>& before) {
    if (e.kind != ExprKind::kCall || !e.primitive || !e.op.empty() ||
        e.primitive->parameters.size() != e.args.size() || !sites.wants())
      return Fate::kKeep;
    for (size_t i = 0; i < e.args.size(); ++i)
      copy.substitute(e.primitive->parameters[i], e.args[i]);
    splice(copy, v, *e.primitive->body, before);
    return Fate::kDrop;
  });
}

}  // namespace nimble::reduce
