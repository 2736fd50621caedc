// Interval arithmetic over Dims: the range that a DimContext gives an expression.
#include <algorithm>

#include "compiler/ir/dim_prover.h"

namespace nimble::ir {
namespace {

using Function = Dim::Function;
using Interval = DimContext::Interval;

constexpr int64_t kMin = kNoLow, kMax = kNoHigh;

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

}  // namespace

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

}  // namespace nimble::ir
