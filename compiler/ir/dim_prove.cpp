// DimContext: a sound, incomplete prover over Dims.
//
// Everything reduces to "d >= 0" for one polynomial d, tried by ever dearer means, each of
// which only ever replaces d by something that is smaller or equal (so a proof carries over):
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
#include <limits>
#include <numeric>
#include <unordered_map>

#include "compiler/ir/dim_node.h"
#include "compiler/ir/within_64_bits.h"

namespace nimble::ir {
namespace {

using Function = Dim::Function;
using Interval = DimContext::Interval;
__extension__ typedef __int128 Wide;

constexpr int64_t kMin = INT64_MIN, kMax = INT64_MAX;
constexpr int kDepth = 4;

// INT64_MIN and INT64_MAX stand for infinities and absorb.
int64_t saturate(Wide v) {
  return v <= kMin ? kMin : v >= kMax ? kMax : static_cast<int64_t>(v);
}
int64_t mul_bound(int64_t a, int64_t b) {
  if (a == 0 || b == 0) return 0;
  const bool negative = (a < 0) != (b < 0);
  if (a == kMin || a == kMax || b == kMin || b == kMax) return negative ? kMin : kMax;
  return saturate(static_cast<Wide>(a) * b);
}
int64_t div_bound(int64_t a, int64_t b) {  // b > 0
  if (a == kMin || a == kMax) return a;
  if (b == kMax) return a < 0 ? -1 : 0;
  return floor_div(a, b);
}
// A saturated lower bound is at least INT64_MAX but not infinite (and an upper one alike), so
// sums absorb only the infinity of their own side.
Interval add(Interval a, Interval b) {
  const bool no_low = a.low == kMin || b.low == kMin, no_high = a.high == kMax || b.high == kMax;
  return {no_low ? kMin : saturate(static_cast<Wide>(a.low) + b.low),
          no_high ? kMax : saturate(static_cast<Wide>(a.high) + b.high)};
}
Interval multiply(Interval a, Interval b) {
  const int64_t p[] = {mul_bound(a.low, b.low), mul_bound(a.low, b.high), mul_bound(a.high, b.low),
                       mul_bound(a.high, b.high)};
  return {*std::min_element(p, p + 4), *std::max_element(p, p + 4)};
}

Dim wrap(const DimNode* n) {
  return DimInterner::wrap(n);
}

Dim from_term(const PolyTerm& t) {
  Terms one;
  one.push_back(t);
  return wrap(DimInterner::sum(one));
}

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

// Nodes that a walk of the expression meets, up to `most`.
size_t walk_size(const DimNode* n, size_t most) {
  size_t size = 1;
  for (const DimNode* o : n->operands)
    if (size < most) size += walk_size(o, most - size);
  for (const PolyTerm& t : n->terms)
    if (t.monomial)
      for (const DimNode* atom : t.monomial->atoms)
        if (size < most) size += walk_size(atom, most - size);
  return size;
}

// Rules look at pairs of operands at every level, so their cost grows fast with depth. What a
// reshape by values of a tensor gives is far beyond what anybody reads; nothing is proved of it but
// that it equals itself.
constexpr size_t kLargest = 64;
bool too_large(const Dim& d) {
  return walk_size(d.node(), kLargest + 1) > kLargest;
}

// A proof simplifies, and to simplify is to prove: how often one stands inside the other.
class Nesting {
 public:
  Nesting() { ++depth_; }
  ~Nesting() { --depth_; }
  Nesting(const Nesting&) = delete;
  Nesting& operator=(const Nesting&) = delete;
  bool too_deep() const { return depth_ > 12; }

 private:
  static thread_local int depth_;
};
thread_local int Nesting::depth_ = 0;

// Every proof tries several others, so even at that depth four inequalities among five symbols
// could take minutes. Two things hold within one question, the outermost Effort, however many
// proofs it takes:
//   - what was proved or refuted of a Dim is remembered, unless a limit cut the proof short: then
//     the answer says nothing of a proof that starts elsewhere;
//   - proofs and simplifications are counted; beyond kMost nothing more is tried, and the answer is
//     "unknown".
struct Answer {
  int proved = std::numeric_limits<int>::max();  // >= 0 with this depth, and any greater
  int refuted = -1;                              // no proof with this depth, nor any smaller
  std::optional<Dim> simplified;
};

class Effort {
 public:
  Effort() {
    if (state().open++ > 0) return;
    state().tried = 0;
    forget();
  }
  ~Effort() { --state().open; }
  Effort(const Effort&) = delete;
  Effort& operator=(const Effort&) = delete;

