// The function atoms (floordiv, mod, min, max, broadcast) with the simplifications that hold
// for all values of the symbols, and what walks over a Dim: substitution, evaluation, views.
//
// floordiv and mod by a constant c rest on four identities, for any integers:
//   floordiv(c*q + r, c)   = q + floordiv(r, c)          (terms with divisible coefficients leave)
//   floordiv(g*x + r, g*c) = floordiv(x + floordiv(r, g), c)
//   floordiv(floordiv(x, p) + k, q) = floordiv(x + k*p, p*q)   for p, q > 0
//   mod(a, c) = a - c*floordiv(a, c)
// By a symbolic divisor only what divides exactly leaves. There the identities presume that
// the divisor is not 0, where the original expression would be an error anyway.
//
// Of the operands of min and max those leave that another one decides: floordiv by a positive
// constant is monotone, so floordiv(x + d, c) - floordiv(x, c) lies between floordiv(d, c) and
// ceildiv(d, c), whatever x is. Pooling with ceil_mode takes such a minimum at every level, which
// would double from one to the next.
#include <algorithm>
#include <numeric>
#include <unordered_map>

#include "compiler/ir/dim_node.h"
#include "compiler/ir/within_64_bits.h"

namespace nimble::ir {
namespace {

using Function = Dim::Function;

Dim apply(Function f, std::vector<Dim> operands) {
  std::vector<const DimNode*> nodes;
  for (const Dim& d : operands) nodes.push_back(d.node());
  return DimInterner::wrap(DimInterner::function(f, std::move(nodes)));
}

[[noreturn]] void division_by_zero(const Dim& a) {
  throw Error(Status::kInvalidArgument, "dim", fmt::format("division of {} by zero", a.str()),
              "make the divisor positive");
}

int64_t magnitude(int64_t v) {
  return v < 0 ? checked_mul(v, -1) : v;
}

Dim from_terms(const Terms& t) {
  return DimInterner::wrap(DimInterner::sum(t));
}

// a = c*quotient + rest, with every coefficient of `rest` smaller than c in magnitude and its
// constant in [0, c). c > 0.
struct Split {
  Dim quotient, rest;
};
Split split_by_constant(const Dim& a, int64_t c) {
  Terms all, quotient, rest;
  terms_of(a.node(), all);
  for (const PolyTerm& t : all) {
    const int64_t q = t.monomial ? t.coefficient / c : floor_div(t.coefficient, c);
    const int64_t r = t.monomial ? t.coefficient % c : floor_mod(t.coefficient, c);
    if (q != 0) quotient.push_back({q, t.monomial});
    if (r != 0) rest.push_back({r, t.monomial});
  }
  return {from_terms(quotient), from_terms(rest)};
}

// The constant term of a, and the gcd of its other coefficients (0 if it has no others).
std::pair<int64_t, int64_t> constant_and_gcd(const Dim& a) {
  Terms all;
  terms_of(a.node(), all);
  int64_t constant = 0, g = 0;
  for (const PolyTerm& t : all) {
    if (t.monomial) {
      g = std::gcd(g, magnitude(t.coefficient));
    } else {
      constant = t.coefficient;
    }
  }
  return {constant, g};
}

Dim divided_coefficients(const Dim& a, int64_t g) {  // all divisible by g
  Terms all, out;
  terms_of(a.node(), all);
  for (const PolyTerm& t : all) out.push_back({t.coefficient / g, t.monomial});
  return from_terms(out);
}

// If a is `atom + constant` with `atom` an application of f with a positive constant divisor.
struct AtomPlus {
  Dim operand;
  int64_t divisor, constant;
};
std::optional<AtomPlus> atom_plus_constant(const Dim& a, Function f) {
  Terms all;
  terms_of(a.node(), all);
  if (all.empty() || all.size() > 2 || !all[0].monomial || all[0].coefficient != 1 ||
      all[0].monomial->atoms.size() != 1 || (all.size() == 2 && all[1].monomial)) {
    return std::nullopt;
  }
  const DimNode* atom = all[0].monomial->atoms[0];
  if (atom->kind != DimNode::Kind::kFunction || atom->function != f) return std::nullopt;
  const DimNode* divisor = atom->operands[1];
  if (divisor->kind != DimNode::Kind::kConstant || divisor->constant <= 0) return std::nullopt;
  return AtomPlus{DimInterner::wrap(atom->operands[0]), divisor->constant,
                  all.size() == 2 ? all[1].coefficient : 0};
}

Dim floordiv_constant(const Dim& a, int64_t c) {
  if (c == 0) division_by_zero(a);
  if (c < 0) return floordiv_constant(a * Dim(-1), checked_mul(c, -1));
  if (c == 1) return a;
  auto [quotient, rest] = split_by_constant(a, c);
  auto [r, g] = constant_and_gcd(rest);
  if (g == 0) return quotient;  // rest is a constant in [0, c)
  g = std::gcd(g, c);
  if (g > 1) {
    const Dim inner = divided_coefficients(rest - Dim(r), g) + Dim(r / g);
    return quotient + floordiv_constant(inner, c / g);
  }
  if (auto m = atom_plus_constant(rest, Function::kMod)) {
    if (m->divisor - 1 <= c - 1 - m->constant) return quotient;
  }
  if (auto d = atom_plus_constant(rest, Function::kFloorDiv)) {
    const Dim x = d->operand + Dim(d->constant) * Dim(d->divisor);
    return quotient + floordiv_constant(x, checked_mul(d->divisor, c));
  }
  return quotient + apply(Function::kFloorDiv, {rest, Dim(c)});
}

Dim mod_constant(const Dim& a, int64_t c) {
  if (c == 0) division_by_zero(a);
  if (c < 0) return mod_constant(a * Dim(-1), checked_mul(c, -1)) * Dim(-1);
  if (c == 1) return Dim(0);
  Dim rest = split_by_constant(a, c).rest;
  // A mod(x, p) with c | p inside counts as x.
  Terms all;
  terms_of(rest.node(), all);
  for (const PolyTerm& t : all) {
    if (!t.monomial || t.monomial->atoms.size() != 1) continue;
    const DimNode* atom = t.monomial->atoms[0];
    if (atom->kind != DimNode::Kind::kFunction || atom->function != Function::kMod) continue;
    const DimNode* p = atom->operands[1];
    if (p->kind != DimNode::Kind::kConstant || floor_mod(p->constant, c) != 0) continue;
    const Dim inside = DimInterner::wrap(atom->operands[0]) - DimInterner::wrap(atom);
    return mod_constant(rest + Dim(t.coefficient) * inside, c);
  }
  auto [r, g] = constant_and_gcd(rest);
  if (g == 0) return Dim(r);
  g = std::gcd(g, c);
  if (g > 1) {
    const Dim inner = divided_coefficients(rest - Dim(r), g) + Dim(r / g);
    return Dim(g) * mod_constant(inner, c / g) + Dim(r % g);
  }
  if (auto m = atom_plus_constant(rest, Function::kMod)) {
    if (m->divisor - 1 <= c - 1 - m->constant) return rest;
  }
  return apply(Function::kMod, {rest, Dim(c)});
}

// The monomial that all terms of a share.
const Monomial* common_monomial(const Dim& a) {
  Terms all;
  terms_of(a.node(), all);
  if (all.empty() || !all[0].monomial) return nullptr;
  std::vector<const DimNode*> common = all[0].monomial->atoms;
  for (const PolyTerm& t : all) {
    if (!t.monomial) return nullptr;
    std::vector<const DimNode*> next;
    std::set_intersection(common.begin(), common.end(), t.monomial->atoms.begin(),
                          t.monomial->atoms.end(), std::back_inserter(next),
                          [](const DimNode* x, const DimNode* y) { return compare(x, y) < 0; });
    common = std::move(next);
  }
  return DimInterner::product(std::move(common));
}

// Takes out of a / b what divides exactly (b symbolic): a = b*quotient + rest, and cancels the
// factors that rest and b share.
struct Division {
  Dim quotient, rest, divisor, cancelled;
};
Division divide_symbolically(const Dim& a, const Dim& b) {
  if (auto q = divide_exactly(a, b)) return {*q, Dim(0), b, Dim(1)};
  Dim quotient, rest = a;
  Terms divisor;
  terms_of(b.node(), divisor);
  if (divisor.size() == 1) {
    Terms all, out, left;
    terms_of(a.node(), all);
    for (const PolyTerm& t : all) {
      auto m = divide(t.monomial, divisor[0].monomial);
      const int64_t q = m ? checked_div(t.coefficient, divisor[0].coefficient) : 0;
      const int64_t r = m ? remainder(t.coefficient, divisor[0].coefficient) : t.coefficient;
      if (q != 0) out.push_back({q, *m});
      if (r != 0) left.push_back({r, t.monomial});
    }
    std::sort(out.begin(), out.end(), [](const PolyTerm& s, const PolyTerm& t) {
      return compare(s.monomial, t.monomial) < 0;
    });
    quotient = from_terms(out);
    rest = from_terms(left);
  }
  // Cancel monomials only: they keep every coefficient.
  const Monomial* x = common_monomial(rest);
  const Monomial* y = common_monomial(b);
  if (x && y) {
    std::vector<const DimNode*> both;
    std::set_intersection(x->atoms.begin(), x->atoms.end(), y->atoms.begin(), y->atoms.end(),
                          std::back_inserter(both),
                          [](const DimNode* s, const DimNode* t) { return compare(s, t) < 0; });
    if (!both.empty()) {
      Terms one;
      one.push_back({1, DimInterner::product(std::move(both))});
      const Dim factor = from_terms(one);
      return {quotient, *divide_exactly(rest, factor), *divide_exactly(b, factor), factor};
    }
  }
  return {quotient, rest, b, Dim(1)};
}

void refuse_any(std::initializer_list<Dim> operands) {
  for (const Dim& d : operands) NIMBLE_CHECK(!d.is_any(), "arithmetic on the wildcard ?");
}

// The operands of a, if it is an application of f, else a itself.
void flatten(Function f, const Dim& a, std::vector<Dim>& out) {
  const DimNode* n = a.node();
  if (n->kind == DimNode::Kind::kFunction && n->function == f) {
    for (const DimNode* o : n->operands) out.push_back(DimInterner::wrap(o));
  } else {
    out.push_back(a);
  }
}

// An operand of min or max as scale*floordiv(inner + shift, divisor) + rest + constant; scale is 0
// where there is no such floordiv, or more than one. Operands that agree in all but the two
// constants can be compared.
struct Operand {
  std::vector<PolyTerm> inner, rest;  // without their constants
  int64_t divisor = 1, scale = 0;
  int64_t shift = 0, constant = 0;
};
Operand operand_of(const Dim& d) {
  Operand out;
  Terms all;
  terms_of(d.node(), all);
  size_t found = all.size();  // the term of the floordiv
  int candidates = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    const Monomial* m = all[i].monomial;
    if (!m || m->atoms.size() != 1 || m->atoms[0]->kind != DimNode::Kind::kFunction) continue;
    const DimNode* atom = m->atoms[0];
    if (atom->function != Function::kFloorDiv ||
        atom->operands[1]->kind != DimNode::Kind::kConstant || atom->operands[1]->constant <= 0)
      continue;
    found = i;
    ++candidates;
  }
  for (size_t i = 0; i < all.size(); ++i) {
    if (candidates == 1 && i == found) {
      const DimNode* atom = all[i].monomial->atoms[0];
      Terms inner;
      terms_of(atom->operands[0], inner);
      for (const PolyTerm& t : inner) {
        if (t.monomial)
          out.inner.push_back(t);
        else
          out.shift = t.coefficient;
      }
      out.divisor = atom->operands[1]->constant;
      out.scale = all[i].coefficient;
    } else if (all[i].monomial) {
      out.rest.push_back(all[i]);
    } else {
      out.constant = all[i].coefficient;
    }
  }
  return out;
}

// Of operands that can be compared: whether a >= b for all values of the symbols.
bool at_least(const Operand& a, const Operand& b) {
  int64_t least = 0;  // of scale * (floordiv(inner + a.shift, c) - floordiv(inner + b.shift, c))
  if (a.scale != 0) {
    const int64_t d = checked_add(a.shift, checked_mul(b.shift, -1));
    const int64_t down = floor_div(d, a.divisor), up = -floor_div(checked_mul(d, -1), a.divisor);
    least = checked_mul(a.scale, a.scale > 0 ? down : up);
  }
  if (least == 0) return a.constant >= b.constant;  // their difference may have no 64 bits
  return checked_add(least, checked_add(a.constant, checked_mul(b.constant, -1))) >= 0;
}

bool same_terms(const std::vector<PolyTerm>& a, const std::vector<PolyTerm>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const PolyTerm& s, const PolyTerm& t) {
                      return s.coefficient == t.coefficient && s.monomial == t.monomial;
                    });
}

