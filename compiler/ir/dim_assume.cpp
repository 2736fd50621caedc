// What a DimContext learns: ranges, equalities solved for a symbol, and inequalities.
//
// What says something of one symbol becomes its range, also through quotients: floordiv(n, 2) >= 3
// is n >= 6. So a chain of convolutions, each of which asks that its window fits, leaves one bound
// and no inequality, and interval arithmetic answers for all of it.
#include <algorithm>
#include <numeric>

#include "compiler/ir/dim_prover.h"
#include "compiler/ir/within_64_bits.h"

namespace nimble::ir {
namespace {

using Function = Dim::Function;

bool has_function(const Dim& d) {
  Terms terms;
  terms_of(d.node(), terms);
  const auto is_function = [](const DimNode* a) { return a->kind == DimNode::Kind::kFunction; };
  return std::any_of(terms.begin(), terms.end(), [&](const PolyTerm& t) {
    return t.monomial && std::ranges::any_of(t.monomial->atoms, is_function);
  });
}

// d as coefficient*atom + constant, if it is that.
struct Lone {
  const DimNode* atom;
  int64_t coefficient, constant;
};
std::optional<Lone> lone(const Dim& d) {
  Terms terms;
  terms_of(d.node(), terms);
  if (terms.empty() || terms.size() > 2 || !terms[0].monomial ||
      terms[0].monomial->atoms.size() != 1 || (terms.size() == 2 && terms[1].monomial))
    return std::nullopt;
  return Lone{terms[0].monomial->atoms[0], terms[0].coefficient,
              terms.size() == 2 ? terms[1].coefficient : 0};
}

// Whether bounds of d are bounds of one symbol: a symbol, or a quotient of such a d by a constant.
bool bounds_a_symbol(const Dim& d) {
  const auto l = lone(d);
  if (!l) return false;
  if (l->atom->kind == DimNode::Kind::kSymbol) return true;
  return l->atom->kind == DimNode::Kind::kFunction && l->atom->function == Function::kFloorDiv &&
         l->atom->operands[1]->kind == DimNode::Kind::kConstant &&
         l->atom->operands[1]->constant > 0 && bounds_a_symbol(wrap(l->atom->operands[0]));
}

// The broadcast that d is beside what has no function: d = 0 says its value and nothing else.
bool is_value_of_broadcast(const Dim& d) {
  Terms terms;
  terms_of(d.node(), terms);
  for (const PolyTerm& t : terms) {
    if (!t.monomial || t.monomial->atoms.size() != 1) continue;
    const DimNode* atom = t.monomial->atoms[0];
    if (atom->kind == DimNode::Kind::kFunction && atom->function == Function::kBroadcast &&
        (t.coefficient == 1 || t.coefficient == -1))
      return !has_function(d - from_term(t));
  }
  return false;
}

}  // namespace

// ------------------------------------------------------------------------ the assumptions

Assumptions::Assumptions(const std::vector<Dim>& nonnegative) {
  for (const Dim& d : nonnegative) members_.insert(d);
  for (const Dim& d : nonnegative) {
    const bool equality = within_64_bits([&] { return contains(Dim(0) - d); }, false);
    Terms terms;
    terms_of(d.node(), terms);
    for (const PolyTerm& t : terms) {
      if (!equality || t.coefficient != 1 || !t.monomial || t.monomial->atoms.size() != 1) continue;
      const DimNode* atom = t.monomial->atoms[0];
      if (atom->kind != DimNode::Kind::kFunction) continue;
      const Dim value = from_term(t) - d;
      if (!has_function(value)) values_.try_emplace(atom, value);
    }
    if ((equality && is_value_of_broadcast(d)) || too_large(d)) continue;
    for (const PolyTerm& t : terms)
      if (t.monomial) uses_[t.monomial->atoms[0]].push_back({d, t});
  }
}

const std::vector<Assumptions::Use>& Assumptions::uses(const DimNode* atom) const {
  static const std::vector<Use> kNone;
  const auto it = uses_.find(atom);
  return it == uses_.end() ? kNone : it->second;
}

std::optional<Dim> Assumptions::value_of(const Dim& function) const {
  const auto it = values_.find(function.node());
  return it == values_.end() ? std::nullopt : std::optional(it->second);
}

// ------------------------------------------------------------------------ what is learnt

SymbolFacts DimContext::facts(const std::string& symbol) const {
  auto it = facts_.find(symbol);
  return it == facts_.end() ? SymbolFacts{} : it->second;
}

namespace {

struct Bound {
  std::string symbol;
  SymbolFacts facts;  // with the bound
};

// What g >= 0 says, for a g that bounds a symbol. An Error where a bound on the way has no 64 bits.
Bound bound_of(const Dim& g, const DimContext& c) {
  const auto [atom, k, constant] = *lone(g);
  if (atom->kind == DimNode::Kind::kFunction) {
    const Dim x = wrap(atom->operands[0]);
    const int64_t divisor = atom->operands[1]->constant;
    if (k > 0) {  // floordiv(x, divisor) >= ceil(-constant / k)
      const int64_t least = checked_mul(floor_div(constant, k), -1);
      return bound_of(x - Dim(checked_mul(least, divisor)), c);
    }
    const int64_t most = floor_div(constant, checked_mul(k, -1));
    return bound_of(Dim(checked_add(checked_mul(most, divisor), divisor - 1)) - x, c);
  }
  SymbolFacts f = c.facts(atom->name);
  // k*s + constant >= 0
  if (k > 0) f.low = std::max(f.low, saturate(-static_cast<Wide>(floor_div(constant, k))));
  if (k < 0 && k != kNoLow) f.high = std::min(f.high, floor_div(constant, -k));
  return {atom->name, f};
}

}  // namespace

void DimContext::assume_less_equal(const Dim& a, const Dim& b) {
  const Effort effort;
  const Dim g = simplify(b - a);
  if (nonnegative(g, 1)) return;
  Terms terms;
  terms_of(g.node(), terms);
  // min(x, y) + r >= 0 says so of every operand; -max(x, y) + r >= 0 too.
  for (const PolyTerm& t : terms) {
    if (!t.monomial || t.monomial->atoms.size() != 1) continue;
    const DimNode* atom = t.monomial->atoms[0];
    if (atom->kind != DimNode::Kind::kFunction) continue;
    if ((atom->function == Function::kMin && t.coefficient > 0) ||
        (atom->function == Function::kMax && t.coefficient < 0)) {
      const Dim rest = g - from_term(t);
      for (const DimNode* o : atom->operands) {
        assume_less_equal(Dim(0), rest + Dim(t.coefficient) * wrap(o));
      }
      return;
    }
  }
  if (bounds_a_symbol(g)) {
    const auto bound = [&] { return std::optional(bound_of(g, *this)); };
    if (const auto known = within_64_bits(bound, {})) {
      set(known->symbol, known->facts);
      effort.forget();
      return;
    }
  }
  if (std::find(nonnegative_.begin(), nonnegative_.end(), g) != nonnegative_.end()) return;
  nonnegative_.push_back(g);
  effort.forget();
}

void DimContext::assume_equal(const Dim& a, const Dim& b) {
  const Effort effort;
  const Dim d = simplify(a - b);
  if (too_large(d)) {
    nonnegative_.push_back(a - b);
    nonnegative_.push_back(b - a);
    effort.forget();
    return;
  }
  if (d.as_constant()) return;
  // Solve for a symbol that occurs once, linearly, with a coefficient that divides all others;
  // rather one that inference made up (`?1`) than one of the user.
  Terms terms;
  terms_of(d.node(), terms);
  int64_t g = 0;
  for (const PolyTerm& t : terms) g = std::gcd(g, t.coefficient == kNoLow ? 1 : t.coefficient);
  const DimNode* best = nullptr;
  Dim solution;
  for (const PolyTerm& t : terms) {
    if (!t.monomial || t.monomial->atoms.size() != 1) continue;
    if (t.coefficient != g && t.coefficient != -g) continue;
    const DimNode* s = t.monomial->atoms[0];
    if (s->kind != DimNode::Kind::kSymbol) continue;
    const Dim rest = d - from_term(t);
    if (rest.symbols().contains(s->name)) continue;
    const bool made_up = s->name[0] == '?';
    if (best && (best->name[0] == '?') && !made_up) continue;
    if (best && (best->name[0] == '?') == made_up && s->name < best->name) continue;
    Terms others;
    Terms divided;
    terms_of(rest.node(), others);
    for (const PolyTerm& u : others)
      divided.push_back({checked_div(u.coefficient, -t.coefficient), u.monomial});
    best = s;
    solution = wrap(DimInterner::sum(divided));
  }
  // The user's symbol keeps its name rather than become an expression of what inference made up.
  if (best && best->name[0] != '?') {
    const std::set<std::string> others = solution.symbols();
    if (std::any_of(others.begin(), others.end(), [](const auto& s) { return s[0] == '?'; }))
      best = nullptr;
  }
  if (!best) {
    const bool value_only = is_value_of_broadcast(d);
    if (!value_only) {
      assume_less_equal(a, b);
      assume_less_equal(b, a);
    }
    // What the parts of a min or max say may be less than the whole: unless the bounds just learnt
    // say it all, it counts as it stands, too, and as it is under them.
    const Dim bounded = simplify(d);
    if (bounded.is_constant(0)) return;
    nonnegative_.push_back(d);
    nonnegative_.push_back(Dim(0) - d);
    effort.forget();
    if (!value_only && bounded != d) assume_equal(bounded, 0);
    return;
  }
  const std::string name = best->name;
  const SymbolFacts f = facts(name);
  const std::map<std::string, Dim> solved = {{name, solution}};
  for (auto& [symbol, value] : equal_to_) value = value.substitute(solved);
  equal_to_[name] = solution;
  effort.forget();
  // Assumptions that mention the symbol say something else now.
  const uint64_t bit = symbol_bit(name);
  const auto mentions = [&](const Dim& i) { return (i.node()->symbol_mask & bit) != 0; };
  if (std::ranges::any_of(nonnegative_, mentions)) {
    const std::vector<Dim> inequalities = std::move(nonnegative_);
    const std::unordered_set<Dim> members(inequalities.begin(), inequalities.end());
    nonnegative_.clear();
    for (const Dim& i : inequalities) {
      if (!mentions(i)) {
        nonnegative_.push_back(i);
        effort.forget();
        continue;
      }
      const bool equality = members.contains(Dim(0) - i);
      if (!equality || !is_value_of_broadcast(i)) assume_less_equal(Dim(0), i);
      if (equality) {  // half of it, which counts as it stands
        nonnegative_.push_back(simplify(i));
        effort.forget();
      }
    }
  }
  // The facts of the solved symbol hold for its solution.
  if (auto other = solution.as_symbol()) {
    SymbolFacts both = facts(*other);
    both.low = std::max(both.low, f.low);
    both.high = std::min(both.high, f.high);
    const int64_t known = std::max<int64_t>(both.divisor, 1),
                  also = std::max<int64_t>(f.divisor, 1);
    // The least common multiple, or one of the two where it is beyond 64 bits.
    if (__builtin_mul_overflow(known / std::gcd(known, also), also, &both.divisor))
      both.divisor = std::max(known, also);
    set(*other, both);
    effort.forget();
  } else {
    if (f.low != kNoLow) assume_less_equal(Dim(f.low), solution);
    if (f.high != kNoHigh) assume_less_equal(solution, Dim(f.high));
  }
}

}  // namespace nimble::ir
