// Compute rules: what one element of each element-wise operator is. A rule is a function from
// operand values to a value; it works on any lanes. Integers wrap and never trap (kernel_ir.h),
// so lanes beyond a tail may hold anything.
#include <cmath>
#include <functional>
#include <limits>
#include <unordered_map>

#include "compiler/kernels/group.h"
#include "compiler/kernels/interpreter_lanes.h"
#include "compiler/kernels/math.h"
#include "vm/base/error.h"

namespace nimble::kernels {
namespace {

namespace kb = kir::build;
namespace km = kir::math;
using kir::BinaryOp;
using kir::CompareOp;
using kir::UnaryOp;
using kir::ValueRef;

struct Arguments {
  const ir::Expr& call;
  const std::vector<ValueRef>& x;
  DType result;
  const ValueRef& operator[](size_t i) const { return x[i]; }
  DType type() const { return x[0]->dtype; }
  ValueRef number(double v) const { return kb::number(type(), v, x[0]->lanes); }
  ValueRef integer(int64_t v) const { return kb::integer(type(), v, x[0]->lanes); }
};
using Rule = std::function<ValueRef(const Arguments&)>;

Rule unary(UnaryOp op) {
  return [op](const Arguments& a) { return kb::unary(op, a[0]); };
}
// Roundings leave integers as they are.
Rule rounding(UnaryOp op) {
  return [op](const Arguments& a) { return is_float(a.type()) ? kb::unary(op, a[0]) : a[0]; };
}
Rule function(ValueRef (*f)(ValueRef)) {
  return [f](const Arguments& a) { return f(a[0]); };
}
Rule binary(BinaryOp op) {
  return [op](const Arguments& a) { return kb::binary(op, a[0], a[1]); };
}
Rule comparison(CompareOp op) {
  return [op](const Arguments& a) -> ValueRef {
    // Bools compare as integers.
    if (a.type() == DType::kBool)
      return kb::compare(op, kb::cast(DType::kI32, a[0]), kb::cast(DType::kI32, a[1]));
    return kb::compare(op, a[0], a[1]);
  };
}

// numpy's maximum and minimum: NaN if either operand is.
ValueRef extreme(BinaryOp op, const ValueRef& a, const ValueRef& b) {
  if (a->dtype == DType::kBool)
    return kb::binary(op == BinaryOp::kMax ? BinaryOp::kOr : BinaryOp::kAnd, a, b);
  const ValueRef m = kb::binary(op, a, b);  // b if either is NaN
  return is_float(a->dtype) ? kb::select(kb::compare(CompareOp::kNe, a, a), a, m) : m;
}

// The nearest number of the operand's type.
ValueRef nearest(const Arguments& a, double v) {
  return is_float(a.type()) ? a.number(v) : a.integer(kir::saturate(a.type(), v));
}

ValueRef clip(const Arguments& a) {
  ValueRef v = a[0];
  // A NaN stays one: it is the second operand.
  if (a.call.attrs.contains("min"))
    v = kb::max(nearest(a, ir::attr<double>(a.call.attrs, "min")), v);
  if (a.call.attrs.contains("max"))
    v = kb::min(nearest(a, ir::attr<double>(a.call.attrs, "max")), v);
  return v;
}

ValueRef gelu(const Arguments& a) {
  const ValueRef half = kb::mul(a[0], a.number(0.5));
  return kb::fma(half, km::erf(kb::mul(a[0], a.number(std::sqrt(0.5)))), half);
}

ValueRef gelu_tanh(const Arguments& a) {
  // x/2 * (1 + tanh(u)) = x * sigmoid(2u), u = sqrt(2/pi) * (x + 0.044715 x^3).
  const double c = 2 * std::sqrt(2 / M_PI);
  const ValueRef square = kb::mul(a[0], a[0]);
  const ValueRef u = kb::mul(a[0], kb::fma(square, a.number(c * 0.044715), a.number(c)));
  return kb::mul(a[0], km::sigmoid(u));
}

// The floating-point remainder with the divisor's sign: x where the divisor is infinite, moved by
// the divisor where it has the other sign.
ValueRef remainder(const Arguments& a) {
  if (!is_float(a.type())) return kb::binary(BinaryOp::kMod, a[0], a[1]);
  const ValueRef quotient = kb::unary(UnaryOp::kTrunc, kb::div(a[0], a[1]));
  ValueRef r = kb::fma(kb::unary(UnaryOp::kNeg, quotient), a[1], a[0]);
  const ValueRef far = kb::compare(CompareOp::kEq, kb::unary(UnaryOp::kAbs, a[1]),
                                   a.number(std::numeric_limits<double>::infinity()));
  const ValueRef finite = kb::compare(CompareOp::kEq, kb::sub(a[0], a[0]), a.number(0));
  r = kb::select(kb::binary(BinaryOp::kAnd, far, finite), a[0], r);
  const auto negative = [&](const ValueRef& v) {
    return kb::compare(CompareOp::kLt, v, a.number(0));
  };
  const ValueRef other = kb::binary(BinaryOp::kXor, negative(r), negative(a[1]));
  const ValueRef moved =
      kb::binary(BinaryOp::kAnd, other, kb::compare(CompareOp::kNe, r, a.number(0)));
  return kb::select(moved, kb::add(r, a[1]), r);
}

// Integers: square and multiply over the exponent's low six bits; beyond 63 only 0, 1 and -1 have
// powers that fit, and their parity decides.
ValueRef integer_power(const Arguments& a) {
  ValueRef base = a[0], result = a.integer(1);
  for (int bit = 0; bit < 6; ++bit) {
    const ValueRef set = kb::compare(
        CompareOp::kNe, kb::binary(BinaryOp::kAnd, a[1], a.integer(1 << bit)), a.integer(0));
    result = kb::select(set, kb::mul(result, base), result);
    base = kb::mul(base, base);
  }
  // A negative exponent truncates 1 / x^n to 0 unless x is 1 or -1.
  if (!is_signed_int(a.type())) return result;
  const ValueRef unit = kb::binary(BinaryOp::kOr, kb::compare(CompareOp::kEq, a[0], a.integer(1)),
                                   kb::compare(CompareOp::kEq, a[0], a.integer(-1)));
  const ValueRef negative = kb::compare(CompareOp::kLt, a[1], a.integer(0));
  return kb::select(kb::binary(BinaryOp::kAnd, negative, kb::unary(UnaryOp::kNot, unit)),
                    a.integer(0), result);
}

// The machine takes the amount modulo the width; outside of it nothing but the sign is left.
ValueRef shift(const Arguments& a) {
  const bool left = a.call.op == "shift_left";
  const int64_t width = 8 * static_cast<int64_t>(size_of(a.type()));
  ValueRef gone = kb::compare(CompareOp::kGe, a[1], a.integer(width));
  if (is_signed_int(a.type()))
    gone = kb::binary(BinaryOp::kOr, gone, kb::compare(CompareOp::kLt, a[1], a.integer(0)));
  if (left || !is_signed_int(a.type()))
    return kb::select(gone, a.integer(0),
                      kb::binary(left ? BinaryOp::kShl : BinaryOp::kShr, a[0], a[1]));
  return kb::binary(BinaryOp::kShr, a[0], kb::select(gone, a.integer(width - 1), a[1]));
}

ValueRef power(const Arguments& a) {
  if (!is_float(a.type())) return integer_power(a);
  if (a[1]->kind == kir::ValueKind::kConst) {  // what exporters write: x^2, x^3, x^0.5
    const double y = a[1]->constant;
    if (y == 1) return a[0];
    if (y == 2) return kb::mul(a[0], a[0]);
    if (y == 3) return kb::mul(kb::mul(a[0], a[0]), a[0]);
    if (y == -1) return kb::div(a.number(1), a[0]);
  }
  return km::pow(a[0], a[1]);
}

ValueRef leaky_relu(const Arguments& a) {
  const ValueRef scaled = kb::mul(a[0], a.number(ir::attr<double>(a.call.attrs, "alpha")));
  return kb::select(kb::compare(CompareOp::kGe, a[0], a.number(0)), a[0], scaled);
}

ValueRef cast(const Arguments& a) {
  if (a.result == DType::kBool && a.type() != DType::kBool)
    return kb::compare(CompareOp::kNe, a[0], a.number(0));
  // f16 and bf16 are computed in f32, but a program that casts to them asks for their rounding, and
  // one that casts from them for what they hold.
  const DType from = ir::type_of(a.call.args[0])->dtype;
  const DType to = ir::attr<DType>(a.call.attrs, "dtype");
  const ValueRef x = is_float(from) ? kb::cast(a.type(), kb::cast(from, a[0])) : a[0];
  return kb::cast(a.result, kb::cast(to, x));
}

// Narrow floats are computed in f32: what was only widened is taken as it was stored (kb::cast).
ValueRef bitcast(const Arguments& a) {
  const DType from = ir::type_of(a.call.args[0])->dtype;
  const DType to = ir::attr<DType>(a.call.attrs, "dtype");
  const ValueRef x = kb::cast(from, a[0]);
  // A bool in memory is any byte; its bits are those of its value.
  if (from == DType::kBool || to == DType::kBool) return kb::cast(a.result, kb::cast(to, x));
  return kb::cast(a.result, kb::bitcast(to, x));
}

// Philox 4x32-10: Salmon, Moraes, Dror, Shaw, "Parallel Random Numbers: As Easy as 1, 2, 3", SC11.
// A number is a function of its counter and the key and needs no state: ten rounds that each
// multiply two of the four words by a constant, cross the halves of the products and add words of
// a Weyl sequence. Words of 32 bits stand in the lower halves of 64.
ValueRef random_bits(const Arguments& a) {
  constexpr int kRounds = 10;
  constexpr uint64_t kMultiplier[] = {0xD2511F53, 0xCD9E8D57}, kWeyl[] = {0x9E3779B9, 0xBB67AE85};
  const auto number = [&](uint64_t v) {
    return kb::integer(DType::kU64, static_cast<int64_t>(v), a[0]->lanes);
  };
  const ValueRef low_half = number(0xFFFFFFFF), half = number(32);
  const auto low = [&](const ValueRef& v) { return kb::binary(BinaryOp::kAnd, v, low_half); };
  const auto high = [&](const ValueRef& v) { return kb::binary(BinaryOp::kShr, v, half); };
  const auto mix = [&](const ValueRef& x, const ValueRef& y, uint64_t key) {
    return kb::binary(BinaryOp::kXor, kb::binary(BinaryOp::kXor, high(x), y), number(key));
  };
  const ValueRef index = kb::bitcast(DType::kU64, a[0]), stream = kb::bitcast(DType::kU64, a[1]);
  ValueRef w[] = {low(index), high(index), low(stream), high(stream)};
  const auto key = static_cast<uint64_t>(ir::attr<int64_t>(a.call.attrs, "key"));
  auto key_low = static_cast<uint32_t>(key), key_high = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < kRounds; ++round) {
    const ValueRef x = kb::mul(w[0], number(kMultiplier[0]));
    const ValueRef y = kb::mul(w[2], number(kMultiplier[1]));
    ValueRef first = mix(y, w[1], key_low), third = mix(x, w[3], key_high);
    w[0] = std::move(first);
    w[1] = low(y);
    w[2] = std::move(third);
    w[3] = low(x);
    key_low += static_cast<uint32_t>(kWeyl[0]);
    key_high += static_cast<uint32_t>(kWeyl[1]);
  }
  return kb::binary(BinaryOp::kOr, w[0], kb::binary(BinaryOp::kShl, w[1], half));
}

// x, scale, bias, mean, variance.
ValueRef batch_norm(const Arguments& a) {
  const double epsilon = ir::attr<double>(a.call.attrs, "epsilon");
  const ValueRef deviation =
      kb::unary(UnaryOp::kSqrt, kb::add(a[4], kb::number(a.type(), epsilon, a[4]->lanes)));
  return kb::fma(kb::sub(a[0], a[3]), kb::div(a[1], deviation), a[2]);
}

const std::unordered_map<std::string, Rule>& rules() {
  static const std::unordered_map<std::string, Rule> all = {
      {"neg", unary(UnaryOp::kNeg)},
      {"abs", unary(UnaryOp::kAbs)},
      {"exp", function(km::exp)},
      {"log", function(km::log)},
      {"sqrt", unary(UnaryOp::kSqrt)},
      {"rsqrt",
       [](const Arguments& a) { return kb::div(a.number(1), kb::unary(UnaryOp::kSqrt, a[0])); }},
      {"reciprocal", [](const Arguments& a) { return kb::div(a.number(1), a[0]); }},
      {"tanh", function(km::tanh)},
      {"sigmoid", function(km::sigmoid)},
      {"erf", function(km::erf)},
      {"relu", [](const Arguments& a) { return kb::max(a.number(0), a[0]); }},
      {"gelu", gelu},
      {"gelu_tanh", gelu_tanh},
      {"softplus", function(km::softplus)},
      {"leaky_relu", leaky_relu},
      {"floor", rounding(UnaryOp::kFloor)},
      {"ceil", rounding(UnaryOp::kCeil)},
      {"round", rounding(UnaryOp::kRound)},
      {"sin", function(km::sin)},
      {"cos", function(km::cos)},
      {"atan", function(km::atan)},
      {"trunc", rounding(UnaryOp::kTrunc)},
      {"bitwise_and", binary(BinaryOp::kAnd)},
      {"bitwise_or", binary(BinaryOp::kOr)},
      {"bitwise_xor", binary(BinaryOp::kXor)},
      {"shift_left", shift},
      {"shift_right", shift},
      {"not", unary(UnaryOp::kNot)},
      {"cast", cast},
      {"bitcast", bitcast},
      {"random_bits", random_bits},
      {"clip", clip},
      {"add", binary(BinaryOp::kAdd)},
      {"sub", binary(BinaryOp::kSub)},
      {"mul", binary(BinaryOp::kMul)},
      {"div", binary(BinaryOp::kDiv)},
      {"mod", remainder},
      {"pow", power},
      {"maximum", [](const Arguments& a) { return extreme(BinaryOp::kMax, a[0], a[1]); }},
      {"minimum", [](const Arguments& a) { return extreme(BinaryOp::kMin, a[0], a[1]); }},
      {"equal", comparison(CompareOp::kEq)},
      {"not_equal", comparison(CompareOp::kNe)},
      {"less", comparison(CompareOp::kLt)},
      {"less_equal", comparison(CompareOp::kLe)},
      {"greater", comparison(CompareOp::kGt)},
      {"greater_equal", comparison(CompareOp::kGe)},
      {"and", binary(BinaryOp::kAnd)},
      {"or", binary(BinaryOp::kOr)},
      {"where", [](const Arguments& a) { return kb::select(a[0], a[1], a[2]); }},
      {"batch_norm", batch_norm},
  };
  return all;
}

}  // namespace

bool has_compute_rule(const std::string& op) {
  return rules().contains(op);
}

ValueRef compute(const ir::Expr& call, const std::vector<ValueRef>& operands, DType result) {
  const auto rule = rules().find(call.op);
  NIMBLE_CHECK(rule != rules().end(), "no compute rule for {}", call.op);
  return rule->second(Arguments{call, operands, result});
}

}  // namespace nimble::kernels