uint64_t hash_of(const std::vector<PolyTerm>& terms, uint64_t h) {
  for (const PolyTerm& t : terms)
    h = (h ^ t.monomial->hash ^ static_cast<uint64_t>(t.coefficient)) * 0xff51afd7ed558ccdull;
  return h;
}

// Those of the operands, sorted and distinct, that no other one makes superfluous.
std::vector<Dim> decisive(Function f, const std::vector<Dim>& operands) {
  const auto superfluous = [&](const Operand& x, const Operand& beside) {
    return within_64_bits(
        [&] { return f == Function::kMin ? at_least(x, beside) : at_least(beside, x); }, false);
  };
  std::vector<Operand> forms;
  std::vector<bool> dropped(operands.size(), false);
  std::unordered_map<uint64_t, std::vector<size_t>> comparable;
  for (size_t i = 0; i < operands.size(); ++i) {
    forms.push_back(operand_of(operands[i]));
    const Operand& x = forms.back();
    const auto key = static_cast<uint64_t>(x.divisor) * 31 + static_cast<uint64_t>(x.scale);
    std::vector<size_t>& others = comparable[hash_of(x.rest, hash_of(x.inner, key))];
    for (size_t j : others) {
      const Operand& y = forms[j];
      if (dropped[j] || x.divisor != y.divisor || x.scale != y.scale ||
          !same_terms(x.inner, y.inner) || !same_terms(x.rest, y.rest))
        continue;
      if (superfluous(y, x)) {
        dropped[j] = true;
      } else if (superfluous(x, y)) {
        dropped[i] = true;
        break;
      }
    }
    others.push_back(i);
  }
  std::vector<Dim> kept;
  for (size_t i = 0; i < operands.size(); ++i)
    if (!dropped[i]) kept.push_back(operands[i]);
  return kept;
}

