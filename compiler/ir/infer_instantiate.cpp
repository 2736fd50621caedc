// What matching found, put into types: solutions of variables, the results of calls, types outside
// of a block.
#include <fmt/format.h>

#include <algorithm>

#include "compiler/ir/infer_match.h"

namespace nimble::ir {

Type TypeSolutions::fresh() {
  return variable_type(fmt::format("'{}", ++created));
}

bool TypeSolutions::is_flexible(const Type& t) {
  return t && t->kind == TypeKind::kVariable && t->name.starts_with('\'');
}

Type TypeSolutions::resolve(const Type& t) const {
  Type out = t;
  while (is_flexible(out)) {
    auto it = found.find(out->name);
    if (it == found.end()) break;
    out = it->second;
  }
  return out;
}

Type TypeSolutions::resolve_all(const Type& t) const {
  if (!t) return t;
  const Type top = resolve(t);
  bool changed = top != t;
  auto node = std::make_shared<TypeNode>(*top);
  for (Type& e : node->elements) {
    Type r = resolve_all(e);
    changed |= r != e;
    e = std::move(r);
  }
  return changed ? Type(node) : t;
}

bool TypeSolutions::occurs(const std::string& name, const Type& in) const {
  const Type t = resolve(in);
  if (is_flexible(t)) return t->name == name;
  return t && std::any_of(t->elements.begin(), t->elements.end(),
                          [&](const Type& e) { return occurs(name, e); });
}

std::string TypeSolutions::str(const Type& t) const {
  std::function<Type(const Type&)> show = [&](const Type& x) -> Type {
    if (!x) return x;
    if (is_flexible(x)) return variable_type("_");
    auto node = std::make_shared<TypeNode>(*x);
    for (Type& e : node->elements) e = show(e);
    return node;
  };
  return ir::str(show(resolve_all(t)));
}

Dim substitute_any(const Dim& d, const std::map<std::string, Dim>& bound) {
  if (d.is_any()) return d;
  std::map<std::string, Dim> plain;
  for (const std::string& s : d.symbols()) {
    auto it = bound.find(s);
    if (it == bound.end()) continue;
    if (it->second.is_any()) return Dim::any();
    plain.emplace(s, it->second);
  }
  return plain.empty() ? d : d.substitute(plain);
}

namespace {

bool mentions(const Dim& d, const std::set<std::string>& names) {
  const std::set<std::string> used = d.symbols();
  return std::any_of(used.begin(), used.end(), [&](const auto& s) { return names.contains(s); });
}

Type instantiate_inside(const Type& t, const std::set<std::string>& rigid,
                        const std::map<std::string, Dim>& bound, bool in_function,
                        const MatchContext& c) {
  if (TypeSolutions::is_flexible(t)) return c.types.resolve_all(t);
  auto node = std::make_shared<TypeNode>(*t);
  for (Dim& d : node->dims) {
    if (d.is_any()) continue;
    bool open = false;
    for (const std::string& s : d.symbols()) open |= !rigid.contains(s) && !bound.contains(s);
    d = open && !in_function ? Dim::any() : substitute_any(d, bound);
    if (!d.is_any()) d = c.facts.simplify(d);
  }
  const bool function = in_function || t->kind == TypeKind::kFunction;
  for (Type& e : node->elements) e = instantiate_inside(e, rigid, bound, function, c);
  return node;
}

}  // namespace

Type instantiate(const Type& type, const std::set<std::string>& rigid,
                 std::map<std::string, Dim>& bound, const MatchContext& c) {
  const auto is_open = [&](const std::string& s) {
    return !rigid.contains(s) && !bound.contains(s);
  };
  // What stands alone somewhere can be read; an expression of anything else is a new extent.
  std::set<std::string> bare;
  bare_symbols_of(type, bare);
  std::map<Dim, Dim> unreadable;
  const auto direct_dim = [&](const Dim& d) {
    if (d.is_any()) return c.fresh();
    bool readable = true;
    for (const std::string& s : d.symbols()) {
      if (is_open(s) && bare.contains(s)) bound.emplace(s, c.fresh());
      readable &= !is_open(s);
    }
    if (!readable) {
      auto it = unreadable.find(d);
      return it != unreadable.end() ? it->second : unreadable.emplace(d, c.fresh()).first->second;
    }
    const Dim out = substitute_any(d, bound);
    return out.is_any() ? c.fresh() : c.facts.simplify(out);
  };
  // What a type variable stands for speaks of the caller's extents.
  const auto solved = [&](const Type& x) {
    return map_direct_dims(c.types.resolve_all(x),
                           [&](const Dim& d) { return d.is_any() ? c.fresh() : d; });
  };
  std::function<Type(const Type&)> direct = [&](const Type& x) -> Type {
    if (TypeSolutions::is_flexible(x)) return solved(x);
    if (x->kind == TypeKind::kFunction || x->kind == TypeKind::kData) return x;
    auto node = std::make_shared<TypeNode>(*x);
    for (Dim& d : node->dims) d = direct_dim(d);
    for (Type& e : node->elements) e = direct(e);
    return node;
  };
  std::function<Type(const Type&, const Type&)> inside = [&](const Type& x,
                                                             const Type& original) -> Type {
    if (TypeSolutions::is_flexible(original) || original->kind == TypeKind::kTensor) return x;
    if (x->kind == TypeKind::kData) return instantiate_inside(x, rigid, bound, false, c);
    if (x->kind == TypeKind::kFunction) {
      // The function's own symbols must not be taken for the caller's.
      std::map<std::string, Dim> all = bound;
      std::set<std::string> used;
      all_symbols_of(x, used);
      for (const std::string& s : used) {
        if (!is_open(s) || !c.known.contains(s)) continue;
        std::string name = s + ".1";
        while (c.known.contains(name) || used.contains(name)) name += ".1";
        all.emplace(s, Dim::symbol(name));
      }
      return instantiate_inside(x, rigid, all, true, c);
    }
    auto node = std::make_shared<TypeNode>(*x);
    for (size_t i = 0; i < node->elements.size(); ++i) {
      node->elements[i] = inside(x->elements[i], original->elements[i]);
    }
    return node;
  };
  return inside(direct(type), type);
}

Type leave_block(const Type& type, const std::set<std::string>& inner, bool rename,
                 const MatchContext& c) {
  std::map<std::string, Dim> renamed;
  std::function<Type(const Type&, bool, bool)> walk = [&](const Type& x, bool inside,
                                                          bool function) -> Type {
    if (!x) return x;
    auto node = std::make_shared<TypeNode>(*x);
    for (Dim& d : node->dims) {
      if (d.is_any() || !mentions(d, inner)) continue;
      if (function) {
        c.fail(fmt::format("the closure's type {} depends on the extent {}, which is known in its "
                           "block only",
                           str(type), d.str()),
               "give its parameter a symbol of its own, or ?");
      }
      if (inside) {
        d = Dim::any();
      } else if (rename) {
        auto s = d.as_symbol();
        if (s && !renamed.contains(*s)) renamed.emplace(*s, c.fresh());
        d = s ? renamed.at(*s) : c.fresh();
      }
    }
    for (Type& e : node->elements) {
      e = walk(e, inside || x->kind == TypeKind::kData, function || x->kind == TypeKind::kFunction);
    }
    return node;
  };
  return walk(c.types.resolve_all(type), false, false);
}

void symbols_of(const Type& t, std::set<std::string>& all) {
  if (!t || t->kind == TypeKind::kFunction) return;
  for (const Dim& d : t->dims) all.merge(d.symbols());
  for (const Type& e : t->elements) symbols_of(e, all);
}

void bare_symbols_of(const Type& t, std::set<std::string>& bare) {
  if (!t || t->kind == TypeKind::kFunction || t->kind == TypeKind::kData) return;
  for (const Dim& d : t->dims) {
    if (auto s = d.as_symbol()) bare.insert(*s);
  }
  for (const Type& e : t->elements) bare_symbols_of(e, bare);
}

Type map_direct_dims(const Type& t, const std::function<Dim(const Dim&)>& f) {
  if (!t || t->kind == TypeKind::kFunction || t->kind == TypeKind::kData) return t;
  auto node = std::make_shared<TypeNode>(*t);
  for (Dim& d : node->dims) d = f(d);
  for (Type& e : node->elements) e = map_direct_dims(e, f);
  return node;
}

bool is_invariant(const Module& m, const DataType& d, size_t variable) {
  std::set<std::pair<std::string, size_t>> seen;
  std::function<bool(const DataType&, size_t)> search = [&](const DataType& x, size_t i) -> bool {
    if (i >= x.variables.size() || !seen.insert({x.name, i}).second) return false;
    std::function<bool(const Type&, bool)> found = [&](const Type& t, bool parameter) -> bool {
      if (!t) return false;
      if (t->kind == TypeKind::kVariable) return parameter && t->name == x.variables[i];
      for (size_t k = 0; k < t->elements.size(); ++k) {
        const bool is_parameter = t->kind == TypeKind::kFunction && k + 1 < t->elements.size();
        if (found(t->elements[k], parameter || is_parameter)) return true;
        const DataType* inner = t->kind == TypeKind::kData ? m.find_data(t->name) : nullptr;
        // The variable as part of another data type's invariant argument.
        std::function<bool(const Type&)> uses = [&](const Type& u) {
          return u && ((u->kind == TypeKind::kVariable && u->name == x.variables[i]) ||
                       std::any_of(u->elements.begin(), u->elements.end(), uses));
        };
        if (inner && uses(t->elements[k]) && search(*inner, k)) return true;
      }
      return false;
    };
    for (const Constructor& c : x.constructors) {
      for (const Type& t : c.fields) {
        if (found(t, false)) return true;
      }
    }
    return false;
  };
  return search(d, variable);
}

}  // namespace nimble::ir
