// Method: a polynomial is as far the same as its atoms. Of the functions of `thread` those are the
// same over a warp that divide by a multiple of its lanes what runs with the lane's number from
// such a multiple on: floordiv(thread, 32), floordiv(mod(thread + 32 y, 128), 64). So it is with a
// group of warps and its threads.
#include "compiler/kernels/spread.h"

#include <algorithm>

namespace nimble::kir {
namespace {

bool is_multiple(const Dim& d, int64_t of) {
  const auto c = d.as_constant();
  return c && *c > 0 && *c % of == 0;
}

}  // namespace

// Whether d is the number of one of so many neighbours, and a multiple of that which is the same
// for all of them: no further apart than `level`.
bool Spreads::counts_lanes(const Dim& d, int64_t neighbours, Spread level) const {
  int lanes = 0;
  for (const Dim::Term& t : d.terms()) {
    bool same = true;
    Dim term = t.coefficient;
    for (const Dim& a : t.atoms) {
      same &= of(a) <= level;
      term = term * a;
    }
    if (same) {
      if (facts->divisible(term, neighbours) != ir::Proof::kYes) return false;
      continue;
    }
    if (t.coefficient != 1 || t.atoms.size() != 1 || ++lanes > 1) return false;
    const Dim& a = t.atoms[0];
    if (a.as_symbol() == "thread") continue;
    const auto call = a.as_application();
    if (!call || call->function != Dim::Function::kMod ||
        !is_multiple(call->operands[1], neighbours) ||
        !counts_lanes(call->operands[0], neighbours, level))
      return false;
  }
  return lanes == 1;
}

Spread Spreads::of(const Dim& d) const {
  Spread all = Spread::kBlock;
  for (const Dim::Term& t : d.terms())
    for (const Dim& a : t.atoms) {
      if (const auto name = a.as_symbol()) {
        const auto it = symbols.find(*name);
        if (it != symbols.end()) all = std::max(all, it->second);
        continue;
      }
      const auto call = a.as_application();
      if (!call) return Spread::kLane;
      Spread worst = Spread::kBlock;
      for (const Dim& o : call->operands) worst = std::max(worst, of(o));
      const auto counts = [&](int64_t lanes, Spread level) {
        return call->function == Dim::Function::kFloorDiv &&
               is_multiple(call->operands[1], lanes) &&
               counts_lanes(call->operands[0], lanes, level);
      };
      if (worst == Spread::kLane && counts(kGroupThreads, Spread::kGroup))
        worst = Spread::kGroup;
      else if (worst == Spread::kLane && counts(kWarpLanes, Spread::kWarp))
        worst = Spread::kWarp;
      all = std::max(all, worst);
    }
  return all;
}

Spread Spreads::of(const Condition& c) const {
  Spread all = Spread::kBlock;
  for (const Condition::Term& t : c.terms) all = std::max({all, of(t.a), of(t.b)});
  return all;
}

Spread Spreads::of(const Value& v) const {
  Known known;
  return of(v, known);
}

Spread Spreads::of(const Value& v, Known& known) const {
  const auto [it, is_new] = known.emplace(&v, Spread::kLane);
  if (!is_new) return it->second;
  Spread all = Spread::kBlock;
  for (const ValueRef& o : v.operands) all = std::max(all, of(*o, known));
  switch (v.kind) {
    case ValueKind::kIndex:
      all = of(v.index);
      break;
    case ValueKind::kLoad:
      if (v.buffer->scope != Scope::kArgument || v.buffer->writable) {
        all = Spread::kLane;
        break;
      }
      all = std::max(of(v.index), of(v.stride));
      if (v.valid) all = std::max(all, of(*v.valid));
      if (v.passthrough) all = std::max(all, of(*v.passthrough, known));
      break;
    case ValueKind::kRegister:
      all = Spread::kLane;
      break;
    case ValueKind::kLocal: {
      const auto local = locals.find(v.name);
      all = local == locals.end() ? Spread::kLane : local->second;
      break;
    }
    case ValueKind::kShuffle:
      if (of(v.index) != Spread::kLane) all = std::min(all, Spread::kWarp);
      break;
    default:
      break;
  }
  return known[&v] = all;
}

}  // namespace nimble::kir