Dim min_or_max(Function f, const Dim& a, const Dim& b) {
  refuse_any({a, b});
  std::vector<Dim> operands;
  flatten(f, a, operands);
  flatten(f, b, operands);
  std::sort(operands.begin(), operands.end());
  operands.erase(std::unique(operands.begin(), operands.end()), operands.end());
  std::vector<Dim> kept = decisive(f, operands);
  return kept.size() == 1 ? kept[0] : apply(f, std::move(kept));
}

int64_t broadcast_values(int64_t a, int64_t b) {
  if (a == 1 || a == b) return b;
  if (b == 1) return a;
  throw Error(Status::kInvalidArgument, "dim",
              fmt::format("extents {} and {} cannot be broadcast together", a, b),
              "make them equal, or one of them 1");
}

Dim substitute_node(const DimNode* n, const std::map<std::string, Dim>& replacement,
                    uint64_t mask) {
  if (!(n->symbol_mask & mask)) return DimInterner::wrap(n);
  switch (n->kind) {
    case DimNode::Kind::kSymbol: {
      auto it = replacement.find(n->name);
      return it == replacement.end() ? DimInterner::wrap(n) : it->second;
    }
    case DimNode::Kind::kFunction: {
      Dim result = substitute_node(n->operands[0], replacement, mask);
      for (size_t i = 1; i < n->operands.size(); ++i) {
        const Dim next = substitute_node(n->operands[i], replacement, mask);
        switch (n->function) {
          case Function::kFloorDiv:
            result = floordiv(result, next);
            break;
          case Function::kMod:
            result = mod(result, next);
            break;
          case Function::kMin:
            result = min(result, next);
            break;
          case Function::kMax:
            result = max(result, next);
            break;
          case Function::kBroadcast:
            result = broadcast(result, next);
            break;
        }
      }
      return result;
    }
    case DimNode::Kind::kSum: {
      Dim result;
      for (const PolyTerm& t : n->terms) {
        Dim product(t.coefficient);
        if (t.monomial) {
          for (const DimNode* a : t.monomial->atoms) {
            product = product * substitute_node(a, replacement, mask);
          }
        }
        result = result + product;
      }
      return result;
    }
    default:
      return DimInterner::wrap(n);
  }
}

