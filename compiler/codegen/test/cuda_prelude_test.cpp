// The functions that stand before a GPU's kernels (cuda/prelude.def), compiled for this machine and
// compared with the interpreter's lanes, bit by bit.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "compiler/kernels/interpreter_lanes.h"

namespace nimble::codegen {
namespace {

// What the prelude takes from CUDA, as PTX ISA says of cvt: towards zero, to the nearest bound
// beyond the range, and of a NaN 0 or what nobody may rely on.
template <class To, class From>
To cvt(From x, To of_nan) {
  if (std::isnan(x)) return of_nan;
  const double low = static_cast<double>(std::numeric_limits<To>::min());
  const double end = std::ldexp(1.0, std::numeric_limits<To>::digits);
  if (x <= low) return std::numeric_limits<To>::min();
  if (x >= end) return std::numeric_limits<To>::max();
  return static_cast<To>(x);
}
constexpr int kOther = 77;
int __float2int_rz(float x) {
  return cvt<int>(x, 0);
}
unsigned __float2uint_rz(float x) {
  return cvt<unsigned>(x, 0);
}
long long __float2ll_rz(float x) {
  return cvt<long long>(x, kOther);
}
unsigned long long __float2ull_rz(float x) {
  return cvt<unsigned long long>(x, kOther);
}
int __double2int_rz(double x) {
  return cvt<int>(x, kOther);
}
unsigned __double2uint_rz(double x) {
  return cvt<unsigned>(x, kOther);
}
long long __double2ll_rz(double x) {
  return cvt<long long>(x, kOther);
}
unsigned long long __double2ull_rz(double x) {
  return cvt<unsigned long long>(x, kOther);
}
float __uint_as_float(unsigned x) {
  return std::bit_cast<float>(x);
}

#define NIMBLE_DEVICE [[maybe_unused]] static
#define NIMBLE_CUDA_CODE(...) __VA_ARGS__
#include "compiler/codegen/cuda/prelude.def"

using kir::BinaryOp;
using kir::Lane;

template <class T>
constexpr DType type_of() {
  constexpr size_t kSize = sizeof(T);
  if (std::is_signed_v<T>)
    return kSize == 1   ? DType::kI8
           : kSize == 2 ? DType::kI16
           : kSize == 4 ? DType::kI32
                        : DType::kI64;
  return kSize == 1   ? DType::kU8
         : kSize == 2 ? DType::kU16
         : kSize == 4 ? DType::kU32
                      : DType::kU64;
}

template <class T>
std::vector<T> edges() {
  using L = std::numeric_limits<T>;
  std::vector<T> out;
  for (int i = -3; i <= 3; ++i) {
    out.push_back(static_cast<T>(i));
    // Unsigned: what lies below the least number is the greatest ones.
    const auto step = static_cast<uint64_t>(static_cast<int64_t>(i));
    out.push_back(static_cast<T>(static_cast<uint64_t>(L::min()) + step));
    out.push_back(static_cast<T>(static_cast<uint64_t>(L::max() / 2) + step));
  }
  out.push_back(static_cast<T>(7));
  out.push_back(static_cast<T>(100));
  return out;
}

template <class T>
class CudaPreludeIntegers : public ::testing::Test {};
using Integers = ::testing::Types<i8, i16, i32, i64, u8, u16, u32, u64>;
TYPED_TEST_SUITE(CudaPreludeIntegers, Integers);

TYPED_TEST(CudaPreludeIntegers, DivideAndOrderAsTheInterpreter) {
  using T = TypeParam;
  constexpr DType kType = type_of<T>();
  for (const T a : edges<T>())
    for (const T b : edges<T>()) {
      const auto want = [&](BinaryOp op) {
        return static_cast<T>(
            kir::integer_binary(kType, op, static_cast<int64_t>(a), static_cast<int64_t>(b)));
      };
      const auto shown = [&] { return std::to_string(a) + " and " + std::to_string(b); };
      EXPECT_EQ(std::is_signed_v<T> ? divide_signed<T>(a, b) : divide_unsigned<T>(a, b),
                want(BinaryOp::kDiv))
          << shown();
      EXPECT_EQ(std::is_signed_v<T> ? modulo_signed<T>(a, b) : modulo_unsigned<T>(a, b),
                want(BinaryOp::kMod))
          << shown();
      EXPECT_EQ(lesser<T>(a, b), want(BinaryOp::kMin)) << shown();
      EXPECT_EQ(greater<T>(a, b), want(BinaryOp::kMax)) << shown();
    }
  if constexpr (std::is_signed_v<T>)
    for (const T a : edges<T>())
      EXPECT_EQ(absolute<T>(a), static_cast<T>(kir::integer_unary(kType, kir::UnaryOp::kAbs, a)))
          << +a;
}

TEST(CudaPrelude, DividesIndicesTowardsMinusInfinity) {
  for (int64_t a = -40; a <= 40; ++a)
    for (int64_t b = -9; b <= 9; ++b) {
      if (b == 0) continue;
      const auto floor =
          static_cast<i64>(std::floor(static_cast<double>(a) / static_cast<double>(b)));
      EXPECT_EQ(floor_divide<i64>(a, b), floor) << a << " by " << b;
      EXPECT_EQ(floor_modulo<i64>(a, b), a - floor * b) << a << " by " << b;
      EXPECT_EQ(floor_divide<i32>(static_cast<i32>(a), static_cast<i32>(b)), floor);
      EXPECT_EQ(floor_modulo<i32>(static_cast<i32>(a), static_cast<i32>(b)), a - floor * b);
    }
}

template <class F>
std::vector<F> numbers() {
  using L = std::numeric_limits<F>;
  std::vector<F> out = {L::quiet_NaN(), L::infinity(), L::max(), L::min(), L::denorm_min(), 0};
  for (int bits = 0; bits <= 65; ++bits) {
    const F power = std::ldexp(F(1), bits);
    for (const F x : {power, std::nextafter(power, F(0)), std::nextafter(power, L::infinity()),
                      power - F(0.5), power + F(0.5), power - 1})
      out.push_back(x);
  }
  for (size_t i = 0, n = out.size(); i < n; ++i) out.push_back(-out[i]);
  return out;
}

template <class F>
void expect_same_casts(DType from) {
  for (const F x : numbers<F>()) {
    Lane lane;
    lane.i = 0;
    if constexpr (sizeof(F) == 4)
      lane.f32 = x;
    else
      lane.f64 = x;
    const auto want = [&](DType to) { return kir::cast_lane(from, to, lane).i; };
    EXPECT_EQ(to_i8(x), want(DType::kI8)) << x;
    EXPECT_EQ(to_i16(x), want(DType::kI16)) << x;
    EXPECT_EQ(to_i32(x), want(DType::kI32)) << x;
    EXPECT_EQ(to_i64(x), want(DType::kI64)) << x;
    EXPECT_EQ(to_u8(x), want(DType::kU8)) << x;
    EXPECT_EQ(to_u16(x), want(DType::kU16)) << x;
    EXPECT_EQ(to_u32(x), want(DType::kU32)) << x;
    EXPECT_EQ(static_cast<int64_t>(to_u64(x)), want(DType::kU64)) << x;
    for (const F y : {F(0), F(-1), std::numeric_limits<F>::quiet_NaN()}) {
      const auto same = [&](F got, F expected) {
        return std::isnan(expected)
                   ? std::isnan(got)
                   : got == expected && std::signbit(got) == std::signbit(expected);
      };
      EXPECT_TRUE(same(lesser<F>(x, y), kir::float_binary(BinaryOp::kMin, x, y))) << x << ' ' << y;
      EXPECT_TRUE(same(greater<F>(x, y), kir::float_binary(BinaryOp::kMax, x, y))) << x << ' ' << y;
    }
  }
}

TEST(CudaPrelude, CastsFloatsAsTheInterpreter) {
  expect_same_casts<float>(DType::kF32);
  expect_same_casts<double>(DType::kF64);
  for (uint32_t bits = 0; bits < 65536; bits += 7)
    EXPECT_EQ(std::bit_cast<uint32_t>(f32_from_bf16(static_cast<u16>(bits))), bits << 16);
}

}  // namespace
}  // namespace nimble::codegen
