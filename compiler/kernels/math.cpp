// Polynomial elementary functions.
//
// Method. Each function is reduced to a short interval, where a polynomial with free higher
// coefficients and exact leading ones (so that the value near 0 keeps its relative precision) is
// evaluated by Horner's rule with fma. The coefficients are ours: a Remez exchange in 50-digit
// arithmetic on 400 Chebyshev nodes, minimising the largest *relative* error of the function (the
// weight of each fit is given beside it), then rounded to the working format. The errors that
// remain, in theory before rounding, stand with each table.
//
//   exp    x = n ln2 + r, |r| <= ln2 / 2 (Cody and Waite's two-part ln2); exp = 2^n exp(r).
//   scale  2^n is multiplied in two halves so that results below 2^-126 underflow gradually. With
//          AVX-512 one instruction does it all.
//   expm1  the same reduction, 2^n (exp(r) - 1) + (2^n - 1): no cancellation for n = 0.
//   tanh   (e - 1) / (e + 1) with e = exp(2|x|) becomes m / (m + 2), m = expm1(2|x|).
//   erf    erfc(x) = exp(-Q(x)) with Q = -log(erfc), a smooth function that a polynomial of
//          degree 9 fits on [0, 4]; erf = -expm1(-Q). In f64 a polynomial in x^2 up to 0.75,
//          beyond it erfc(x) = t exp(-x^2 + P(t)), t = 2 / (2 + x) (the form of Schonfelder,
//          Math. Comp. 32, 1978; coefficients ours).
//   log    x = 2^e (1 + f), sqrt(1/2) <= 1 + f < sqrt(2); f - f^2/2 + f^3 L(f) in f32, the series
//          of 2 atanh(f / (2 + f)) in f64.
//   atan   1/|x| where |x| > 1, then (t - 1) / (t + 1) where t > sqrt(2) - 1: pi/2 - atan(1/x) and
//          pi/4 + atan(..) are put together in two parts of pi.
//   sin    x = n pi/2 + r, the quadrant n mod 4 picks the polynomial and the sign. f32 arguments
//          are reduced in f64. Up to 2^20 with pi/2 in three parts (Cody and Waite). Beyond, the
//          product x 2/pi is taken modulo 4 in fixed point (Payne and Hanek, ACM SIGNUM 18, 1983):
//          |x| = M 2^E, M an integer of 53 bits. Of 2/pi the bits worth 2^(2-E) and more add
//          multiples of 4 and are skipped; the 128 bits A B that follow give M A mod 2^64 + M B
//          / 2^64, which is x 2/pi mod 4 in units of 2^-62, but for 3 units. The f32 nearest to a
//          multiple of pi/2 is 2^-30 away from it, which leaves 30 good bits.
//
// Rounding to an integer adds and subtracts 1.5 * 2^52 (2^23 in f32): the integer is then in the
// low bits of the sum, from where shifts make 2^n without a conversion. min(c, x) in this
// order keeps a NaN of x (kernel_ir.h), so no special case is needed for it.
#include "compiler/kernels/math.h"

#include <algorithm>
#include <initializer_list>
#include <limits>
#include <numbers>
#include <vector>

#include "vm/base/error.h"

