#include "compiler/ir/infer_match.h"

#include <algorithm>

#include "vm/base/error.h"

namespace nimble::ir {
namespace {

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

// A type that a value made elsewhere may have: extents of this place mean nothing there.
Type generalise(const Type& t, const MatchContext& c) {
  if (!t) return t;
  return map_dims(c.types.resolve_all(t), [&](const Dim& d) {
    if (d.is_any()) return d;
    const std::set<std::string> used = d.symbols();
    return std::includes(c.entry.begin(), c.entry.end(), used.begin(), used.end()) ? d : Dim::any();
  });
}

Type join_inside(const Type& a, const Type& b, const std::string& what, const MatchContext& c);

class Matcher {
 public:
  Matcher(const std::set<std::string>& rigid, const std::set<std::string>& widening,
          std::set<std::string>& fixed, std::map<std::string, Dim>& bound, std::string what,
          const MatchContext& c)
      : rigid_(rigid),
        widening_(widening),
        fixed_(fixed),
        bound_(bound),
        what_(std::move(what)),
        c_(c) {}

  void run(const Type& pattern, const Type& actual, bool inside) {
    bind(pattern, actual, /*inside=*/false);
    bind(pattern, actual, /*inside=*/true);
    const size_t marker = what_.find("{}");
    if (marker != std::string::npos && pattern->elements.size() == actual->elements.size()) {
      const std::string form = what_;
      for (size_t i = 0; i < pattern->elements.size(); ++i) {
        what_ = form;
        what_.replace(marker, 2, std::to_string(i + 1));
        expected_ = pattern->elements[i], given_ = actual->elements[i];
        check(pattern->elements[i], actual->elements[i], inside);
      }
    } else {
      if (!expected_) expected_ = pattern, given_ = actual;
      check(pattern, actual, inside);
    }
    // By index: matching one function may find another inside.
    for (size_t i = 0; i < functions_.size(); ++i) {
      const Pending next = functions_[i];
      what_ = next.what, expected_ = next.expected, given_ = next.given;
      function(next.pattern, next.actual);
    }
  }

 private:
  [[noreturn]] void mismatch(const Type& pattern, const Type& actual) {
    const Type p = c_.types.resolve(pattern), a = c_.types.resolve(actual);
    // Of function types the whole: a parameter alone would show the wrong way round.
    std::string problem = fmt::format("{} is {} where {} is expected", what_,
                                      c_.types.str(in_function_ ? given_ : actual),
                                      c_.types.str(in_function_ ? expected_ : pattern));
    std::string remedy = "correct the value or the annotation";
    if (p && a && p->kind == TypeKind::kTensor && a->kind == TypeKind::kTensor) {
      if (p->dtype != a->dtype)
        remedy = "insert cast";
      else if (p->dims.size() != a->dims.size())
        remedy = "reshape it, or correct the annotation";
    }
    if (p && p->kind == TypeKind::kVariable && !TypeSolutions::is_flexible(p)) {
      remedy = fmt::format(
          "a value of type {} is only passed on; give the function a type "
          "instead of the variable",
          p->name);
    }
    c_.fail(problem, remedy);
    NIMBLE_UNREACHABLE("fail returned");
  }

  bool is_free(const std::string& s) const { return !rigid_.contains(s) && !bound_.contains(s); }

  // Plain symbols bind before any dim is compared: first to extents that a run can read.
  void bind(const Type& pattern, const Type& actual, bool inside) {
    if (!pattern || !actual) return;
    const Type a = c_.types.resolve(actual);
    if (pattern->kind != a->kind || pattern->elements.size() != a->elements.size() ||
        pattern->dims.size() != a->dims.size()) {
      return;
    }
    for (size_t i = 0; i < pattern->dims.size(); ++i) {
      auto s = pattern->dims[i].is_any() ? std::nullopt : pattern->dims[i].as_symbol();
      if (s && is_free(*s) && !a->dims[i].is_any()) bound_.emplace(*s, a->dims[i]);
    }
    if (pattern->kind == TypeKind::kFunction || (pattern->kind == TypeKind::kData && !inside)) {
      return;
    }
    for (size_t i = 0; i < pattern->elements.size(); ++i) {
      bind(pattern->elements[i], a->elements[i], inside);
    }
  }