void collect_symbols(const DimNode* n, std::set<std::string>& out) {
  if (n->kind == DimNode::Kind::kSymbol) out.insert(n->name);
  for (const DimNode* o : n->operands) collect_symbols(o, out);
  for (const PolyTerm& t : n->terms) {
    if (!t.monomial) continue;
    for (const DimNode* a : t.monomial->atoms) collect_symbols(a, out);
  }
}

using Valuation = std::function<std::optional<int64_t>(const std::string&)>;

int64_t evaluate_node(const DimNode* n, const Valuation& value) {
  switch (n->kind) {
    case DimNode::Kind::kAny:
      throw Error(Status::kInvalidArgument, "dim", "the wildcard ? has no value",
                  "run type inference first");
    case DimNode::Kind::kConstant:
      return n->constant;
    case DimNode::Kind::kSymbol: {
      if (auto v = value(n->name)) return *v;
      throw Error(Status::kInvalidArgument, "dim", fmt::format("no value for symbol {}", n->name),
                  "give every symbol a value");
    }
    case DimNode::Kind::kFunction: {
      int64_t result = evaluate_node(n->operands[0], value);
      for (size_t i = 1; i < n->operands.size(); ++i) {
        const int64_t next = evaluate_node(n->operands[i], value);
        switch (n->function) {
          case Function::kFloorDiv:
          case Function::kMod:
            if (next == 0) division_by_zero(Dim(result));
            result =
                n->function == Function::kMod ? floor_mod(result, next) : floor_div(result, next);
            break;
          case Function::kMin:
            result = std::min(result, next);
            break;
          case Function::kMax:
            result = std::max(result, next);
            break;
          case Function::kBroadcast:
            result = broadcast_values(result, next);
            break;
        }
      }
      return result;
    }
    case DimNode::Kind::kSum: {
      int64_t sum = 0;
      for (const PolyTerm& t : n->terms) {
        int64_t product = t.coefficient;
        if (t.monomial) {
          for (const DimNode* a : t.monomial->atoms) {
            product = checked_mul(product, evaluate_node(a, value));
          }
        }
        sum = checked_add(sum, product);
      }
      return sum;
    }
  }
  NIMBLE_UNREACHABLE("dim kind");
}

}  // namespace

