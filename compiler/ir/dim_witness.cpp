// Assignments that the facts allow, tried before a proof: where d < 0 at one of them, there is no
// proof of d >= 0 to look for. Most questions of memory planning and of the prover's own
// steps are of this kind, and a failed search is what costs most.
#include <algorithm>

#include "compiler/ir/dim_prover.h"

namespace nimble::ir {
namespace {

// The sizes that symbols have at the points: all alike, and mixed.
struct Scale {
  uint64_t low, span;
};
constexpr Scale kScales[] = {{0, 1},     {0, 3},       {3, 13},          {16, 100},
                             {120, 900}, {1000, 9000}, {100'000, 50'000}};
constexpr size_t kPoints = 10, kTries = 24;

uint64_t mix(uint64_t x) {
  x ^= x >> 32;
  x *= 0x9e3779b97f4a7c15;
  return x ^ x >> 29;
}

// A value at this point that the facts of the symbol allow, or none is found.
std::optional<int64_t> draw(const SymbolFacts& facts, uint64_t hash, size_t point) {
  const uint64_t bits = mix(hash + point * 0xd1342543de82ef95);
  const size_t scales = std::size(kScales);
  const Scale scale = kScales[point < scales ? point : bits % scales];
  const Wide step = std::max<int64_t>(facts.divisor, 1);
  const Wide distance = scale.low + mix(bits) % scale.span;
  Wide value =
      facts.low == kNoLow ? std::min<Wide>(facts.high, 0) - distance : facts.low + distance;
  if (facts.high != kNoHigh && bits % 4 == 0) value = facts.high;
  if (value > facts.high) value = facts.low + mix(bits) % (Wide{facts.high} - facts.low + 1);
  value -= value % step;  // towards 0
  if (value < facts.low) value += step;
  if (value > facts.high) value -= step;
  if (value < facts.low) return std::nullopt;
  return saturate(value);
}

}  // namespace

std::optional<int64_t> Witnesses::Point::of(const DimNode* n) {
  switch (n->kind) {
    case DimNode::Kind::kAny:
      return std::nullopt;
    case DimNode::Kind::kConstant:
      return n->constant;
    case DimNode::Kind::kSymbol:
    case DimNode::Kind::kFunction: {
      if (const auto it = atoms_.find(n); it != atoms_.end()) return it->second;
      const auto value = n->kind == DimNode::Kind::kSymbol ? of_symbol(n) : of_function(n);
      return atoms_[n] = value;
    }
    case DimNode::Kind::kSum: {
      int64_t sum = 0;
      for (const PolyTerm& t : n->terms) {
        int64_t product = t.coefficient;
        if (t.monomial)
          for (const DimNode* atom : t.monomial->atoms) {
            const auto value = of(atom);
            if (!value || __builtin_mul_overflow(product, *value, &product)) return std::nullopt;
          }
        if (__builtin_add_overflow(sum, product, &sum)) return std::nullopt;
      }
      return sum;
    }
  }
  return std::nullopt;
}

std::optional<int64_t> Witnesses::Point::of_symbol(const DimNode* n) {
  SymbolFacts range;
  if (const auto it = ranges_->find(n->name); it != ranges_->end()) range = it->second;
  const auto solved = equal_to_->find(n->name);
  if (solved == equal_to_->end()) return draw(range, n->hash, index_);
  const auto value = of(solved->second.node());
  const bool allowed = value && *value >= range.low && *value <= range.high &&
                       remainder(*value, std::max<int64_t>(range.divisor, 1)) == 0;
  return allowed ? value : std::nullopt;
}

std::optional<int64_t> Witnesses::Point::of_function(const DimNode* n) {
  std::optional<int64_t> result = of(n->operands[0]);
  for (size_t i = 1; result && i < n->operands.size(); ++i) {
    const std::optional<int64_t> b = of(n->operands[i]);
    if (!b) return std::nullopt;
    switch (n->function) {
      case Dim::Function::kFloorDiv:
        if (*b == 0) return std::nullopt;
        result = floor_div(*result, *b);
        break;
      case Dim::Function::kMod:
        if (*b == 0) return std::nullopt;
        result = floor_mod(*result, *b);
        break;
      case Dim::Function::kMin:
        result = std::min(*result, *b);
        break;
      case Dim::Function::kMax:
        result = std::max(*result, *b);
        break;
      case Dim::Function::kBroadcast:
        if (*result != *b && *result != 1 && *b != 1) return std::nullopt;
        if (*result == 1) result = b;
        break;
    }
  }
  return result;
}

Witnesses::Witnesses(const Facts& facts) {
  for (size_t i = 0; i < kTries && points_.size() < kPoints; ++i) {
    Point point(facts, i);
    const auto holds = [&](const Dim& assumption) {
      const auto value = point.of(assumption.node());
      return value && *value >= 0;
    };
    const auto defined = [&](const auto& solved) {
      return point.of(Dim::symbol(solved.first).node()).has_value();
    };
    if (std::ranges::all_of(facts.nonnegative, holds) &&
        std::ranges::all_of(facts.equal_to, defined))
      points_.push_back(std::move(point));
  }
}

bool Witnesses::refute(const Dim& d) {
  return std::ranges::any_of(points_, [&](Point& point) {
    const auto value = point.of(d.node());
    return value && *value < 0;
  });
}

}  // namespace nimble::ir
