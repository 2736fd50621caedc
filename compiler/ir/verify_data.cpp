// The IR verifier's rules of data types: constructors and matches.
#include <fmt/format.h>

#include <algorithm>

#include "compiler/ir/match_check.h"
#include "compiler/ir/module_verifier.h"

namespace nimble::ir {
namespace {

std::map<std::string, Type> arguments_of(const DataType& d, const Type& t) {
  std::map<std::string, Type> out;
  for (size_t i = 0; i < d.variables.size(); ++i) out[d.variables[i]] = t->elements[i];
  return out;
}

}  // namespace

void ModuleVerifier::construct(const Expr& e, const Type& stated, const std::vector<Type>& types) {
  const auto [data, tag] = module_.find_constructor(e.constructor);
  if (!data) return fault("V11", fmt::format("there is no constructor {}", e.constructor));
  const std::vector<Type>& fields = data->constructors[static_cast<size_t>(tag)].fields;
  if (fields.size() != types.size()) {
    return fault(
        "V11", fmt::format("{} has {} fields, not {}", e.constructor, fields.size(), types.size()));
  }
  if (!stated || stated->kind != TypeKind::kData || stated->name != data->name ||
      stated->elements.size() != data->variables.size()) {
    return fault("V6", fmt::format("{} gives a {} but {} is stated", e.constructor, data->name,
                                   str(stated)));
  }
  for (size_t i = 0; i < fields.size(); ++i) {
    const Type field = substitute_types(fields[i], arguments_of(*data, stated));
    if (is_complete(types[i]) && !agrees(types[i], field, {})) {
      fault("V11", fmt::format("field {} of {} is {} where {} is expected", i + 1, e.constructor,
                               str(types[i]), str(field)));
    }
  }
}

bool ModuleVerifier::pattern(const Pattern& p, const Type& t) {
  const auto wrong = [&](const std::string& problem) {
    fault("V12", problem);
    return false;
  };
  switch (p.kind) {
    case Pattern::Kind::kWildcard:
      return true;
    case Pattern::Kind::kVar: {
      bind(p.var);
      if (!p.var || !is_complete(p.var->type)) return true;
      std::set<std::string> used, open;
      collect_symbols(p.var->type, used);
      for (const std::string& s : used) {
        if (!symbols_.contains(s)) open.insert(s);
      }
      if (!agrees(t, p.var->type, open)) {
        return wrong(
            fmt::format("%{} is {} where the value has {}", p.var->name, str(p.var->type), str(t)));
      }
      symbols_.insert(open.begin(), open.end());
      return true;
    }
    case Pattern::Kind::kTuple:
      if (t->kind != TypeKind::kTuple || t->elements.size() != p.fields.size())
        return wrong(fmt::format("a tuple pattern for a value of type {}", str(t)));
      for (size_t i = 0; i < p.fields.size(); ++i) {
        if (!pattern(p.fields[i], t->elements[i])) return false;
      }
      return true;
    case Pattern::Kind::kConstructor: {
      const auto [data, tag] = module_.find_constructor(p.constructor);
      if (!data || t->kind != TypeKind::kData || t->name != data->name)
        return wrong(fmt::format("the pattern {} for a value of type {}", p.constructor, str(t)));
      const std::vector<Type>& fields = data->constructors[static_cast<size_t>(tag)].fields;
      if (fields.size() != p.fields.size() || t->elements.size() != data->variables.size())
        return wrong(fmt::format("{} has {} fields", p.constructor, fields.size()));
      for (size_t i = 0; i < fields.size(); ++i) {
        if (!pattern(p.fields[i], substitute_types(fields[i], arguments_of(*data, t))))
          return false;
      }
      return true;
    }
  }
  return true;
}

void ModuleVerifier::match(const Expr& e, const Type& stated, const std::vector<Type>& types,
                           const std::set<std::string>& used) {
  if (types.size() != 1 || e.cases.empty()) return fault("V12", "a match without value or cases");
  if (!types[0]) return;
  std::set<std::string> open;
  for (const std::string& s : used) {
    if (!symbols_.contains(s)) open.insert(s);
  }
  bool sound = true;
  for (const MatchCase& c : e.cases) {
    const DimContext facts = facts_;
    const std::set<std::string> symbols = symbols_;
    sound &= pattern(c.pattern, types[0]);
    const Type t = block(*c.body, nullptr, "V6");
    if (is_complete(t) && is_complete(stated) && !stops(*c.body) && !agrees(t, stated, open))
      fault("V6", fmt::format("a case gives {} but {} is stated", str(t), str(stated)));
    for (const VarRef& v : variables_of(c.pattern)) visible_.erase(v.get());
    facts_ = facts;
    symbols_ = symbols;
  }
  symbols_.insert(open.begin(), open.end());
  if (!sound) return;
  const MatchFault found = check_match(module_, types[0], e.cases);
  if (found.uncovered) fault("V12", fmt::format("no case for {}", *found.uncovered));
}

}  // namespace nimble::ir
