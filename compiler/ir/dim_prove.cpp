// DimContext: a sound, incomplete prover over Dims.
//
// Everything reduces to "d >= 0" for one polynomial d, tried by ever dearer means, each of
// which only ever replaces d by something that is smaller or equal (so a proof carries over):
//   0. Refutation: no proof is looked for where d < 0 at a point that the facts allow.
//   1. Interval arithmetic over the terms, after shifting each symbol to its lower bound
//      (n*m - n with m >= 1 becomes n*m', which is visibly not negative).
//   2. Assumed inequalities: d >= 0 follows from d - k*g >= 0 for a known g >= 0, k > 0.
//   3. min and max equal one of their operands: try all of them, or, where the sign allows,
//      any single one.
//   4. x - (b-1) <= b*floordiv(x, b) <= x for b > 0, and mod(x, b) = x - b*floordiv(x, b).
//   5. broadcast(a, b), where it is defined, is at least either operand unless that is 0.
// Equality assumptions are kept solved for one symbol each and substituted up front. Those that
// cannot be are two inequalities; where one says what a function is (max(0, n - m) = 1), that is
// put in its place wherever it stands.
#include <algorithm>
#include <numeric>

#include "compiler/ir/dim_prover.h"
#include "compiler/ir/within_64_bits.h"