std::optional<Dim> divide_exactly(const Dim& a, const Dim& b) {
  Terms divisor;
  terms_of(b.node(), divisor);
  if (divisor.empty()) return std::nullopt;
  const PolyTerm lead = divisor[0];
  Dim quotient, rest = a;
  // Long division; a step that cannot lower the leading monomial ends it. The order is by
  // degree, then lexicographic, which multiplication respects up to the bound on steps.
  for (int steps = 0; steps < 64; ++steps) {
    Terms all;
    terms_of(rest.node(), all);
    if (all.empty()) return quotient;
    auto m = divide(all[0].monomial, lead.monomial);
    if (!m || remainder(all[0].coefficient, lead.coefficient) != 0) return std::nullopt;
    Terms one;
    one.push_back({checked_div(all[0].coefficient, lead.coefficient), *m});
    const Dim q = from_terms(one);
    quotient = quotient + q;
    rest = rest - q * b;
  }
  return std::nullopt;
}

Dim floordiv(const Dim& a, const Dim& b) {
  refuse_any({a, b});
  if (auto c = b.as_constant()) return floordiv_constant(a, *c);
  Division d = divide_symbolically(a, b);
  if (d.rest.is_constant(0)) return d.quotient;
  if (auto c = d.divisor.as_constant()) return d.quotient + floordiv_constant(d.rest, *c);
  return d.quotient + apply(Function::kFloorDiv, {d.rest, d.divisor});
}

