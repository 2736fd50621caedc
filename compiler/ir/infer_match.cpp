#include "compiler/ir/infer_match.h"

#include <algorithm>

#include "vm/base/error.h"

namespace nimble::ir {
namespace {

// Visits the dims of two types of one structure in parallel.
void zip(const Type& pattern, const Type& actual, const std::string& what, const MatchContext& c,
         const std::function<void(const Dim&, const Dim&, size_t axis)>& visit) {
  if (!pattern || !actual) return;
  const bool same = pattern->kind == actual->kind && pattern->dtype == actual->dtype &&
                    pattern->dims.size() == actual->dims.size() &&
                    pattern->elements.size() == actual->elements.size() &&
                    pattern->name == actual->name;
  if (!same) {
    c.fail(fmt::format("{} is {} where {} is expected", what, str(actual), str(pattern)),
           pattern->kind == TypeKind::kTensor && actual->kind == TypeKind::kTensor &&
                   pattern->dtype != actual->dtype
               ? "insert cast"
               : "correct the value or the annotation");
  }
  for (size_t i = 0; i < pattern->dims.size(); ++i) visit(pattern->dims[i], actual->dims[i], i);
  for (size_t i = 0; i < pattern->elements.size(); ++i) {
    zip(pattern->elements[i], actual->elements[i], what, c, visit);
  }
}

// Solves pattern == actual for the only unbound symbol of pattern, which occurs linearly.
std::optional<std::pair<std::string, Dim>> solve(const Dim& pattern, const Dim& actual,
                                                 const std::set<std::string>& unbound) {
  if (unbound.size() != 1) return std::nullopt;
  for (const Dim::Term& t : pattern.terms()) {
    if (t.atoms.size() != 1 || t.coefficient <= 0) continue;
    auto s = t.atoms[0].as_symbol();
    if (!s || !unbound.contains(*s)) continue;
    const Dim rest = pattern - Dim(t.coefficient) * t.atoms[0];
    if (rest.symbols().contains(*s)) return std::nullopt;
    return std::pair(*s, floordiv(actual - rest, Dim(t.coefficient)));
  }
  return std::nullopt;
}

}  // namespace

void match_parameter(const Type& pattern, const Type& actual, const std::set<std::string>& rigid,
                     std::map<std::string, Dim>& bound, const std::string& what,
                     const MatchContext& c) {
  // Bare symbols first, in order; then everything else is a demand.
  zip(pattern, actual, what, c, [&](const Dim& p, const Dim& a, size_t) {
    auto s = p.as_symbol();
    if (s && !rigid.contains(*s) && !a.is_any()) bound.try_emplace(*s, a);
  });
  zip(pattern, actual, what, c, [&](const Dim& p, const Dim& a, size_t axis) {
    if (p.is_any() || a.is_any()) return;
    std::set<std::string> unbound;
    for (const std::string& s : p.symbols()) {
      if (!rigid.contains(s) && !bound.contains(s)) unbound.insert(s);
    }
    if (auto solved = solve(p, a, unbound)) {
      bound.emplace(*solved);
      unbound.clear();
    }
    if (!unbound.empty()) {
      c.fail(fmt::format("dim {} of {} cannot be solved for {}", p.str(), what, *unbound.begin()),
             fmt::format("give some parameter the plain dim {}", *unbound.begin()));
    }
    c.require_equal(a, p.substitute(bound), fmt::format("axis {} of {}", axis, what));
  });
}

Type instantiate(const Type& type, const std::set<std::string>& rigid,
                 std::map<std::string, Dim>& bound, const MatchContext& c) {
  std::set<std::string> all;
  symbols_of(type, all);
  for (const std::string& s : all) {
    if (!rigid.contains(s) && !bound.contains(s)) bound.emplace(s, c.fresh());
  }
  return map_dims(type, [&](const Dim& d) {
    return d.is_any() ? c.fresh() : c.facts.simplify(d.substitute(bound));
  });
}

Type join(const Type& a, const Type& b, const MatchContext& c) {
  std::vector<Dim> joined;
  zip(a, b, "the else branch", c, [&](const Dim& x, const Dim& y, size_t) {
    if (x.is_any() || y.is_any()) {
      joined.push_back(c.fresh());
    } else if (c.facts.equal(x, y) == Proof::kYes) {
      joined.push_back(x);
    } else {
      const Dim d = c.fresh();
      const DimContext::Interval rx = c.facts.range(x), ry = c.facts.range(y);
      c.facts.set(*d.as_symbol(),
                  {std::max<int64_t>(std::min(rx.low, ry.low), 0), std::max(rx.high, ry.high), 1});
      joined.push_back(d);
    }
  });
  size_t next = 0;
  return map_dims(a, [&](const Dim&) { return joined[next++]; });
}

void symbols_of(const Type& t, std::set<std::string>& all) {
  if (!t) return;
  for (const Dim& d : t->dims) all.merge(d.symbols());
  for (const Type& e : t->elements) symbols_of(e, all);
}

void bare_symbols_of(const Type& t, std::set<std::string>& bare) {
  if (!t) return;
  for (const Dim& d : t->dims) {
    if (auto s = d.as_symbol()) bare.insert(*s);
  }
  for (const Type& e : t->elements) bare_symbols_of(e, bare);
}

Type map_dims(const Type& t, const std::function<Dim(const Dim&)>& f) {
  if (!t) return t;
  auto node = std::make_shared<TypeNode>(*t);
  for (Dim& d : node->dims) d = f(d);
  for (Type& e : node->elements) e = map_dims(e, f);
  return node;
}

}  // namespace nimble::ir
