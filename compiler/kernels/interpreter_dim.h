// The value of a Dim's program.
#pragma once

#include <algorithm>

#include "compiler/kernels/interpreter_code.h"

namespace nimble::kir {

// Symbol `slot` is symbols[slot * kPitch]. `fault`, which does not return, takes the problem.
template <int kPitch, class Fault>
int64_t evaluate(const DimCode& d, const int64_t* symbols, const Fault& fault);

template <int kPitch, class Fault>
int64_t evaluate(const DimCode::Factor& f, const int64_t* symbols, const Fault& fault) {
  if (f.slot >= 0) return symbols[f.slot * kPitch];
  int64_t a = evaluate<kPitch>(f.operands[0], symbols, fault);
  for (size_t i = 1; i < f.operands.size(); ++i) {
    const int64_t b = evaluate<kPitch>(f.operands[i], symbols, fault);
    switch (f.function) {
      case Dim::Function::kFloorDiv:
      case Dim::Function::kMod: {
        if (b == 0) fault("division by 0 in an index");
        const int64_t q = a / b - ((a % b != 0 && (a ^ b) < 0) ? 1 : 0);
        a = f.function == Dim::Function::kMod ? a - q * b : q;
        break;
      }
      case Dim::Function::kMin:
        a = std::min(a, b);
        break;
      case Dim::Function::kMax:
        a = std::max(a, b);
        break;
      case Dim::Function::kBroadcast:
        if (a != b && a != 1 && b != 1) fault("extents that do not broadcast");
        a = a == 1 ? b : a;
        break;
    }
  }
  return a;
}

template <int kPitch, class Fault>
int64_t evaluate(const DimCode& d, const int64_t* symbols, const Fault& fault) {
  int64_t sum = d.constant;
  for (const DimCode::Term& t : d.terms) {
    int64_t product = t.coefficient;
    bool overflow = false;
    for (const DimCode::Factor& f : t.factors)
      overflow |= __builtin_mul_overflow(product, evaluate<kPitch>(f, symbols, fault), &product);
    overflow |= __builtin_add_overflow(sum, product, &sum);
    if (overflow) fault("index arithmetic beyond 64 bits");
  }
  return sum;
}

inline bool holds(Condition::Op op, int64_t a, int64_t b) {
  return op == Condition::Op::kLt   ? a < b
         : op == Condition::Op::kLe ? a <= b
         : op == Condition::Op::kEq ? a == b
                                    : a != b;
}

}  // namespace nimble::kir
