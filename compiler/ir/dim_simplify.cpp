// DimContext::simplify: what the facts decide of min, max, mod, floordiv and broadcast, known
// equalities put in place, and quotients put together with their remainders.
#include <algorithm>

#include "compiler/ir/dim_prover.h"
#include "compiler/ir/within_64_bits.h"

namespace nimble::ir {

using Function = Dim::Function;

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
      return is_mod ? mod(x, b) : floordiv(x, b);
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
  const Dim result = within_64_bits(rewrite, a);
  if (effort.cuts() == cuts) known.simplified = result;
  return result;
}

// k*c*m*floordiv(x, c) + k*m*mod(x, c) = k*m*x; and c*floordiv(x, c) = x where c divides x.
Dim DimContext::recombine(const Dim& a) const {
  Terms terms;
  terms_of(a.node(), terms);
  for (const PolyTerm& t : terms) {
    if (!t.monomial) continue;
    for (const DimNode* atom : t.monomial->atoms) {
      if (atom->kind != DimNode::Kind::kFunction || atom->function != Function::kFloorDiv) continue;
      const DimNode* c = atom->operands[1];
      if (c->kind != DimNode::Kind::kConstant || t.coefficient % c->constant != 0) continue;
      const Dim x = wrap(atom->operands[0]);
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
