#include "compiler/ir/verify_types.h"

#include <algorithm>
#include <functional>

namespace nimble::ir {
namespace {

void own_symbols(const Type& t, const std::set<std::string>& outer, std::set<std::string>& out) {
  for (const Dim& d : t->dims) {
    for (const std::string& s : d.symbols()) {
      if (!outer.contains(s)) out.insert(s);
    }
  }
  for (const Type& e : t->elements) own_symbols(e, outer, out);
}

// Dims that mention one of `names` are any extent.
Type without_symbols(const Type& t, const std::set<std::string>& names) {
  auto node = std::make_shared<TypeNode>(*t);
  for (Dim& d : node->dims) {
    for (const std::string& s : d.symbols()) {
      if (names.contains(s)) {
        d = Dim::any();
        break;
      }
    }
  }
  for (Type& e : node->elements) e = without_symbols(e, names);
  return node;
}

// Of two types of one structure: dims that differ are `?`.
Type general(const Type& a, const Type& b) {
  if (a->kind != b->kind || a->dims.size() != b->dims.size() ||
      a->elements.size() != b->elements.size()) {
    return a;
  }
  auto node = std::make_shared<TypeNode>(*a);
  for (size_t i = 0; i < a->dims.size(); ++i) {
    if (!(a->dims[i] == b->dims[i])) node->dims[i] = Dim::any();
  }
  for (size_t i = 0; i < a->elements.size(); ++i) {
    node->elements[i] = general(a->elements[i], b->elements[i]);
  }
  return node;
}

Type with_known_symbols(const Type& t, const std::set<std::string>& known) {
  auto node = std::make_shared<TypeNode>(*t);
  for (Dim& d : node->dims) {
    const std::set<std::string> used = d.symbols();
    if (!std::includes(known.begin(), known.end(), used.begin(), used.end())) d = Dim::any();
  }
  for (Type& e : node->elements) e = with_known_symbols(e, known);
  return node;
}

void bind_one_kind(const Type& pattern, const Type& actual, bool inside,
                   std::map<std::string, Dim>& bound) {
  if (!pattern || !actual || pattern->kind != actual->kind ||
      pattern->dims.size() != actual->dims.size() ||
      pattern->elements.size() != actual->elements.size() || pattern->kind == TypeKind::kFunction ||
      (pattern->kind == TypeKind::kData && !inside)) {
    return;
  }
  for (size_t i = 0; i < pattern->dims.size(); ++i) {
    if (pattern->dims[i].is_any() || actual->dims[i].is_any()) continue;
    if (auto s = pattern->dims[i].as_symbol()) bound.try_emplace(*s, actual->dims[i]);
  }
  for (size_t i = 0; i < pattern->elements.size(); ++i) {
    bind_one_kind(pattern->elements[i], actual->elements[i], inside, bound);
  }
}

}  // namespace

std::string foreign_name(const std::string& name) {
  return "callee's " + name;
}

bool is_foreign_variable(const Type& t) {
  return t->kind == TypeKind::kVariable && t->name.starts_with(foreign_name(""));
}

Type foreign_type(const Function& f) {
  std::vector<Type> parameters;
  for (const VarRef& p : f.parameters) parameters.push_back(p->type);
  std::map<std::string, Type> variables;
  for (const std::string& v : f.type_variables) variables[v] = variable_type(foreign_name(v));
  std::function<Type(const Type&)> rename = [&](const Type& t) -> Type {
    if (!t) return t;
    auto node = std::make_shared<TypeNode>(*t);
    for (Dim& d : node->dims) {
      std::map<std::string, Dim> renamed;
      for (const std::string& s : d.symbols()) renamed.emplace(s, Dim::symbol(foreign_name(s)));
      if (!renamed.empty()) d = d.substitute(renamed);
    }
    for (Type& e : node->elements) e = rename(e);
    return node;
  };
  return substitute_types(rename(function_type(std::move(parameters), f.result_type)), variables);
}

bool TypeRules::fits(const Type& given, const Type& expected,
                     const std::set<std::string>& open) const {
  if (!given || !expected) return given == expected;
  if (is_foreign_variable(given) || is_foreign_variable(expected)) return true;
  // After lowering a rank-0 integer constant stands for an unboxed scalar.
  if (given->kind == TypeKind::kScalar && expected->kind == TypeKind::kTensor) {
    return expected->dims.empty() && !is_float(expected->dtype);
  }
  if (expected->kind == TypeKind::kScalar && given->kind == TypeKind::kTensor) {
    return given->dims.empty() && !is_float(given->dtype);
  }
  if (given->kind != expected->kind || given->dtype != expected->dtype ||
      given->name != expected->name || given->dims.size() != expected->dims.size() ||
      given->elements.size() != expected->elements.size()) {
    return false;
  }
  if (given->kind == TypeKind::kFunction) return fits_function(given, expected, open);
  for (size_t i = 0; i < given->dims.size(); ++i) {
    if (!fits_dim(given->dims[i], expected->dims[i], open)) return false;
  }
  for (size_t i = 0; i < given->elements.size(); ++i) {
    if (!fits(given->elements[i], expected->elements[i], open)) return false;
  }
  return true;
}

bool TypeRules::fits_dim(const Dim& given, const Dim& expected,
                         const std::set<std::string>& open) const {
  if (expected.is_any()) return true;
  const auto is_open = [&](const Dim& d) {
    auto s = d.is_any() ? std::nullopt : d.as_symbol();
    return s && open.contains(*s);
  };
  if (is_open(expected)) return true;
  if (given.is_any()) return false;
  if (is_open(given)) return true;
  const Proof equal = facts.equal(given, expected);
  return equal == Proof::kYes || (equal == Proof::kUnknown && unknown_is_equal);
}

// Parameters the other way round: the function must take what it will be called with. Symbols
// that only its type knows are bound by that.
bool TypeRules::fits_function(const Type& given, const Type& expected,
                              const std::set<std::string>& open) const {
  std::set<std::string> own;
  own_symbols(given, symbols, own);
  std::map<std::string, Dim> bound;
  const size_t count = given->elements.size() - 1;
  std::set<std::string> taken = open;  // `?` of a parameter binds an own symbol too
  for (size_t i = 0; i < count; ++i) {
    std::map<std::string, Dim> found;
    bind_symbols(given->elements[i], expected->elements[i], found);
    for (const auto& [name, d] : found) {
      if (own.contains(name)) bound.try_emplace(name, d);
    }
  }
  for (const std::string& s : own) {
    if (!bound.contains(s)) taken.insert(s);
  }
  for (size_t i = 0; i < count; ++i) {
    const Type parameter = substitute(given->elements[i], bound);
    if (!fits(expected->elements[i], parameter, taken)) return false;
  }
  const Type result = substitute(given->elements.back(), bound);
  // What only the expected result names is any extent.
  std::set<std::string> theirs, asked;
  own_symbols(expected->elements.back(), symbols, theirs);
  for (size_t i = 0; i < count; ++i) own_symbols(expected->elements[i], symbols, asked);
  for (const std::string& s : asked) theirs.erase(s);
  const Type stated = without_symbols(expected->elements.back(), theirs);
  return equal(given->elements.back(), expected->elements.back()) || fits(result, stated, open);
}

bool is_complete(const Type& t) {
  if (!t) return false;
  if (t->kind == TypeKind::kFunction || t->kind == TypeKind::kData) {
    return std::all_of(t->elements.begin(), t->elements.end(),
                       [](const Type& e) { return e != nullptr; });
  }
  return std::none_of(t->dims.begin(), t->dims.end(), [](const Dim& d) { return d.is_any(); }) &&
         std::all_of(t->elements.begin(), t->elements.end(), is_complete);
}

std::string type_fault(const Type& t, const Module& m, const std::vector<std::string>& variables) {
  if (!t) return {};
  if (t->kind == TypeKind::kVariable &&
      std::find(variables.begin(), variables.end(), t->name) == variables.end()) {
    return fmt::format("the type variable {} is not bound here", t->name);
  }
  if (t->kind == TypeKind::kData) {
    const DataType* d = m.find_data(t->name);
    if (!d) return fmt::format("there is no data type {}", t->name);
    if (d->variables.size() != t->elements.size()) {
      return fmt::format("{} takes {} type arguments, not {}", t->name, d->variables.size(),
                         t->elements.size());
    }
  }
  for (const Type& e : t->elements) {
    if (std::string fault = type_fault(e, m, variables); !fault.empty()) return fault;
  }
  return {};
}

void collect_symbols(const Type& t, std::set<std::string>& out) {
  if (!t || t->kind == TypeKind::kFunction) return;
  for (const Dim& d : t->dims) out.merge(d.symbols());
  for (const Type& e : t->elements) collect_symbols(e, out);
}

void collect_bare_symbols(const Type& t, std::set<std::string>& out) {
  if (!t || t->kind == TypeKind::kFunction || t->kind == TypeKind::kData) return;
  for (const Dim& d : t->dims) {
    if (d.is_any()) continue;
    if (auto s = d.as_symbol()) out.insert(*s);
  }
  for (const Type& e : t->elements) collect_bare_symbols(e, out);
}

void bind_symbols(const Type& pattern, const Type& actual, std::map<std::string, Dim>& bound) {
  bind_one_kind(pattern, actual, /*inside=*/false, bound);
  bind_one_kind(pattern, actual, /*inside=*/true, bound);
}

void bind_variables(const Type& pattern, const Type& actual, const std::set<std::string>& names,
                    std::map<std::string, Type>& bound) {
  if (!pattern || !actual) return;
  if (pattern->kind == TypeKind::kVariable && names.contains(pattern->name)) {
    auto [it, added] = bound.emplace(pattern->name, actual);
    if (!added) it->second = general(it->second, actual);
    return;
  }
  if (pattern->kind != actual->kind || pattern->elements.size() != actual->elements.size() ||
      pattern->kind == TypeKind::kFunction) {
    return;
  }
  for (size_t i = 0; i < pattern->elements.size(); ++i) {
    bind_variables(pattern->elements[i], actual->elements[i], names, bound);
  }
}

void bind_rest(const Type& pattern, const Type& actual, const std::set<std::string>& names,
               const std::set<std::string>& known, std::map<std::string, Type>& bound) {
  if (!pattern || !actual) return;
  if (pattern->kind == TypeKind::kVariable && names.contains(pattern->name)) {
    bound.emplace(pattern->name, with_known_symbols(actual, known));
    return;
  }
  if (pattern->kind != actual->kind || pattern->elements.size() != actual->elements.size()) return;
  for (size_t i = 0; i < pattern->elements.size(); ++i) {
    bind_rest(pattern->elements[i], actual->elements[i], names, known, bound);
  }
}

}  // namespace nimble::ir