namespace nimble::kir::math {
namespace {

using namespace build;

// (expm1(r) - r) / r^2 on |r| <= ln2/2, weight r^2 / expm1(r); errors 2.7e-10 and 3.4e-21.
constexpr double kExp32[] = {0x1p-1,        0x1.555556p-3,  0x1.55549ep-5,
                             0x1.11101ep-7, 0x1.6d8348p-10, 0x1.a2a28p-13};
constexpr double kExp64[] = {0x1.0000000000000p-1,  0x1.5555555555555p-3,  0x1.5555555555559p-5,
                             0x1.1111111111118p-7,  0x1.6c16c16c14a74p-10, 0x1.a01a01a01462bp-13,
                             0x1.a01a01aec0279p-16, 0x1.71de3a74c33a0p-19, 0x1.27e4c9d7a9134p-22,
                             0x1.ae63b7434f24bp-26, 0x1.1f8ef2b055a8dp-29, 0x1.627d742fc5ba3p-33};
// -log(erfc(x)) / x on [0, 3.93], weight x erfc(x) / erf(x); error 4.0e-9.
constexpr double kErf32[] = {0x1.20dd76p+0,   0x1.45f2fap-1,   0x1.a4fa5ep-4,
                             -0x1.39cdcep-6,  -0x1.50565ap-13, 0x1.b4fee6p-10,
                             -0x1.4bc80cp-11, 0x1.ed674ap-14,  -0x1.369150p-17};
// erf(x) / x in x^2 on [0, 0.75^2]; error 8.1e-19.
constexpr double kErf64[] = {0x1.20dd750429b6dp+0,   -0x1.812746b0379e0p-2,  0x1.ce2f21a0424dap-4,
                             -0x1.b82ce31257c4dp-6,  0x1.565bcd037d03ep-8,   -0x1.c02db126e13cbp-11,
                             0x1.f9a2b03e15e9dp-14,  -0x1.f4c5eaaf07896p-17, 0x1.b90f5c081fa4dp-20,
                             -0x1.56532292969bcp-23, 0x1.8a45f040e4dc9p-27};
// log(erfc(x) / t) + x^2 in z = 2t - 1, t = 2 / (2 + x), x in [0.7, 6]; absolute error 4.7e-18.
constexpr double kErfc64[] = {
    -0x1.57f564e956ebep-1,  0x1.5864b151b8572p-1,   0x1.83d61c5241413p-5,   -0x1.802b39089c5c1p-5,
    -0x1.43821ef9c92aep-7,  0x1.212cf340ec5a7p-7,   0x1.cd18084b15483p-10,  -0x1.337868efad69cp-9,
    -0x1.32b3980365b02p-13, 0x1.6133e9d8b696ap-11,  -0x1.892999bce51c2p-14, -0x1.6d95eb28e0edap-13,
    0x1.2b8c4d942e8ccp-14,  0x1.0b7d940a6f130p-15,  -0x1.fbbd715ad2e14p-16, -0x1.c2f75b502f5eep-22,
    0x1.25cdcb0f6ece9p-17,  -0x1.cd38562c20283p-20, -0x1.99314120ea9dap-20};
// (log(1+f) - f + f^2/2) / f^3 on [sqrt(1/2) - 1, sqrt(2) - 1], weight f^3 / log(1+f); 5.8e-9.
constexpr double kLog32[] = {0x1.555554p-2, -0x1.000226p-2, 0x1.99a008p-3, -0x1.547248p-3,
                             0x1.22da2ep-3, -0x1.0d8534p-3, 0x1.055afp-3,  -0x1.38b49ep-4};
// (2 atanh(s) / s - 2) / s^2 in s^2, s = f / (2 + f); error 1.6e-20.
constexpr double kLog64[] = {0x1.5555555555555p-1, 0x1.9999999999dffp-2, 0x1.249249242b428p-2,
                             0x1.c71c7258fc6f8p-3, 0x1.745cde35f5321p-3, 0x1.3b20ab827319dp-3,
                             0x1.0f5cca10db4d3p-3, 0x1.0f630927b4554p-3};
// (sin(r) / r - 1) / r^2 and (cos(r) - 1 + r^2/2) / r^4 in r^2, |r| <= pi/4.
constexpr double kSin32[] = {-0x1.555546p-3, 0x1.11075cp-7, -0x1.994cfap-13};
constexpr double kCos32[] = {0x1.55554ap-5, -0x1.6c0c86p-10, 0x1.9a00cep-16};
constexpr double kSin64[] = {-0x1.5555555555555p-3, 0x1.111111111110bp-7,   -0x1.a01a01a018acep-13,
                             0x1.71de3a5337a4ap-19, -0x1.ae645295e00fbp-26, 0x1.61209125a1189p-33,
                             -0x1.aaa47c693752fp-41};
constexpr double kCos64[] = {0x1.5555555555555p-5,   -0x1.6c16c16c16c10p-10, 0x1.a01a01a018dd6p-16,
                             -0x1.27e4fb75fc28dp-22, 0x1.1eed8ca22e633p-29,  -0x1.9393368e77decp-37,
                             0x1.aac4e6b086d4fp-45};

// (atan(r) / r - 1) / r^2 in r^2, |r| <= sqrt(2) - 1; errors 6.7e-10 and 4.7e-20.
constexpr double kAtan32[] = {-0x1.55554ap-2, 0x1.999196p-3, -0x1.23b514p-3, 0x1.b1eb48p-4,
                              -0x1.f1e8bcp-5};
constexpr double kAtan64[] = {-0x1.5555555555554p-2, 0x1.999999999964ap-3,  -0x1.249249247561bp-3,
                              0x1.c71c71b743df2p-4,  -0x1.745d14b8c7e6ep-4, 0x1.3b136e189563cp-4,
                              -0x1.110c71a05d3abp-4, 0x1.e171ea1552a0dp-5,  -0x1.ab7cfbb9e5859p-5,
                              0x1.70eb52abd8b42p-5,  -0x1.12338c8cbb222p-5, 0x1.f1d9291fc32fbp-7};

// Constants of one floating-point format.
struct Format {
  DType type, bits;
  int mantissa;  // stored bits
  int64_t bias;
  double magic;              // 1.5 * 2^mantissa
  double ln2_hi, ln2_lo;     // n * ln2_hi is exact for every exponent n
  double exp_low, exp_high;  // beyond these exp is 0 or infinite
  double exp_normal;         // from here on exp is a normal number
  double smallest_normal;
  int64_t sqrt_half, one, infinity, sign;  // bit patterns