  // Counts a proof or simplification; whether there were too many.
  static bool spent() { return ++state().tried > kMost; }
  static void cut() { ++state().cuts; }
  static int64_t cuts() { return state().cuts; }
  // Facts have changed: answers may become better.
  static void forget() { state().answers.clear(); }
  // Of a Dim in a context.
  static Answer& answer(const DimContext* c, const Dim& d) {
    return state().answers[{c, d.node()}];
  }

 private:
  static constexpr int kMost = 5000;  // some hundredths of a second
  using Key = std::pair<const DimContext*, const DimNode*>;
  struct Hash {
    size_t operator()(const Key& k) const {
      return std::hash<const void*>()(k.first) * 31 + std::hash<const void*>()(k.second);
    }
  };
  using Answers = std::unordered_map<Key, Answer, Hash>;  // never moves what it holds
  struct State {
    int open = 0, tried = 0;
    int64_t cuts = 0;
    Answers answers;
  };
  static State& state() {
    static thread_local State s;
    return s;
  }
};

}  // namespace

SymbolFacts DimContext::facts(const std::string& symbol) const {
  auto it = facts_.find(symbol);
  return it == facts_.end() ? SymbolFacts{} : it->second;
}

// ------------------------------------------------------------------------- intervals

DimContext::Interval DimContext::range(const Dim& a) const {
  const DimNode* n = a.node();
  switch (n->kind) {
    case DimNode::Kind::kAny:
      return {0, kMax};
    case DimNode::Kind::kConstant:
      return {n->constant, n->constant};
    case DimNode::Kind::kSymbol: {
      if (auto it = equal_to_.find(n->name); it != equal_to_.end()) return range(it->second);
      const SymbolFacts f = facts(n->name);
      return {f.low, f.high};
    }
    case DimNode::Kind::kFunction: {
      Interval r = range(wrap(n->operands[0]));
      for (size_t i = 1; i < n->operands.size(); ++i) {
        const Interval b = range(wrap(n->operands[i]));
        switch (n->function) {
          case Function::kFloorDiv:
            if (b.low <= 0) return {kMin, kMax};
            r = {r.low < 0 ? div_bound(r.low, b.low) : div_bound(r.low, b.high),
                 r.high < 0 ? div_bound(r.high, b.high) : div_bound(r.high, b.low)};
            break;
          case Function::kMod: {
            if (b.low <= 0) return {kMin, kMax};
            const int64_t top = b.high == kMax ? kMax : b.high - 1;
            if (r.low >= 0 && r.high < b.low) break;  // unchanged
            r = {0, r.low >= 0 ? std::min(r.high, top) : top};
            break;
          }
          case Function::kMin:
            r = {std::min(r.low, b.low), std::min(r.high, b.high)};
            break;
          case Function::kMax:
            r = {std::max(r.low, b.low), std::max(r.high, b.high)};
            break;
          case Function::kBroadcast:
            // One of the two; the larger unless that is 1 beside a 0.
            r = {std::min(r.low, b.low) >= 1 ? std::max(r.low, b.low) : std::min(r.low, b.low),
                 std::max(r.high, b.high)};
            break;
        }
      }
      return r;
    }
    case DimNode::Kind::kSum: {
      Interval sum{0, 0};
      for (const PolyTerm& t : n->terms) {
        Interval product{t.coefficient, t.coefficient};
        if (t.monomial) {
          const auto& atoms = t.monomial->atoms;
          for (size_t i = 0; i < atoms.size();) {
            size_t j = i;
            Interval power{1, 1};
            const Interval base = range(wrap(atoms[i]));
            for (; j < atoms.size() && atoms[j] == atoms[i]; ++j) power = multiply(power, base);
            if ((j - i) % 2 == 0) power.low = std::max<int64_t>(power.low, 0);
            product = multiply(product, power);
            i = j;
          }
        }
        sum = add(sum, product);
      }
      return sum;
    }
  }
  return {kMin, kMax};
}

// --------------------------------------------------------------------- the core proof

// True only if d >= 0 for every assignment that the facts allow. `d` is simplified.
bool DimContext::nonnegative(const Dim& d, int depth) const {
  if (range(d).low >= 0) return true;
  if (d.as_constant() || d.as_symbol() || too_large(d)) return false;
  const Nesting nesting;
  const Effort effort;
  Answer& answer = Effort::answer(this, d);
  if (depth >= answer.proved) return true;
  if (depth <= answer.refuted) return false;
  if (nesting.too_deep() || Effort::spent()) {
    Effort::cut();
    return false;
  }
  const auto prove = [&] {
    Terms terms;
    terms_of(d.node(), terms);

    // 1. Shift symbols to their lower bounds.
    {
      std::map<std::string, Dim> shift;
      DimContext shifted;
      for (const std::string& s : d.symbols()) {
        const SymbolFacts f = facts(s);
        if (f.low == kMin) {
          shifted.set(s, f);
          continue;
        }
        if (f.low != 0) shift[s] = Dim::symbol(s) + Dim(f.low);
        shifted.set(s, {0, f.high == kMax ? kMax : saturate(static_cast<Wide>(f.high) - f.low), 1});
      }
      if (!shift.empty() && shifted.range(d.substitute(shift)).low >= 0) return true;
    }
    if (depth == 0) return false;

    // 2. Assumed inequalities.
    for (const Dim& g : nonnegative_) {
      Terms known;
      terms_of(g.node(), known);
      for (const PolyTerm& k : known) {
        if (!k.monomial) continue;
        for (const PolyTerm& t : terms) {
          auto factor = divide(t.monomial, k.monomial);
          if (!factor || (t.coefficient < 0) != (k.coefficient < 0) ||
              remainder(t.coefficient, k.coefficient) != 0) {
            continue;
          }
          const Dim multiplier = from_term({checked_div(t.coefficient, k.coefficient), *factor});
          if (range(multiplier).low < 0) continue;
          const Dim rest = simplify(d - multiplier * g);
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
  const int64_t cuts = Effort::cuts();
  const bool yes = within_64_bits(prove, false);
  if (yes)
    answer.proved = std::min(answer.proved, depth);
  else if (Effort::cuts() == cuts)
    answer.refuted = std::max(answer.refuted, depth);
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
    const Dim d = simplify(b - a);
    if (nonnegative(d, kDepth)) return Proof::kYes;
    if (nonnegative(simplify(Dim(-1) - d), kDepth)) return Proof::kNo;
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
    if (!nonnegative_.empty()) {  // as it was assumed, both ways
      const Dim difference = a - b, reversed = b - a;
      const auto assumed = [&](const Dim& wanted) {
        return std::find(nonnegative_.begin(), nonnegative_.end(), wanted) != nonnegative_.end();
      };
      if (assumed(difference) && assumed(reversed)) return Proof::kYes;
    }
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
    const bool at_least = nonnegative(d, kDepth), at_most = nonnegative(d * Dim(-1), kDepth);
    if (at_least && at_most) return Proof::kYes;
    if (nonnegative(d - Dim(1), kDepth) || nonnegative(Dim(-1) - d, kDepth)) return Proof::kNo;
    return Proof::kUnknown;
  };
  return within_64_bits(ask, Proof::kUnknown);
}

// ---------------------------------------------------------------------- divisibility

// A positive number that divides the term for every assignment (capped at 2^30).
int64_t DimContext::term_divisor(const PolyTerm& t) const {
  constexpr int64_t kCap = int64_t{1} << 30;
  if (t.coefficient == kMin) return 1;
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

// -------------------------------------------------------------------- simplification

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
        if (rr.low != kMin && rr.high != kMax && floor_div(rr.low, *c) == floor_div(rr.high, *c)) {
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

namespace {

bool has_function(const Dim& d) {
  Terms terms;
  terms_of(d.node(), terms);
  const auto is_function = [](const DimNode* a) { return a->kind == DimNode::Kind::kFunction; };
  return std::any_of(terms.begin(), terms.end(), [&](const PolyTerm& t) {
    return t.monomial && std::ranges::any_of(t.monomial->atoms, is_function);
  });
}

// What the assumptions say that a function is; of an equality both inequalities are there. Its
// value has no functions, so that putting values in their place ends.
std::optional<Dim> assumed_value(const std::vector<Dim>& nonnegative, const Dim& function) {
  for (const Dim& d : nonnegative) {  // d = function - value, for one
    const Dim value = function - d;
    if (!has_function(value) && std::ranges::find(nonnegative, Dim(0) - d) != nonnegative.end())
      return value;
  }
  return std::nullopt;
}

}  // namespace

Dim DimContext::simplify(const Dim& a) const {
  const DimNode* n = a.node();
  if (too_large(a)) return a;
  if (n->kind == DimNode::Kind::kAny || n->kind == DimNode::Kind::kConstant) return a;
  const Effort effort;
  Answer& answer = Effort::answer(this, a);
  if (answer.simplified) return *answer.simplified;
  if (Effort::spent()) {
    Effort::cut();
    return a;
  }
  const auto rewrite = [&] {
    if (n->is_atom()) {
      const Dim simple = simplify_atom(n);
      if (simple.node()->kind != DimNode::Kind::kFunction) return simple;
      return assumed_value(nonnegative_, simple).value_or(simple);
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
  const int64_t cuts = Effort::cuts();
  const Dim result = within_64_bits(rewrite, a);
  if (Effort::cuts() == cuts) answer.simplified = result;
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

// ------------------------------------------------------------------------ assumptions

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
  // A bound on a single symbol sharpens its range.
  const bool lone = !terms.empty() && terms[0].monomial && terms[0].monomial->atoms.size() == 1 &&
                    terms[0].monomial->atoms[0]->kind == DimNode::Kind::kSymbol &&
                    (terms.size() == 1 || (terms.size() == 2 && !terms[1].monomial));
  if (lone) {
    const int64_t k = terms[0].coefficient, c = terms.size() == 2 ? terms[1].coefficient : 0;
    const std::string& name = terms[0].monomial->atoms[0]->name;
    SymbolFacts f = facts(name);
    // k*s + c >= 0
    if (k > 0) f.low = std::max(f.low, saturate(-static_cast<Wide>(floor_div(c, k))));
    if (k < 0 && k != kMin) f.high = std::min(f.high, floor_div(c, -k));
    facts_[name] = f;
    Effort::forget();
    return;
  }
  if (std::find(nonnegative_.begin(), nonnegative_.end(), g) == nonnegative_.end()) {
    nonnegative_.push_back(g);
    Effort::forget();
  }
}

void DimContext::assume_equal(const Dim& a, const Dim& b) {
  const Effort effort;
  const Dim d = simplify(a - b);
  if (too_large(d)) {
    nonnegative_.push_back(a - b);
    nonnegative_.push_back(b - a);
    return;
  }
  if (d.as_constant()) return;
  // Solve for a symbol that occurs once, linearly, with a coefficient that divides all others;
  // rather one that inference made up (`?1`) than one of the user.
  Terms terms;
  terms_of(d.node(), terms);
  int64_t g = 0;
  for (const PolyTerm& t : terms) g = std::gcd(g, t.coefficient == kMin ? 1 : t.coefficient);
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
    assume_less_equal(a, b);
    assume_less_equal(b, a);
    // What the parts of a min or max say may be less than the whole: it counts as it stands, too,
    // and as it is under the bounds just learnt.
    const Dim bounded = simplify(d);
    nonnegative_.push_back(d);
    nonnegative_.push_back(Dim(0) - d);
    Effort::forget();
    if (bounded != d) assume_equal(bounded, 0);
    return;
  }
  const std::string name = best->name;
  const SymbolFacts f = facts(name);
  for (auto& [symbol, value] : equal_to_) value = value.substitute({{name, solution}});
  equal_to_[name] = solution;
  Effort::forget();
  std::vector<Dim> inequalities = std::move(nonnegative_);
  nonnegative_.clear();
  for (const Dim& i : inequalities) {
    assume_less_equal(Dim(0), i);
    if (std::ranges::find(inequalities, Dim(0) - i) != inequalities.end())
      nonnegative_.push_back(simplify(i));  // half of an equality, which counts as it stands
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
    facts_[*other] = both;
    Effort::forget();
  } else {
    if (f.low != kMin) assume_less_equal(Dim(f.low), solution);
    if (f.high != kMax) assume_less_equal(solution, Dim(f.high));
  }
}

}  // namespace nimble::ir
