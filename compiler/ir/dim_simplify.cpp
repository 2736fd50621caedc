// DimContext::simplify: what the facts decide of min, max, mod, floordiv and broadcast, known
// equalities put in place, and quotients put together with their remainders.
#include <algorithm>

#include "compiler/ir/dim_prover.h"
#include "compiler/ir/within_64_bits.h"

namespace nimble::ir {

using Function = Dim::Function;

namespace {

// A quotient by c > 0 grows with what is divided: that of a minimum is the least of the quotients
// of its operands. One of them, if the facts decide which: floordiv(n - min(1, n) + 1, 2), the rows
// of a slice of every other one from the second on, is floordiv(n, 2).
std::optional<Dim> operand_of_quotient(const DimContext& facts, const Dim& x, int64_t c) {
  Terms terms;
  terms_of(x.node(), terms);
  const PolyTerm* chosen = nullptr;
  for (const PolyTerm& t : terms) {
    if (!t.monomial || t.monomial->atoms.size() != 1) continue;
    const DimNode* atom = t.monomial->atoms[0];
    if (atom->kind != DimNode::Kind::kFunction ||
        (atom->function != Function::kMin && atom->function != Function::kMax))
      continue;
    if (chosen) return std::nullopt;
    chosen = &t;
  }
  if (!chosen) return std::nullopt;
  const DimNode* atom = chosen->monomial->atoms[0];
  const bool least = (atom->function == Function::kMin) == (chosen->coefficient > 0);
  const Dim rest = x - from_term(*chosen);
  std::optional<Dim> best;
  for (const DimNode* o : atom->operands) {
    const Dim q = facts.simplify(floordiv(rest + Dim(chosen->coefficient) * wrap(o), Dim(c)));
    if (!best || facts.less_equal(least ? q : *best, least ? *best : q) == Proof::kYes)
      best = q;
    else if (facts.less_equal(least ? *best : q, least ? q : *best) != Proof::kYes)
      return std::nullopt;
  }
  return best;
}

}  // namespace

Dim DimContext::simplify_atom(const DimNode* n) const {
  if (n->kind == DimNode::Kind::kSymbol) {
    if (auto it = equal_to_.find(n->name); it != equal_to_.end()) return it->second;
    const SymbolFacts f = facts(n->name);
    return f.low == f.high ? Dim(f.low) : wrap(n);
  }
  std::vector<Dim> operands;
  for (const DimNode* o : n->operands) operands.push_back(simplify(wrap(o)));
  switch (n->function) {
    case Function::kFloorDiv:
    case Function::kMod: {
      const bool is_mod = n->function == Function::kMod;
      const Dim& x = operands[0];
      const Dim& b = operands[1];
      const Interval rx = range(x), rb = range(b);
      if (rb.low >= 1 && rx.low >= 0) {
        if (rx.high < rb.low) return is_mod ? x : Dim(0);
        if (!x.as_constant() && !b.as_constant() && range(b - x).low > 0) {
          return is_mod ? x : Dim(0);
        }
      }
      const auto c = b.as_constant();
      if (c && *c > 0) {
        // Terms that are multiples of c leave, if what remains lies in [0, c).
        Terms terms;
        terms_of(x.node(), terms);
        Dim multiple, rest;
        for (const PolyTerm& t : terms) {
          (term_divisor(t) % *c == 0 ? multiple : rest) =
              (term_divisor(t) % *c == 0 ? multiple : rest) + from_term(t);
        }
        if (is_mod) {
          const Interval rr = range(rest);
          if (rr.low >= 0 && rr.high < *c) return rest;
          return mod(rest, b);
        }
        const Interval rr = range(rest);
        if (rr.low != kNoLow && rr.high != kNoHigh &&
            floor_div(rr.low, *c) == floor_div(rr.high, *c)) {
          return floordiv(multiple, b) + Dim(floor_div(rr.low, *c));
        }
      }
      if (is_mod) return mod(x, b);
      const Dim quotient = floordiv(x, b);
      if (c && *c > 0)
        if (const auto decided = operand_of_quotient(*this, x, *c); decided) return *decided;
      return quotient;
    }
    case Function::kMin:
    case Function::kMax: {
      const bool is_min = n->function == Function::kMin;
      std::vector<bool> dropped(operands.size(), false);
      for (size_t i = 0; i < operands.size(); ++i) {
        for (size_t j = 0; j < operands.size() && !dropped[i]; ++j) {
          if (i == j || dropped[j]) continue;
          const Dim gap = operands[i] - operands[j];  // min: drop i if i >= j
          dropped[i] = nonnegative(is_min ? gap : gap * Dim(-1), 1);
        }
      }
      std::optional<Dim> result;
      for (size_t i = 0; i < operands.size(); ++i) {
        if (dropped[i]) continue;
        result = !result  ? operands[i]
                 : is_min ? min(*result, operands[i])
                          : max(*result, operands[i]);
      }
      return *result;
    }
    case Function::kBroadcast: {
      // A known operand does not decide: broadcast(n, 768) also says that n is 1 or 768.
      Dim result = 1;
      for (const Dim& o : operands) result = broadcast(result, o);
      return result;
    }
  }
  return wrap(n);
}

Dim DimContext::simplify(const Dim& a) const {
  const DimNode* n = a.node();
  if (n->kind == DimNode::Kind::kAny || n->kind == DimNode::Kind::kConstant) return a;
  const size_t size = size_of(a);
  if (size > kLargest) return a;
  const Effort effort;
  const Facts facts{facts_, equal_to_, nonnegative_};
  Answer& known = effort.answer(facts, a);
  if (known.simplified) return *known.simplified;
  if (!effort.pay(size)) {
    effort.cut();
    return a;
  }
  const auto rewrite = [&] {
    if (n->is_atom()) {
      const Dim simple = simplify_atom(n);
      if (simple.node()->kind != DimNode::Kind::kFunction) return simple;
      return effort.assumptions(facts).value_of(simple).value_or(simple);
    }
    Dim result;
    for (const PolyTerm& t : n->terms) {
      Dim product(t.coefficient);
      if (t.monomial) {
        for (const DimNode* atom : t.monomial->atoms) product = product * simplify(wrap(atom));
      }
      result = result + product;
    }
    return recombine(result);
  };
  const int64_t cuts = effort.cuts();
  const bool fresh = effort.fresh();
  const Dim result = within_64_bits(rewrite, a);
  if (effort.cuts() == cuts || (fresh && effort.exhausted())) known.simplified = result;
  return result;
}

namespace {

// a without factor*floordiv(x + j, c) for all j in [0, c), if these are terms of it.
std::optional<Dim> without_all_residues(const Dim& a, const Terms& terms, const Dim& x, int64_t c,
                                        const Dim& factor) {
  if (c < 2 || static_cast<size_t>(c) > terms.size()) return std::nullopt;
  Dim rest = a;
  for (int64_t j = 0; j < c; ++j) {
    const Dim part = factor * floordiv(x + Dim(j), Dim(c));
    Terms wanted;
    terms_of(part.node(), wanted);
    if (wanted.size() != 1) return std::nullopt;
    const bool found = std::any_of(terms.begin(), terms.end(), [&](const PolyTerm& u) {
      return u.monomial == wanted[0].monomial && u.coefficient == wanted[0].coefficient;
    });
    if (!found) return std::nullopt;
    rest = rest - part;
  }
  return rest;
}

}  // namespace

// k*c*m*floordiv(x, c) + k*m*mod(x, c) = k*m*x; and c*floordiv(x, c) = x where c divides x. And
// floordiv(x, c) + floordiv(x + 1, c) + … + floordiv(x + c - 1, c) = x (Hermite): every c-th row
// from each of the first c on, together all rows.
Dim DimContext::recombine(const Dim& a) const {
  Terms terms;
  terms_of(a.node(), terms);
  for (const PolyTerm& t : terms) {
    if (!t.monomial) continue;
    for (const DimNode* atom : t.monomial->atoms) {
      if (atom->kind != DimNode::Kind::kFunction || atom->function != Function::kFloorDiv) continue;
      const DimNode* c = atom->operands[1];
      if (c->kind != DimNode::Kind::kConstant) continue;
      const Dim x = wrap(atom->operands[0]);
      const Dim factor = from_term({t.coefficient, *divide(t.monomial, atom->self)});
      if (const auto rest = without_all_residues(a, terms, x, c->constant, factor))
        return recombine(*rest + factor * x);
      if (t.coefficient % c->constant != 0) continue;
      const Dim outer = from_term({t.coefficient / c->constant, *divide(t.monomial, atom->self)});
      const Dim m = mod(x, wrap(c));
      if (m.is_constant(0) || simplify(m).is_constant(0)) {
        return recombine(a - from_term(t) + outer * x);
      }
      // Is outer*mod(x, c) among the terms?
      const DimNode* found = (outer * m).node();
      Terms wanted;
      terms_of(found, wanted);
      if (wanted.size() != 1) continue;
      for (const PolyTerm& u : terms) {
        if (u.monomial == wanted[0].monomial && u.coefficient == wanted[0].coefficient) {
          return recombine(a - from_term(t) - from_term(u) + outer * x);
        }
      }
    }
  }
  return a;
}

}  // namespace nimble::ir