  void solve_variable(const Type& variable, const Type& t) {
    if (c_.types.occurs(variable->name, t)) {
      c_.fail(fmt::format("{} would have to be of a type that contains itself", what_),
              "bind the inner and the outer value to variables of their own");
    }
    c_.types.found[variable->name] = t;
  }

  // Whether flexible variables settled the pair.
  bool variables(const Type& pattern, const Type& actual) {
    const Type a = c_.types.resolve(actual);
    if (TypeSolutions::is_flexible(pattern) && widening_.contains(pattern->name)) {
      auto it = c_.types.found.find(pattern->name);
      if (it == c_.types.found.end()) {
        if (!(TypeSolutions::is_flexible(a) && a->name == pattern->name)) {
          solve_variable(pattern, a);
        }
        return true;
      }
      const Type now = c_.types.resolve(it->second);
      if (TypeSolutions::is_flexible(now) && TypeSolutions::is_flexible(a) &&
          now->name == a->name) {
        return true;
      }
      if (fixed_.contains(pattern->name)) {
        check(now, a, /*inside=*/true);
      } else {
        solve_variable(pattern, join_inside(now, a, what_, c_));
      }
      return true;
    }
    const Type p = c_.types.resolve(pattern);
    if (TypeSolutions::is_flexible(p)) {
      if (!(TypeSolutions::is_flexible(a) && a->name == p->name)) {
        solve_variable(p, generalise(a, c_));
      }
      return true;
    }
    if (TypeSolutions::is_flexible(a)) {
      solve_variable(a, generalise(map_dims(p, [&](const Dim& d) { return bound_dim(d); }), c_));
      fixed_.insert(a->name);
      return true;
    }
    return false;
  }

  // A pattern's dim with what is bound; free symbols are any extent.
  Dim bound_dim(const Dim& d) const {
    if (d.is_any()) return d;
    for (const std::string& s : d.symbols()) {
      if (is_free(s)) return Dim::any();
    }
    return substitute_any(d, bound_);
  }

  void check(const Type& pattern, const Type& actual, bool inside) {
    if (!pattern || !actual) return;
    if (actual->kind == TypeKind::kVariable) fixed_.insert(actual->name);
    if (variables(pattern, actual)) return;
    const Type p = c_.types.resolve(pattern), a = c_.types.resolve(actual);
    if (p->kind != a->kind || p->dtype != a->dtype || p->dims.size() != a->dims.size() ||
        p->elements.size() != a->elements.size() || p->name != a->name) {
      mismatch(p, a);
    }
    if (p->kind == TypeKind::kFunction) {
      functions_.push_back({p, a, expected_, given_, what_});
      return;
    }
    for (size_t i = 0; i < p->dims.size(); ++i) dim(p->dims[i], a->dims[i], i, inside);
    const DataType* data = p->kind == TypeKind::kData ? c_.module.find_data(p->name) : nullptr;
    for (size_t i = 0; i < p->elements.size(); ++i) {
      check(p->elements[i], a->elements[i], inside || data);
      if (!data || !is_invariant(c_.module, *data, i)) continue;
      const Type exact = map_dims(c_.types.resolve_all(p->elements[i]),
                                  [&](const Dim& d) { return bound_dim(d); });
      if (!equal(exact, c_.types.resolve_all(a->elements[i]))) mismatch(p, a);
    }
  }

  void dim(const Dim& p, const Dim& a, size_t axis, bool inside) {
    if (p.is_any()) return;
    if (a.is_any()) {
      auto s = p.as_symbol();
      if (s && is_free(*s)) {
        bound_.emplace(*s, Dim::any());
        return;
      }
      c_.fail(
          fmt::format("{} is {}, whose extent ? may differ from value to value, where {} is "
                      "expected",
                      what_, c_.types.str(given_), c_.types.str(expected_)),
          "write ? there, or match the tensors out: an annotation of their variable is checked");
    }
    std::set<std::string> unbound;
    for (const std::string& s : p.symbols()) {
      if (is_free(s)) unbound.insert(s);
    }
    if (auto solved = solve(p, a, unbound)) {
      bound_.emplace(*solved);
      unbound.clear();
    }
    if (!unbound.empty()) {
      c_.fail(fmt::format("dim {} of {} cannot be solved for {}", p.str(), what_, *unbound.begin()),
              fmt::format("give some parameter the plain dim {}", *unbound.begin()));
    }
    const Dim expected = substitute_any(p, bound_);
    if (expected.is_any()) {
      c_.fail(fmt::format("{}: the extent {} stands for ?, which may differ from value to value",
                          what_, p.str()),
              "write ? for every extent that may differ");
    }
    if (inside) {
      const std::set<std::string> left = a.symbols(), right = expected.symbols();
      const bool readable =
          std::includes(c_.known.begin(), c_.known.end(), left.begin(), left.end()) &&
          std::includes(c_.known.begin(), c_.known.end(), right.begin(), right.end());
      if (!readable && c_.facts.equal(a, expected) != Proof::kYes) {
        c_.fail(fmt::format("{} is {} where {} is expected: {} and {} are not known to be equal, "
                            "and cannot be read at run time",
                            what_, c_.types.str(given_), c_.types.str(expected_), a.str(),
                            expected.str()),
                "write ? there, or use one symbol for both");
      }
    }
    c_.require_equal(a, expected, fmt::format("axis {} of {}", axis, what_));
  }