Dim mod(const Dim& a, const Dim& b) {
  refuse_any({a, b});
  if (auto c = b.as_constant()) return mod_constant(a, *c);
  // mod(f*x, f*y) = f*mod(x, y)
  Division d = divide_symbolically(a, b);
  if (d.rest.is_constant(0)) return Dim(0);
  if (auto c = d.divisor.as_constant()) return d.cancelled * mod_constant(d.rest, *c);
  return d.cancelled * apply(Function::kMod, {d.rest, d.divisor});
}

Dim ceildiv(const Dim& a, const Dim& b) {
  return floordiv(a + b - Dim(1), b);
}
Dim min(const Dim& a, const Dim& b) {
  return min_or_max(Function::kMin, a, b);
}
Dim max(const Dim& a, const Dim& b) {
  return min_or_max(Function::kMax, a, b);
}

Dim broadcast(const Dim& a, const Dim& b) {
  refuse_any({a, b});
  std::vector<Dim> operands, kept;
  flatten(Function::kBroadcast, a, operands);
  flatten(Function::kBroadcast, b, operands);
  std::sort(operands.begin(), operands.end());
  operands.erase(std::unique(operands.begin(), operands.end()), operands.end());
  int64_t constant = 1;
  for (const Dim& d : operands) {
    if (auto c = d.as_constant()) {
      constant = broadcast_values(constant, *c);
    } else {
      kept.push_back(d);
    }
  }
  if (constant != 1) kept.insert(kept.begin(), Dim(constant));
  if (kept.empty()) return Dim(1);
  return kept.size() == 1 ? kept[0] : apply(Function::kBroadcast, std::move(kept));
}

std::set<std::string> Dim::symbols() const {
  std::set<std::string> out;
  collect_symbols(node_, out);
  return out;
}

Dim Dim::substitute(const std::map<std::string, Dim>& replacement) const {
  uint64_t mask = 0;
  for (const auto& [name, dim] : replacement) mask |= symbol_bit(name);
  return substitute_node(node_, replacement, mask);
}

int64_t Dim::evaluate(const Valuation& value) const {
  return evaluate_node(node_, value);
}

std::vector<Dim::Term> Dim::terms() const {
  Terms all;
  terms_of(node_, all);
  std::vector<Term> out;
  for (const PolyTerm& t : all) {
    Term term{t.coefficient, {}};
    if (t.monomial) {
      for (const DimNode* a : t.monomial->atoms) term.atoms.push_back(Dim(a));
    }
    out.push_back(std::move(term));
  }
  return out;
}

}  // namespace nimble::ir
