// Arithmetic of one lane, as kernel_ir.h defines it.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "compiler/kernels/interpreter_code.h"
#include "vm/base/half.h"

namespace nimble::kir {

// Reduces a 64-bit result modulo the type's width.
inline int64_t wrap(DType t, int64_t v) {
  switch (t) {
    case DType::kBool:
      return v & 1;
    case DType::kI8:
      return static_cast<int8_t>(v);
    case DType::kI16:
      return static_cast<int16_t>(v);
    case DType::kI32:
      return static_cast<int32_t>(v);
    case DType::kU8:
      return static_cast<uint8_t>(v);
    case DType::kU16:
    case DType::kF16:
    case DType::kBF16:
      return static_cast<uint16_t>(v);
    case DType::kU32:
      return static_cast<uint32_t>(v);
    default:
      return v;
  }
}

inline Lane load_lane(DType t, const std::byte* from) {
  Lane v;
  v.i = 0;
  if (t == DType::kF32) {
    std::memcpy(&v.f32, from, 4);
  } else if (t == DType::kF64) {
    std::memcpy(&v.f64, from, 8);
  } else {
    std::memcpy(&v.i, from, size_of(t));  // little-endian
    v.i = t == DType::kBool ? v.i != 0 : wrap(t, v.i);
  }
  return v;
}

inline void store_lane(DType t, Lane v, std::byte* to) {
  std::memcpy(to, t == DType::kF32 ? static_cast<const void*>(&v.f32) : &v, size_of(t));
}

inline Lane constant_lane(DType t, double number, int64_t integer) {
  Lane v;
  v.i = 0;
  switch (t) {
    case DType::kF32:
      v.f32 = static_cast<float>(number);
      break;
    case DType::kF64:
      v.f64 = number;
      break;
    case DType::kF16:
      v.i = f16_from_f32(static_cast<float>(number));
      break;
    case DType::kBF16:
      v.i = bf16_from_f32(static_cast<float>(number));
      break;
    default:
      v.i = wrap(t, integer);
  }
  return v;
}

// x is exact in double for every floating-point source.
inline int64_t saturate(DType t, double x) {
  if (std::isnan(x)) return 0;
  if (t == DType::kU64)
    return x <= 0 ? 0 : x >= 0x1p64 ? -1 : static_cast<int64_t>(static_cast<uint64_t>(x));
  const int bits = static_cast<int>(8 * size_of(t)) - (is_signed_int(t) ? 1 : 0);
  const double high = std::ldexp(1.0, bits), low = is_signed_int(t) ? -high : 0;
  if (x >= high)
    return t == DType::kI64 ? std::numeric_limits<int64_t>::max() : static_cast<int64_t>(high) - 1;
  return x <= low ? static_cast<int64_t>(low) : static_cast<int64_t>(x);
}

inline Lane cast_lane(DType from, DType to, Lane v) {
  Lane out;
  out.i = 0;
  if (is_narrow_float(from)) {
    const auto bits = static_cast<uint16_t>(v.i);
    v.f32 = from == DType::kF16 ? f32_from_f16(bits) : f32_from_bf16(bits);
    from = DType::kF32;
    if (to == from) {
      out.f32 = v.f32;
      return out;
    }
  }
  if (is_narrow_float(to)) {
    const float narrow = from == DType::kF32 ? v.f32 : cast_lane(from, DType::kF32, v).f32;
    out.i = to == DType::kF16 ? f16_from_f32(narrow) : bf16_from_f32(narrow);
    return out;
  }
  if (is_float(from)) {
    const double x = from == DType::kF32 ? static_cast<double>(v.f32) : v.f64;
    if (to == DType::kF32)
      out.f32 = static_cast<float>(x);
    else if (to == DType::kF64)
      out.f64 = x;
    else if (to == DType::kBool)
      out.i = x != 0 || std::isnan(x);
    else
      out.i = saturate(to, x);
    return out;
  }
  const bool wide_unsigned = from == DType::kU64;
  if (to == DType::kF32)
    out.f32 =
        wide_unsigned ? static_cast<float>(static_cast<uint64_t>(v.i)) : static_cast<float>(v.i);
  else if (to == DType::kF64)
    out.f64 =
        wide_unsigned ? static_cast<double>(static_cast<uint64_t>(v.i)) : static_cast<double>(v.i);
  else
    out.i = to == DType::kBool ? v.i != 0 : wrap(to, v.i);
  return out;
}

template <class T>
T float_unary(UnaryOp op, T a) {
  switch (op) {
    case UnaryOp::kNeg:
      return -a;
    case UnaryOp::kAbs:
      return std::fabs(a);
    case UnaryOp::kSqrt:
      return std::sqrt(a);
    case UnaryOp::kRsqrt:
      return T(1) / std::sqrt(a);
    case UnaryOp::kFloor:
      return std::floor(a);
    case UnaryOp::kCeil:
      return std::ceil(a);
    case UnaryOp::kRound:
      return std::nearbyint(a);
    case UnaryOp::kTrunc:
      return std::trunc(a);
    case UnaryOp::kNot:
      break;
  }
  return a;
}

template <class T>
T float_binary(BinaryOp op, T a, T b) {
  switch (op) {
    case BinaryOp::kAdd:
      return a + b;
    case BinaryOp::kSub:
      return a - b;
    case BinaryOp::kMul:
      return a * b;
    case BinaryOp::kDiv:
      return a / b;
    case BinaryOp::kMin:
      return a < b ? a : b;
    case BinaryOp::kMax:
      return a > b ? a : b;
    case BinaryOp::kScale:
      return std::isnan(b) ? b : std::ldexp(a, static_cast<int>(b));
    default:
      return a;
  }
}

inline int64_t integer_unary(DType t, UnaryOp op, int64_t a) {
  const auto negated = static_cast<int64_t>(-static_cast<uint64_t>(a));
  switch (op) {
    case UnaryOp::kNeg:
      return wrap(t, negated);
    case UnaryOp::kAbs:
      return is_signed_int(t) && a < 0 ? wrap(t, negated) : a;
    default:
      return t == DType::kBool ? a == 0 : wrap(t, ~a);
  }
}

inline int64_t integer_binary(DType t, BinaryOp op, int64_t a, int64_t b) {
  const auto ua = static_cast<uint64_t>(a), ub = static_cast<uint64_t>(b);
  const bool is_signed = is_signed_int(t);
  const int shift = static_cast<int>(ub & (8 * size_of(t) - 1));
  switch (op) {
    case BinaryOp::kAdd:
      return wrap(t, static_cast<int64_t>(ua + ub));
    case BinaryOp::kSub:
      return wrap(t, static_cast<int64_t>(ua - ub));
    case BinaryOp::kMul:
      return wrap(t, static_cast<int64_t>(ua * ub));
    case BinaryOp::kDiv:
      if (b == 0) return 0;
      if (!is_signed) return wrap(t, static_cast<int64_t>(ua / ub));
      return b == -1 ? wrap(t, static_cast<int64_t>(-ua)) : a / b;
    case BinaryOp::kMod: {
      if (b == 0) return 0;
      if (!is_signed) return static_cast<int64_t>(ua % ub);
      if (b == -1) return 0;
      const int64_t r = a % b;
      return r != 0 && (r ^ b) < 0 ? r + b : r;
    }
    case BinaryOp::kMin:
      return (is_signed ? a < b : ua < ub) ? a : b;
    case BinaryOp::kMax:
      return (is_signed ? a > b : ua > ub) ? a : b;
    case BinaryOp::kAnd:
      return a & b;
    case BinaryOp::kOr:
      return a | b;
    case BinaryOp::kXor:
      return a ^ b;
    case BinaryOp::kShl:
      return wrap(t, static_cast<int64_t>(ua << shift));
    case BinaryOp::kShr:
      return is_signed ? a >> shift : static_cast<int64_t>(ua >> shift);
    case BinaryOp::kScale:
      break;  // of floats only
  }
  return a;
}

inline Lane binary_lane(DType t, BinaryOp op, Lane a, Lane b) {
  Lane out;
  out.i = 0;
  if (t == DType::kF32)
    out.f32 = float_binary(op, a.f32, b.f32);
  else if (t == DType::kF64)
    out.f64 = float_binary(op, a.f64, b.f64);
  else
    out.i = integer_binary(t, op, a.i, b.i);
  return out;
}

// A subnormal number as zero of its sign.
inline float flushed(float x) {
  return std::fabs(x) < std::numeric_limits<float>::min() ? std::copysign(0.0f, x) : x;
}

// a * b + c, rounded once, and zero of its sign where rounding to 24 bits, however small the
// exponent, leaves it below the normal numbers. What std::fma rounds up to the least of these may
// lie below it still, which the same in larger numbers tells.
inline float flushed_fma(float a, float b, float c) {
  constexpr float kLeast = std::numeric_limits<float>::min(), kScale = 0x1p64F;
  const float t = std::fma(a, b, c);
  if (t == 0 || !(std::fabs(t) <= kLeast)) return t;
  const float exact = std::fma(a * kScale, b, c * kScale);
  return std::fabs(exact) < kLeast * kScale ? std::copysign(0.0F, t) : t;
}

// One lane of a dot: its group of a and of b, and its sum (Fragments.def).
inline Lane dot_lane(Fragment f, const Lane* a, const Lane* b, Lane sum) {
  Lane out;
  out.i = 0;
  switch (f) {
    case Fragment::kBf16Pairs: {
      const auto number = [](Lane v) { return flushed(f32_from_bf16(static_cast<uint16_t>(v.i))); };
      float t = flushed(sum.f32);
      for (const int i : {1, 0}) t = flushed_fma(number(a[i]), number(b[i]), t);
      out.f32 = t;
      return out;
    }
    case Fragment::kU8S8Quads:
      out.i = sum.i;
      for (int i = 0; i < 4; ++i) out.i += a[i].i * b[i].i;
      out.i = wrap(DType::kI32, out.i);
      return out;
    case Fragment::kU8S7Quads:
      out.i = sum.i;
      for (const int i : {0, 2})
        out.i += std::clamp<int64_t>(a[i].i * b[i].i + a[i + 1].i * b[i + 1].i,
                                     std::numeric_limits<int16_t>::min(),
                                     std::numeric_limits<int16_t>::max());
      out.i = wrap(DType::kI32, out.i);
      return out;
    case Fragment::kS16Pairs:
      out.i = wrap(DType::kI32, sum.i + a[0].i * b[0].i + a[1].i * b[1].i);
      return out;
    case Fragment::kF16Pairs: {
      const auto number = [](Lane v) { return f32_from_f16(static_cast<uint16_t>(v.i)); };
      out.f32 = std::fma(number(a[0]), number(b[0]), std::fma(number(a[1]), number(b[1]), sum.f32));
      return out;
    }
  }
  return out;
}

// One sum of a product of matrix registers (Fragments.def): the groups of a row of a, one after the
// other, and those of a column of b, `pitch` lanes apart.
inline Lane tile_dot_lane(TileFragment f, const Lane* a, const Lane* b, int pitch, int groups,
                          Lane sum) {
  Lane out;
  out.i = 0;
  switch (f) {
    case TileFragment::kBf16Tiles:
    case TileFragment::kF16Tiles: {
      const auto number = [f](Lane v) {
        const auto bits = static_cast<uint16_t>(v.i);
        return f == TileFragment::kF16Tiles ? f32_from_f16(bits) : flushed(f32_from_bf16(bits));
      };
      float t[2] = {0, 0};
      for (int g = 0; g < groups; ++g)
        for (int j = 0; j < 2; ++j)
          t[j] = flushed_fma(number(a[2 * g + j]), number(b[g * pitch + j]), t[j]);
      out.f32 = flushed(flushed(sum.f32) + flushed(t[0] + t[1]));
      return out;
    }
    case TileFragment::kU8S8Tiles:
      out.i = sum.i;
      for (int g = 0; g < groups; ++g)
        for (int j = 0; j < 4; ++j) out.i += a[4 * g + j].i * b[g * pitch + j].i;
      out.i = wrap(DType::kI32, out.i);
      return out;
  }
  return out;
}

template <class T>
bool ordered(CompareOp op, T a, T b) {
  switch (op) {
    case CompareOp::kEq:
      return a == b;
    case CompareOp::kNe:
      return a != b;
    case CompareOp::kLt:
      return a < b;
    case CompareOp::kLe:
      return a <= b;
    case CompareOp::kGt:
      return a > b;
    case CompareOp::kGe:
      return a >= b;
  }
  return false;
}

inline bool compare_lane(DType t, CompareOp op, Lane a, Lane b) {
  if (t == DType::kF32) return ordered(op, a.f32, b.f32);
  if (t == DType::kF64) return ordered(op, a.f64, b.f64);
  if (is_signed_int(t)) return ordered(op, a.i, b.i);
  return ordered(op, static_cast<uint64_t>(a.i), static_cast<uint64_t>(b.i));
}

}  // namespace nimble::kir