  void function(const Type& pattern, const Type& actual) {
    // Symbols of the pattern that nothing outside of it binds are its caller's choice; those of
    // the value are bound by what it is called with.
    std::set<std::string> of_pattern, of_actual, of_parameters;
    all_symbols_of(pattern, of_pattern);
    all_symbols_of(actual, of_actual);
    for (size_t i = 0; i + 1 < pattern->elements.size(); ++i) {
      all_symbols_of(pattern->elements[i], of_parameters);
    }
    std::map<std::string, Dim> choice = bound_;
    for (const std::string& s : of_pattern) {
      if (!is_free(s)) continue;
      choice.emplace(s, of_parameters.contains(s) ? Dim::symbol(fresh_symbol()) : Dim::any());
    }
    std::map<std::string, Dim> renamed, own;
    for (const std::string& s : of_actual) {
      if (!c_.known.contains(s) && !skolems_.contains(s)) {
        renamed.emplace(s, Dim::symbol(fresh_symbol()));
      }
    }
    for (const auto& [name, d] : choice) {
      if (auto s = d.is_any() ? std::nullopt : d.as_symbol(); s && !c_.known.contains(*s)) {
        skolems_.insert(*s);
      }
    }
    const Type p = map_dims(pattern, [&](const Dim& d) { return substitute_any(d, choice); });
    const Type a = map_dims(actual, [&](const Dim& d) { return substitute_any(d, renamed); });
    std::set<std::string> rigid = c_.known;
    rigid.insert(skolems_.begin(), skolems_.end());
    Matcher parameters(rigid, widening_, fixed_, own, what_, c_);
    parameters.skolems_ = skolems_;
    std::vector<Type> given(p->elements.begin(), p->elements.end() - 1);
    std::vector<Type> taken(a->elements.begin(), a->elements.end() - 1);
    parameters.expected_ = expected_, parameters.given_ = given_;
    parameters.in_function_ = true;
    parameters.run(tuple_type(taken), tuple_type(given), /*inside=*/true);
    const Type result = map_dims(a->elements.back(), [&](const Dim& d) {
      if (d.is_any()) return d;
      for (const std::string& s : d.symbols()) {
        if (!own.contains(s) && !rigid.contains(s)) return Dim::any();
      }
      return substitute_any(d, own);
    });
    Matcher results(rigid, widening_, fixed_, own, what_, c_);
    results.skolems_ = skolems_;
    results.expected_ = expected_, results.given_ = given_;
    results.in_function_ = true;
    results.run(p->elements.back(), result, /*inside=*/true);
  }

  const std::set<std::string>& rigid_;
  const std::set<std::string>& widening_;
  std::set<std::string>& fixed_;  // variables that a function's parameter has settled
  std::map<std::string, Dim>& bound_;
  std::string what_;
  const MatchContext& c_;
  Type expected_, given_;  // the whole types, for messages
  bool in_function_ = false;
  std::set<std::string> skolems_;
  struct Pending {
    Type pattern, actual, expected, given;
    std::string what;
  };
  std::vector<Pending> functions_;
};

// Whether `actual` may stand where `pattern` is expected, without any run-time check.
bool fits(const Type& pattern, const Type& actual, const MatchContext& c) {
  struct No {};
  const std::map<std::string, Type> found = c.types.found;
  MatchContext strict = c;
  strict.require_equal = [&](const Dim& a, const Dim& b, const std::string&) {
    if (c.facts.equal(a, b) != Proof::kYes) throw No{};
  };
  strict.fail = [](const std::string&, const std::string&) { throw No{}; };
  try {
    std::map<std::string, Dim> bound;
    match_parameter(pattern, actual, c.known, {}, bound, "", strict);
    return true;
  } catch (const No&) {
    c.types.found = found;
    return false;
  }
}

class Joiner {
 public:
  Joiner(const std::string& what, const MatchContext& c) : what_(what), c_(c) {}