  const Value& like;
  ValueRef c(double v) const { return number(type, v, like.lanes); }
  ValueRef i(int64_t v) const { return integer(bits, v, like.lanes); }
};

Format format_of(const ValueRef& x) {
  NIMBLE_CHECK(x->dtype == DType::kF32 || x->dtype == DType::kF64, "{}", nimble::name_of(x->dtype));
  if (x->dtype == DType::kF32)
    return {DType::kF32,    DType::kI32, 23,        127,      0x1.8p23, 0x1.62e4p-1,
            0x1.7f7d1cp-20, -104.0,      89.0,      -87.3365, 0x1p-126, 0x3f3504f3,
            0x3f800000,     0x7f800000,  INT32_MIN, *x};
  return {DType::kF64,
          DType::kI64,
          52,
          1023,
          0x1.8p52,
          0x1.62e42fefa3800p-1,
          0x1.ef35793c76730p-45,
          -746.0,
          710.0,
          -708.3964,
          0x1p-1022,
          0x3fe6a09e667f3bcd,
          0x3ff0000000000000,
          0x7ff0000000000000,
          INT64_MIN,
          *x};
}

template <size_t N>
ValueRef horner(const Format& f, const double (&c)[N], const ValueRef& x) {
  ValueRef p = f.c(c[N - 1]);
  for (size_t i = N - 1; i-- > 0;) p = fma(p, x, f.c(c[i]));
  return p;
}

ValueRef shift_left(const Format& f, const ValueRef& v, int by) {
  return binary(BinaryOp::kShl, v, f.i(by));
}
ValueRef is(CompareOp op, const ValueRef& a, const ValueRef& b) {
  return compare(op, a, b);
}
ValueRef abs_of(const ValueRef& x) {
  return unary(UnaryOp::kAbs, x);
}

ValueRef copy_sign(const Format& f, const ValueRef& magnitude, const ValueRef& sign) {
  return bitcast(f.type, binary(BinaryOp::kOr, bitcast(f.bits, magnitude),
                                binary(BinaryOp::kAnd, bitcast(f.bits, sign), f.i(f.sign))));
}

// The integer in the low bits of a sum with f.magic.
ValueRef integer_in(const Format& f, const ValueRef& shifted) {
  const int64_t magic_bits = f.type == DType::kF32 ? 0x4b400000 : 0x4338000000000000;
  return sub(bitcast(f.bits, shifted), f.i(magic_bits));
}

// x = n ln2 + r, n also as a float. n is meaningless where x is NaN, but whole and r are NaN there.
struct Reduced {
  ValueRef n, whole, r;
};
Reduced reduce_by_ln2(const Format& f, const ValueRef& x) {
  const ValueRef shifted = fma(x, f.c(std::numbers::log2e), f.c(f.magic));
  const ValueRef whole = sub(shifted, f.c(f.magic));
  const ValueRef r = fma(whole, f.c(-f.ln2_lo), fma(whole, f.c(-f.ln2_hi), x));
  return {integer_in(f, shifted), whole, r};
}

ValueRef two_to_the(const Format& f, const ValueRef& n) {
  return bitcast(f.type, shift_left(f, add(n, f.i(f.bias)), f.mantissa));
}

ValueRef expm1_reduced(const Format& f, const ValueRef& r) {
  const ValueRef q = f.type == DType::kF32 ? horner(f, kExp32, r) : horner(f, kExp64, r);
  return fma(mul(r, r), q, r);
}

// exp(x) - 1 for x whose 2^n is a normal number; the caller clamps.
ValueRef expm1_clamped(const Format& f, const ValueRef& x) {
  const Reduced d = reduce_by_ln2(f, x);
  const ValueRef scale = two_to_the(f, d.n);
  return fma(scale, expm1_reduced(f, d.r), sub(scale, f.c(1)));
}

// exp(x), and exp(low) below that.
ValueRef exp_from(const Format& f, double low, const ValueRef& x) {
  const ValueRef clamped = max(f.c(low), min(f.c(f.exp_high), x));
  const Reduced d = reduce_by_ln2(f, clamped);
  return binary(BinaryOp::kScale, add(expm1_reduced(f, d.r), f.c(1)), d.whole);
}

ValueRef log_normal(const Format& f, const ValueRef& bits, const ValueRef& exponent_bias) {
  const ValueRef offset = sub(bits, f.i(f.sqrt_half));
  const ValueRef e = binary(BinaryOp::kShr, offset, f.i(f.mantissa));
  const ValueRef m = bitcast(f.type, sub(bits, shift_left(f, e, f.mantissa)));
  const ValueRef fraction = sub(m, f.c(1));
  const ValueRef n = add(cast(f.type, e), exponent_bias);
  const ValueRef square = mul(fraction, fraction);
  if (f.type == DType::kF32) {
    const ValueRef cubic = mul(mul(fraction, square), horner(f, kLog32, fraction));
    const ValueRef tail = fma(n, f.c(f.ln2_lo), fma(square, f.c(-0.5), cubic));
    return fma(n, f.c(f.ln2_hi), add(fraction, tail));
  }
  // log(1+f) = 2s + s^3 R = f - (f^2/2 - s (f^2/2 + s^2 R)): the leading terms are exact in f.
  const ValueRef s = div(fraction, add(fraction, f.c(2)));
  const ValueRef z = mul(s, s);
  const ValueRef half = mul(square, f.c(0.5));
  const ValueRef inner = fma(s, fma(z, horner(f, kLog64, z), half), mul(n, f.c(f.ln2_lo)));
  return fma(n, f.c(f.ln2_hi), sub(fraction, sub(half, inner)));
}

}  // namespace

ValueRef exp(ValueRef x) {
  const Format f = format_of(x);
  return exp_from(f, f.exp_low, x);
}

ValueRef exp_flushed(ValueRef x) {
  const Format f = format_of(x);
  return select(is(CompareOp::kLt, x, f.c(f.exp_normal)), f.c(0), exp_from(f, f.exp_normal, x));
}

ValueRef scale(ValueRef x, ValueRef n) {
  const Format f = format_of(x);
  const ValueRef whole = integer_in(f, add(n, f.c(f.magic)));
  const ValueRef half = binary(BinaryOp::kShr, whole, f.i(1));
  return mul(mul(x, two_to_the(f, half)), two_to_the(f, sub(whole, half)));
}

ValueRef expm1(ValueRef x) {
  const Format f = format_of(x);
  // Below -40 the result is -1. At the upper end 2^n itself would overflow, so 2^(n-1) is used.
  const ValueRef clamped = max(f.c(-40), min(f.c(f.exp_high), x));
  const Reduced d = reduce_by_ln2(f, clamped);
  const ValueRef big = is(CompareOp::kGt, d.n, f.i(1));
  const ValueRef scale = two_to_the(f, select(big, sub(d.n, f.i(1)), d.n));
  const ValueRef one = select(big, f.c(0.5), f.c(1));
  const ValueRef m = fma(scale, expm1_reduced(f, d.r), sub(scale, one));
  const ValueRef result = select(big, mul(m, f.c(2)), m);
  return select(is(CompareOp::kEq, x, f.c(0)), x, result);
}

ValueRef log(ValueRef x) {
  const Format f = format_of(x);
  const double up = f.type == DType::kF32 ? 0x1p24 : 0x1p54;
  const ValueRef small = is(CompareOp::kLt, x, f.c(f.smallest_normal));
  const ValueRef scaled = select(small, mul(x, f.c(up)), x);
  const ValueRef bias = select(small, f.c(f.type == DType::kF32 ? -24 : -54), f.c(0));
  ValueRef r = log_normal(f, bitcast(f.bits, scaled), bias);
  const double inf = std::numeric_limits<double>::infinity();
  // Of the arguments that are not positive and finite only +inf and NaN are their own logarithm.
  r = select(is(CompareOp::kLt, x, f.c(inf)), r, x);
  r = select(is(CompareOp::kEq, x, f.c(0)), f.c(-inf), r);
  return select(is(CompareOp::kLt, x, f.c(0)), f.c(std::numeric_limits<double>::quiet_NaN()), r);
}

ValueRef log1p(ValueRef x) {
  const Format f = format_of(x);
  // log(w) + c/w, where c is what rounding 1 + x to w has lost (Goldberg, ACM CSUR 23, 1991).
  const ValueRef w = add(x, f.c(1));
  const ValueRef d = sub(w, f.c(1));
  const ValueRef lost = add(sub(x, d), sub(f.c(1), sub(w, d)));
  const ValueRef r = add(log(w), div(lost, w));
  const double inf = std::numeric_limits<double>::infinity();
  const ValueRef regular = is(CompareOp::kLt, abs_of(w), f.c(inf));
  const ValueRef whole = select(is(CompareOp::kEq, w, f.c(0)), f.c(-inf), r);
  return select(is(CompareOp::kEq, x, f.c(0)), x, select(regular, whole, log(w)));
}

ValueRef tanh(ValueRef x) {
  const Format f = format_of(x);
  // 1 - tanh is below half a unit in the last place from 9.1 (f32) and 19.1 (f64) on.
  const ValueRef a = min(f.c(f.type == DType::kF32 ? 10 : 20), abs_of(x));
  const ValueRef m = expm1_clamped(f, add(a, a));
  return copy_sign(f, div(m, add(m, f.c(2))), x);
}

ValueRef sigmoid(ValueRef x) {
  const Format f = format_of(x);
  // From the side on which exp is at most 1, so that small results keep their precision.
  const ValueRef e = exp(unary(UnaryOp::kNeg, abs_of(x)));
  const ValueRef numerator = select(is(CompareOp::kLt, x, f.c(0)), e, f.c(1));
  return div(numerator, add(e, f.c(1)));
}

ValueRef softplus(ValueRef x) {
  const Format f = format_of(x);
  return add(max(f.c(0), x), log1p(exp(unary(UnaryOp::kNeg, abs_of(x)))));
}

ValueRef erf(ValueRef x) {
  const Format f = format_of(x);
  if (f.type == DType::kF32) {
    const ValueRef a = min(f.c(4), abs_of(x));
    const ValueRef q = mul(a, horner(f, kErf32, a));
    // 0 - m, not -m: the magnitude of a zero must be +0.
    const ValueRef m = expm1_clamped(f, unary(UnaryOp::kNeg, q));
    return copy_sign(f, sub(f.c(0), m), x);
  }
  const ValueRef a = min(f.c(6), abs_of(x));
  const ValueRef near = mul(a, horner(f, kErf64, mul(a, a)));
  const ValueRef t = div(f.c(2), add(a, f.c(2)));
  const ValueRef p = horner(f, kErfc64, sub(add(t, t), f.c(1)));
  const ValueRef far = sub(f.c(1), mul(t, exp(fma(unary(UnaryOp::kNeg, a), a, p))));
  return copy_sign(f, select(is(CompareOp::kLt, a, f.c(0.75)), near, far), x);
}

namespace {

// 64 zeros and 1152 bits of 2/pi: enough for every f64 exponent.
constexpr uint64_t kTwoOverPi[] = {0,
                                   0xa2f9836e4e441529,
                                   0xfc2757d1f534ddc0,
                                   0xdb6295993c439041,
                                   0xfe5163abdebbc561,
                                   0xb7246e3a424dd2e0,
                                   0x06492eea09d1921c,
                                   0xfe1deb1cb129a73e,
                                   0xe88235f52ebb4484,
                                   0xe99c7026b45f7e41,
                                   0x3991d639835339f4,
                                   0x9c845f8bbdf9283b,
                                   0x1ff897ffde05980f,
                                   0xef2f118b5a0a6d1f,
                                   0x6d367ecf27cb09b7,
                                   0x4f463f669e5fea2d,
                                   0x7527bac7ebe5f17b,
                                   0x3d0739f78a5292ea,
                                   0x6bfb5fb11f8d5d08};

// The quadrant (modulo 4, an i64) and r of x = n pi/2 + r, |r| <= pi/4, both for f64 lanes.
struct Quadrant {
  ValueRef n, r;
};

Quadrant reduce_near(const ValueRef& x) {
  const Format f = format_of(x);
  // pi/2 in three parts of 33 bits: n * part is exact while |n| < 2^20; with 53 more bits in the
  // last part the reduced argument of an f32 is good to 2^-60.
  const ValueRef shifted = fma(x, f.c(0x1.45f306dc9c883p-1), f.c(f.magic));
  const ValueRef n = sub(shifted, f.c(f.magic));
  ValueRef r = x;
  for (double part : {0x1.921fb544p+0, 0x1.0b4611a6p-34, 0x1.3198a2e037073p-69})
    r = fma(n, f.c(-part), r);
  return {bitcast(DType::kI64, shifted), r};
}

// For |x| >= 2^20 and exponents of at most `max_exponent`; r is NaN where x is not finite.
Quadrant reduce_far(const ValueRef& x, int max_exponent) {
  const Format f = format_of(x);
  const auto u = [&](uint64_t v) {
    return integer(DType::kU64, static_cast<int64_t>(v), x->lanes);
  };
  const auto right = [](const ValueRef& v, const ValueRef& by) {
    return binary(BinaryOp::kShr, v, by);
  };
  const auto left = [](const ValueRef& v, const ValueRef& by) {
    return binary(BinaryOp::kShl, v, by);
  };
  const auto low_half = [&](const ValueRef& v) { return binary(BinaryOp::kAnd, v, u(0xffffffff)); };
  const ValueRef bits = bitcast(DType::kU64, abs_of(x));
  const ValueRef m = binary(BinaryOp::kOr, binary(BinaryOp::kAnd, bits, u((uint64_t{1} << 52) - 1)),
                            u(uint64_t{1} << 52));
  // The first bit of A in the table: E + 62 = exponent + 10.
  const ValueRef first = sub(right(bits, u(52)), u(1013));
  const ValueRef word = right(first, u(6)), shift = binary(BinaryOp::kAnd, first, u(63));
  // The three words from `word` on, halving what is left of the table by one bit of `word` a time.
  const int last_word = (max_exponent + 10) / 64;
  std::vector<ValueRef> w;
  for (int i = 0; i <= last_word + 2; ++i) w.push_back(u(kTwoOverPi[i]));
  for (int step = 16; step > 0; step /= 2) {
    if (step > last_word) continue;
    const ValueRef up = is(CompareOp::kNe, binary(BinaryOp::kAnd, word, u(step)), u(0));
    for (size_t i = 0; i + step < w.size(); ++i) w[i] = select(up, w[i + step], w[i]);
    w.resize(std::min<size_t>(w.size(), step + 2));
  }
  // Not by 64 - shift, since shifts are modulo 64.
  const ValueRef rest = sub(u(63), shift);
  const auto joined = [&](const ValueRef& high, const ValueRef& low) {
    return binary(BinaryOp::kOr, left(high, shift), right(right(low, u(1)), rest));
  };
  const ValueRef a = joined(w[0], w[1]), b = joined(w[1], w[2]);
  const ValueRef m_high = right(m, u(32)), m_low = low_half(m);
  const ValueRef b_high = right(b, u(32)), b_low = low_half(b);
  const ValueRef carried = add(add(mul(m_high, b_high), right(mul(m_low, b_high), u(32))),
                               right(mul(m_high, b_low), u(32)));
  const ValueRef turns = add(mul(m, a), carried);
  const ValueRef n = right(add(turns, u(uint64_t{1} << 61)), u(62));
  const ValueRef fraction = bitcast(DType::kI64, sub(turns, left(n, u(62))));
  const ValueRef r =
      fma(cast(DType::kF64, fraction), f.c(0x1.921fb54442d18p-62), sub(x, x));  // inf - inf: NaN
  const ValueRef count = bitcast(DType::kI64, n);
  const ValueRef negative = is(CompareOp::kLt, x, f.c(0));
  return {select(negative, unary(UnaryOp::kNeg, count), count),
          select(negative, unary(UnaryOp::kNeg, r), r)};
}

// sin(r + (n + quadrants_ahead) pi/2) in the format `f`.
ValueRef sine_of(const Format& f, const Quadrant& q, int quadrants_ahead) {
  const ValueRef r = cast(f.type, q.r);
  const ValueRef quadrant =
      cast(f.bits, add(q.n, integer(DType::kI64, quadrants_ahead, q.n->lanes)));
  const ValueRef z = mul(r, r);
  const bool narrow = f.type == DType::kF32;
  const ValueRef s = fma(mul(z, r), narrow ? horner(f, kSin32, z) : horner(f, kSin64, z), r);
  const ValueRef c = fma(mul(z, z), narrow ? horner(f, kCos32, z) : horner(f, kCos64, z),
                         fma(z, f.c(-0.5), f.c(1)));
  const auto bit = [&](int64_t b) {
    return is(CompareOp::kNe, binary(BinaryOp::kAnd, quadrant, f.i(b)), f.i(0));
  };
  const ValueRef v = select(bit(1), c, s);
  return select(bit(2), unary(UnaryOp::kNeg, v), v);
}

ValueRef sine(const ValueRef& x, int quadrants_ahead) {
  const Format f = format_of(x);
  const ValueRef wide = cast(DType::kF64, x);
  const int max_exponent = static_cast<int>(f.bias);
  return select_rare(is(CompareOp::kGt, abs_of(x), f.c(0x1p20)),
                     sine_of(f, reduce_far(wide, max_exponent), quadrants_ahead),
                     sine_of(f, reduce_near(wide), quadrants_ahead));
}

}  // namespace

ValueRef sin(ValueRef x) {
  const Format f = format_of(x);
  return select(is(CompareOp::kEq, x, f.c(0)), x, sine(x, 0));
}

ValueRef cos(ValueRef x) {
  return sine(std::move(x), 1);
}

ValueRef atan(ValueRef x) {
  const Format f = format_of(x);
  const bool narrow = f.type == DType::kF32;
  const ValueRef a = abs_of(x);
  const ValueRef large = is(CompareOp::kGt, a, f.c(1));
  const ValueRef t = select(large, div(f.c(1), a), a);
  const ValueRef upper = is(CompareOp::kGt, t, f.c(0x1.a8279ap-2));  // sqrt(2) - 1
  const ValueRef r = select(upper, div(sub(t, f.c(1)), add(t, f.c(1))), t);
  const ValueRef z = mul(r, r);
  const ValueRef p = fma(mul(z, r), narrow ? horner(f, kAtan32, z) : horner(f, kAtan64, z), r);
  // What the rounding of pi/4 and pi/2 to the format has lost.
  const double quarter = narrow ? 0x1.921fb6p-1 : 0x1.921fb54442d18p-1;
  const double lost = narrow ? -0x1.777a5cp-26 : 0x1.1a62633145c07p-55;
  const ValueRef low = select(upper, add(add(p, f.c(lost)), f.c(quarter)), p);
  const ValueRef high = select(upper, sub(f.c(quarter), sub(p, f.c(lost))),
                               sub(f.c(2 * quarter), sub(p, f.c(2 * lost))));
  return copy_sign(f, select(large, high, low), x);
}

ValueRef pow(ValueRef x, ValueRef y) {
  if (x->lanes == 1 && y->lanes > 1) x = broadcast(x, y->lanes);
  if (y->lanes == 1 && x->lanes > 1) y = broadcast(y, x->lanes);
  const DType t = x->dtype;
  if (t == DType::kF32) {
    return cast(t, pow(cast(DType::kF64, x), cast(DType::kF64, y)));
  }
  const Format f = format_of(x);
  ValueRef r = exp(mul(y, log(abs_of(x))));
  // A negative base: the sign of an odd exponent; NaN if the exponent is no integer.
  const ValueRef half = mul(y, f.c(0.5));
  const ValueRef integral = is(CompareOp::kEq, unary(UnaryOp::kTrunc, y), y);
  const ValueRef even = is(CompareOp::kEq, unary(UnaryOp::kTrunc, half), half);
  const ValueRef odd = binary(BinaryOp::kAnd, integral, unary(UnaryOp::kNot, even));
  const ValueRef negative =
      is(CompareOp::kLt, bitcast(f.bits, x), f.i(0));  // by the sign bit: -0 counts
  r = select(binary(BinaryOp::kAnd, negative, odd), unary(UnaryOp::kNeg, r), r);
  const double inf = std::numeric_limits<double>::infinity();
  const ValueRef finite_base =
      binary(BinaryOp::kAnd, is(CompareOp::kLt, x, f.c(0)), is(CompareOp::kGt, x, f.c(-inf)));
  r = select(binary(BinaryOp::kAnd, finite_base, unary(UnaryOp::kNot, integral)),
             f.c(std::numeric_limits<double>::quiet_NaN()), r);
  // (-1)^(+-inf), where log gives 0 and 0 * inf is NaN.
  const ValueRef unit = is(CompareOp::kEq, abs_of(x), f.c(1));
  const ValueRef infinite = is(CompareOp::kEq, abs_of(y), f.c(inf));
  r = select(binary(BinaryOp::kAnd, unit, infinite), f.c(1), r);
  const ValueRef trivial =
      binary(BinaryOp::kOr, is(CompareOp::kEq, y, f.c(0)), is(CompareOp::kEq, x, f.c(1)));
  return select(trivial, f.c(1), r);
}

}  // namespace nimble::kir::math