namespace nimble::ir {
namespace {

using Function = Dim::Function;
using Interval = DimContext::Interval;

// Replaces one atom by a Dim in the polynomial's own monomials (not inside other atoms).
Dim replace_atom(const Dim& d, const DimNode* atom, const Dim& by) {
  Terms all;
  terms_of(d.node(), all);
  Dim result;
  for (const PolyTerm& t : all) {
    Dim product(t.coefficient);
    if (t.monomial) {
      for (const DimNode* a : t.monomial->atoms) product = product * (a == atom ? by : wrap(a));
    }
    result = result + product;
  }
  return result;
}

// Whether d >= 0 shows once its symbols are shifted to their lower bounds.
bool nonnegative_if_shifted(const DimContext& c, const Dim& d) {
  std::map<std::string, Dim> shift;
  DimContext shifted;
  for (const std::string& s : d.symbols()) {
    const SymbolFacts f = c.facts(s);
    if (f.low == kNoLow) {
      shifted.set(s, f);
      continue;
    }
    if (f.low != 0) shift[s] = Dim::symbol(s) + Dim(f.low);
    const int64_t room = f.high == kNoHigh ? kNoHigh : saturate(static_cast<Wide>(f.high) - f.low);
    shifted.set(s, {0, room, 1});
  }
  return !shift.empty() && shifted.range(d.substitute(shift)).low >= 0;
}

}  // namespace

// --------------------------------------------------------------------- the core proof

// True only if d >= 0 for every assignment that the facts allow. `d` is simplified.
bool DimContext::nonnegative(const Dim& d, int depth) const {
  if (range(d).low >= 0) return true;
  if (d.as_constant() || d.as_symbol()) return false;
  const size_t size = size_of(d);
  if (size > kLargest) return false;
  const Nesting nesting;
  const Effort effort;
  const Facts facts{facts_, equal_to_, nonnegative_};
  Answer& known = effort.answer(facts, d);
  if (depth >= known.proved) return true;
  if (depth <= known.refuted) return false;
  if (nesting.too_deep() || !effort.pay(size)) {
    effort.cut();
    return false;
  }
  if (effort.witnesses(facts).refute(d)) {
    known.refuted = std::numeric_limits<int>::max();
    return false;
  }
  const auto prove = [&] {
    // 1. Shift symbols to their lower bounds.
    if (nonnegative_if_shifted(*this, d)) return true;
    if (depth == 0) return false;
    Terms terms;
    terms_of(d.node(), terms);

    // 2. Assumed inequalities, found by an atom of theirs that stands in the term.
    for (const PolyTerm& t : terms) {
      if (!t.monomial) continue;
      const DimNode* last = nullptr;
      for (const DimNode* atom : t.monomial->atoms) {
        if (atom == last) continue;
        last = atom;
        for (const auto& [assumption, k] : effort.assumptions(facts).uses(atom)) {
          if ((t.coefficient < 0) != (k.coefficient < 0) ||
              remainder(t.coefficient, k.coefficient) != 0)
            continue;
          const auto factor = divide(t.monomial, k.monomial);
          if (!factor) continue;
          if (!effort.pay(terms.size() + assumption.node()->terms.size())) {
            effort.cut();
            return false;
          }
          const Dim multiplier = from_term({checked_div(t.coefficient, k.coefficient), *factor});
          if (range(multiplier).low < 0) continue;
          const Dim rest = simplify(d - multiplier * assumption);
          if (rest.is_constant(0) || nonnegative(rest, depth - 1)) return true;
        }
      }
    }

    // 3–5. Function atoms, one at a time.
    for (const PolyTerm& t : terms) {
      if (!t.monomial) continue;
      for (const DimNode* atom : t.monomial->atoms) {
        if (atom->kind != DimNode::Kind::kFunction) continue;
        if (nonnegative_by_atom(d, t, atom, depth - 1)) return true;
      }
    }
    return false;
  };
  const int64_t cuts = effort.cuts();
  const bool fresh = effort.fresh();
  const bool yes = within_64_bits(prove, false);
  if (yes)
    known.proved = std::min(known.proved, depth);
  else if (effort.cuts() == cuts || (fresh && effort.exhausted()))
    known.refuted = std::max(known.refuted, depth);
  return yes;
}

// One step on the function atom `atom` of the term `t` of d.
bool DimContext::nonnegative_by_atom(const Dim& d, const PolyTerm& t, const DimNode* atom,
                                     int depth) const {
  Terms terms;
  terms_of(d.node(), terms);
  // Does the atom occur in this term only, once?
  int occurrences = 0;
  for (const PolyTerm& u : terms) {
    if (!u.monomial) continue;
    occurrences +=
        static_cast<int>(std::count(u.monomial->atoms.begin(), u.monomial->atoms.end(), atom));
  }
  auto factor = divide(t.monomial, atom->self);
  NIMBLE_CHECK(factor.has_value(), "the atom divides its own monomial");
  const Interval rest_range = range(from_term({t.coefficient, *factor}));
  const bool up = occurrences == 1 && rest_range.low >= 0;     // d grows with the atom
  const bool down = occurrences == 1 && rest_range.high <= 0;  // d falls with the atom
  auto proves = [&](const Dim& by) {
    return nonnegative(simplify(replace_atom(d, atom, by)), depth);
  };

  switch (atom->function) {
    case Function::kMin:
    case Function::kMax: {
      const bool is_min = atom->function == Function::kMin;
      if (is_min ? down : up) {  // a bound that any single operand gives
        for (const DimNode* o : atom->operands) {
          if (proves(wrap(o))) return true;
        }
        return false;
      }
      return std::all_of(atom->operands.begin(), atom->operands.end(),
                         [&](const DimNode* o) { return proves(wrap(o)); });
    }
    case Function::kBroadcast:
      return std::all_of(atom->operands.begin(), atom->operands.end(),
                         [&](const DimNode* o) { return proves(wrap(o)); });
    case Function::kMod: {
      const Dim x = wrap(atom->operands[0]), b = wrap(atom->operands[1]);
      if (range(b).low < 1) return false;
      return proves(x - b * floordiv(x, b));
    }
    case Function::kFloorDiv: {
      const Dim x = wrap(atom->operands[0]), b = wrap(atom->operands[1]);
      if (range(b).low < 1) return false;
      const Dim rest = d - from_term(t);
      if (occurrences == 1 && !*factor && t.coefficient == 1) {
        // fd + rest >= 0  <=>  x + b*rest >= 0
        if (nonnegative(simplify(x + b * rest), depth)) return true;
      }
      if (occurrences == 1 && !*factor && t.coefficient == -1) {
        // fd <= rest  <=>  x <= b*rest + b - 1
        if (nonnegative(simplify(b * rest + b - Dim(1) - x), depth)) return true;
      }
      if (!up && !down) return false;
      // b*d >= b*rest + coefficient*factor*(x - b + 1 or x)
      const Dim scale = from_term({t.coefficient, *factor});
      return nonnegative(simplify(b * rest + scale * (up ? x - b + Dim(1) : x)), depth);
    }
  }
  return false;
}

Proof DimContext::less_equal(const Dim& a, const Dim& b) const {
  if (a.is_any() || b.is_any()) return Proof::kUnknown;
  const Effort effort;
  const auto ask = [&] {
    bool& gave_up = effort.answer({facts_, equal_to_, nonnegative_}, b - a).gave_up_less_equal;
    if (gave_up) return Proof::kUnknown;
    const bool fresh = effort.fresh();
    const Dim d = simplify(b - a);
    if (nonnegative(d, kProofDepth)) return Proof::kYes;
    if (nonnegative(simplify(Dim(-1) - d), kProofDepth)) return Proof::kNo;
    gave_up = fresh && effort.exhausted();
    return Proof::kUnknown;
  };
  return within_64_bits(ask, Proof::kUnknown);
}

Proof DimContext::less(const Dim& a, const Dim& b) const {
  if (a.is_any() || b.is_any()) return Proof::kUnknown;
  return within_64_bits([&] { return less_equal(a + Dim(1), b); }, Proof::kUnknown);
}

Proof DimContext::equal(const Dim& a, const Dim& b) const {
  if (a.is_any() || b.is_any()) return Proof::kUnknown;
  if (a == b) return Proof::kYes;
  if (a.as_constant() && b.as_constant()) return Proof::kNo;
  const Effort effort;
  const auto ask = [&] {
    // As it was assumed, both ways.
    if (const Assumptions& known = effort.assumptions({facts_, equal_to_, nonnegative_});
        !nonnegative_.empty() && known.contains(a - b) && known.contains(b - a))
      return Proof::kYes;
    bool& gave_up = effort.answer({facts_, equal_to_, nonnegative_}, a - b).gave_up_equal;
    if (gave_up) return Proof::kUnknown;
    const bool fresh = effort.fresh();
    Dim d = simplify(a - b);
    if (d.is_constant(0)) return Proof::kYes;
    if (d.as_constant()) return Proof::kNo;
    // mod(x, b) = x - b*floordiv(x, b)
    Terms terms;
    terms_of(d.node(), terms);
    std::vector<const DimNode*> mods;
    for (const PolyTerm& t : terms) {
      if (!t.monomial) continue;
      for (const DimNode* atom : t.monomial->atoms) {
        if (atom->kind == DimNode::Kind::kFunction && atom->function == Function::kMod) {
          mods.push_back(atom);
        }
      }
    }
    if (!mods.empty()) {
      for (const DimNode* m : mods) {
        const Dim x = wrap(m->operands[0]), by = wrap(m->operands[1]);
        d = replace_atom(d, m, x - by * floordiv(x, by));
      }
      if (d.is_constant(0)) return Proof::kYes;
      if (d.as_constant()) return Proof::kNo;
    }
    const Interval r = range(d);
    if (r.low > 0 || r.high < 0) return Proof::kNo;
    // All terms but the constant divisible by g, the constant not.
    int64_t g = 0, constant = 0;
    terms.clear();
    terms_of(d.node(), terms);
    for (const PolyTerm& t : terms) {
      if (t.monomial) {
        g = std::gcd(g, term_divisor(t));
      } else {
        constant = t.coefficient;
      }
    }
    if (g > 1 && floor_mod(constant, g) != 0) return Proof::kNo;
    const bool at_least = nonnegative(d, kProofDepth),
               at_most = nonnegative(d * Dim(-1), kProofDepth);
    if (at_least && at_most) return Proof::kYes;
    if (nonnegative(d - Dim(1), kProofDepth) || nonnegative(Dim(-1) - d, kProofDepth))
      return Proof::kNo;
    gave_up = fresh && effort.exhausted();
    return Proof::kUnknown;
  };
  return within_64_bits(ask, Proof::kUnknown);
}

// ---------------------------------------------------------------------- divisibility

// A positive number that divides the term for every assignment (capped at 2^30).
int64_t DimContext::term_divisor(const PolyTerm& t) const {
  constexpr int64_t kCap = int64_t{1} << 30;
  if (t.coefficient == kNoLow) return 1;
  int64_t divisor = t.coefficient < 0 ? -t.coefficient : t.coefficient;
  if (divisor > kCap) return divisor;
  if (!t.monomial) return divisor;
  for (const DimNode* a : t.monomial->atoms) {
    if (a->kind != DimNode::Kind::kSymbol) continue;
    const int64_t f = std::max<int64_t>(facts(a->name).divisor, 1);
    if (f > kCap || divisor * f > kCap) break;
    divisor *= f;
  }
  return divisor;
}

Proof DimContext::divisible(const Dim& a, int64_t by) const {
  NIMBLE_CHECK(by > 0, "divisibility by {}", by);
  if (a.is_any()) return Proof::kUnknown;
  const Dim rest = simplify(mod(simplify(a), Dim(by)));
  if (rest.is_constant(0)) return Proof::kYes;
  if (range(rest).low > 0) return Proof::kNo;
  // mod(x, by) where every symbolic term of x is a multiple of a g that shares with `by` a
  // factor which the constant lacks.
  Terms terms;
  terms_of(simplify(a).node(), terms);
  int64_t g = by, constant = 0;
  for (const PolyTerm& t : terms) {
    if (t.monomial) {
      g = std::gcd(g, term_divisor(t));
    } else {
      constant = t.coefficient;
    }
  }
  return g > 1 && floor_mod(constant, g) != 0 ? Proof::kNo : Proof::kUnknown;
}

}  // namespace nimble::ir