  Type run(const Type& left, const Type& right, bool inside) {
    const Type a = c_.types.resolve(left), b = c_.types.resolve(right);
    if (TypeSolutions::is_flexible(a) || TypeSolutions::is_flexible(b)) return variable(a, b);
    if (a->kind != b->kind || a->dtype != b->dtype || a->dims.size() != b->dims.size() ||
        a->elements.size() != b->elements.size() || a->name != b->name) {
      mismatch(a, b);
    }
    if (a->kind == TypeKind::kFunction) {
      if (fits(a, b, c_)) return a;
      if (fits(b, a, c_)) return b;
      mismatch(a, b);
    }
    auto node = std::make_shared<TypeNode>(*a);
    for (size_t i = 0; i < a->dims.size(); ++i) node->dims[i] = dim(a->dims[i], b->dims[i], inside);
    const DataType* data = a->kind == TypeKind::kData ? c_.module.find_data(a->name) : nullptr;
    for (size_t i = 0; i < a->elements.size(); ++i) {
      node->elements[i] = run(a->elements[i], b->elements[i], inside || data);
      if (data && is_invariant(c_.module, *data, i) &&
          !(equal(c_.types.resolve_all(a->elements[i]), c_.types.resolve_all(b->elements[i])))) {
        mismatch(a, b);
      }
    }
    return node;
  }

 private:
  [[noreturn]] void mismatch(const Type& a, const Type& b) {
    c_.fail(fmt::format("{} is {} where {} is expected", what_, c_.types.str(b), c_.types.str(a)),
            a->kind == TypeKind::kTensor && b->kind == TypeKind::kTensor && a->dtype != b->dtype
                ? "insert cast"
                : "give all branches one type");
    NIMBLE_UNREACHABLE("fail returned");
  }

  Type variable(const Type& a, const Type& b) {
    const bool left = TypeSolutions::is_flexible(a);
    const Type& open = left ? a : b;
    const Type& other = left ? b : a;
    if (TypeSolutions::is_flexible(other) && open->name == other->name) return a;
    if (c_.types.occurs(open->name, other)) {
      c_.fail(fmt::format("{} would have to be of a type that contains itself", what_),
              "bind the inner and the outer value to variables of their own");
    }
    c_.types.found[open->name] = generalise(other, c_);
    return other;
  }

  Dim dim(const Dim& x, const Dim& y, bool inside) {
    if (x.is_any() || y.is_any()) return inside ? Dim::any() : c_.fresh();
    if (c_.facts.equal(x, y) == Proof::kYes) return x;
    if (inside) return Dim::any();
    const Dim d = c_.fresh();
    const DimContext::Interval rx = c_.facts.range(x), ry = c_.facts.range(y);
    c_.facts.set(*d.as_symbol(),
                 {std::max<int64_t>(std::min(rx.low, ry.low), 0), std::max(rx.high, ry.high), 1});
    return d;
  }

  const std::string& what_;
  const MatchContext& c_;
};

// The join as an argument of a data type.
Type join_inside(const Type& a, const Type& b, const std::string& what, const MatchContext& c) {
  return Joiner(what, c).run(a, b, /*inside=*/true);
}

}  // namespace

void match_parameter(const Type& pattern, const Type& actual, const std::set<std::string>& rigid,
                     const std::set<std::string>& widening, std::map<std::string, Dim>& bound,
                     const std::string& what, const MatchContext& c) {
  std::set<std::string> fixed;
  Matcher(rigid, widening, fixed, bound, what, c).run(pattern, actual, /*inside=*/false);
}

Type join(const Type& a, const Type& b, const std::string& what, const MatchContext& c) {
  return Joiner(what, c).run(a, b, /*inside=*/false);
}

}  // namespace nimble::ir
