// Kernels of dots and elements for them, for the tests of every way to run one.
#pragma once

#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "compiler/kernels/fragments.h"
#include "compiler/kernels/test/kernel_builder.h"

namespace nimble::kir::testing {

struct DotKernel {
  bool expanded = false;   // in other operations
  bool one_group = false;  // b is one group for all sums
};

// y[j] = dot of the groups of a[j] and b[j] and of sum[j], `lanes` sums for each j < n.
inline Function dot_kernel(Fragment fragment, int lanes, const DotKernel& how = {}) {
  using namespace build;  // NOLINT
  const FragmentRow& row = row_of(fragment);
  const int factors = row.group * lanes, of_b = how.one_group ? row.group : factors;
  KernelBuilder k("dots");
  const Dim n = k.symbol("n"), j = Dim::symbol("j");
  const auto a = k.in("a", row.a, n * factors);
  const auto b = k.in("b", row.b, n * of_b);
  const auto sum = k.in("sum", row.sum, n * lanes);
  const auto y = k.out("y", row.sum, n * lanes);
  const ValueRef v = dot(fragment, load(a, j * factors, factors),
                         broadcast(load(b, j * of_b, of_b), factors), load(sum, j * lanes, lanes));
  return k.body(
      {loop(LoopKind::kSerial, "j", 0, n, store(y, j * lanes, how.expanded ? expand_dot(*v) : v))});
}

// Elements of a type. Tame floating-point numbers neither over- nor underflow in a few products and
// sums; the others are rich in subnormal, tiny and huge numbers, infinities and NaNs.
inline std::vector<std::byte> dot_elements(DType t, size_t count, bool tame,
                                           std::mt19937_64& random) {
  const int mantissa = t == DType::kBF16 ? 7 : 23;
  std::vector<std::byte> out(count * size_of(t));
  for (size_t i = 0; i < count; ++i) {
    uint64_t bits = random();
    if (t == DType::kF16) {  // all finite ones are tame, also subnormal ones
      const bool finite = tame || random() % 8 != 0;
      const uint64_t exponent = finite ? random() % 31 : 31;
      const uint64_t fraction = finite || random() % 4 == 0 ? bits & 0x3ff : 0;
      bits = (bits >> 63) << 15 | exponent << 10 | fraction;
    }
    if (t == DType::kBF16 || t == DType::kF32) {
      const auto between = [&](uint64_t low, uint64_t high) {
        return low + random() % (high - low + 1);
      };
      uint64_t exponent = 0, fraction = bits & ((1u << mantissa) - 1);
      switch (tame ? 0 : random() % 8) {
        case 0:
        case 1:
          exponent = between(110, 140);
          break;
        case 2:
          break;  // subnormal
        case 3:
        case 4:
          exponent = between(1, 70);
          break;
        case 5:
          exponent = between(180, 254);
          break;
        case 6:
          // Sums, and products, about the smallest normal number.
          exponent = t == DType::kF32 ? between(1, 4) : between(60, 67);
          break;
        default:
          exponent = random() % 2 ? 255 : 0;
          if (random() % 4) fraction = 0;
      }
      bits = (bits >> 63) << (mantissa + 8) | exponent << mantissa | fraction;
    }
    std::memcpy(&out[i * size_of(t)], &bits, size_of(t));
  }
  return out;
}

// The arguments of a dot_kernel with n steps.
struct DotCase {
  std::vector<std::byte> a, b, sum, y;

  DotCase(Fragment fragment, int lanes, int64_t n, bool tame, std::mt19937_64& random) {
    const FragmentRow& row = row_of(fragment);
    const auto sums = static_cast<size_t>(n * lanes), factors = sums * row.group;
    a = dot_elements(row.a, factors, tame, random);
    b = dot_elements(row.b, factors, tame, random);
    sum = dot_elements(row.sum, sums, tame, random);
    y.resize(sums * size_of(row.sum));
  }
  std::vector<std::span<std::byte>> arguments() { return {a, b, sum, y}; }
};

template <class T>
T element_at(const std::vector<std::byte>& bytes, size_t i) {
  T out;
  std::memcpy(&out, &bytes[i * sizeof(T)], sizeof(T));
  return out;
}

inline double flushed(double x) {
  return std::fabs(x) < 0x1p-126 ? std::copysign(0.0, x) : x;
}

// x y + z rounded once to f32, zero where it is subnormal. The product of two bf16 or f16 is exact
// in f64; the sum is rounded to odd there, after which a second rounding to fewer bits changes
// nothing.
inline float sum_of(double x, double y, double z) {
  const double p = x * y, s = p + z;
  if (!std::isfinite(s)) return static_cast<float>(s);
  const double back = s - p, error = (p - (s - back)) + (z - back);
  double odd = s;
  if (error != 0 && (std::bit_cast<uint64_t>(s) & 1) == 0)
    odd = std::nextafter(s, error > 0 ? INFINITY : -INFINITY);
  // Whether it counts as subnormal is asked of 24 bits with an exponent that has no end.
  if (std::fabs(odd) < 0x1p-100 && std::fabs(static_cast<float>(odd * 0x1p64)) < 0x1p-62F)
    return std::copysign(0.0F, static_cast<float>(odd));
  return static_cast<float>(odd);
}

// Equal bits, or two NaNs.
inline bool same_sum(DType t, const std::vector<std::byte>& x, const std::vector<std::byte>& y,
                     size_t i) {
  const auto a = element_at<uint32_t>(x, i), b = element_at<uint32_t>(y, i);
  const auto is_nan = [&](uint32_t v) {
    return t == DType::kF32 && (v & 0x7fffffffu) > 0x7f800000u;
  };
  return a == b || (is_nan(a) && is_nan(b));
}

}  // namespace nimble::kir::testing
