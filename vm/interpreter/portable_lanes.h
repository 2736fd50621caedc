// Arithmetic of one lane of a portable kernel, with a meaning for every operand: integers wrap,
// x / 0 and x mod 0 are 0, shift amounts are taken modulo the width, conversions from floating
// point saturate. Nothing here depends on the machine, the rounding of a multiply-add included.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

namespace nimble::rt::lanes {

template <class T>
inline constexpr bool kIsFloat = std::is_floating_point_v<T>;

// Integers of any width modulo 2^width: computed in 64 bits, then cut.
template <class T>
T cut(uint64_t v) {
  return static_cast<T>(v);
}
template <class T>
uint64_t wide(T v) {
  return static_cast<uint64_t>(v);
}

struct Add {
  template <class T>
  T operator()(T a, T b) const {
    if constexpr (kIsFloat<T>)
      return a + b;
    else
      return cut<T>(wide(a) + wide(b));
  }
};
struct Sub {
  template <class T>
  T operator()(T a, T b) const {
    if constexpr (kIsFloat<T>)
      return a - b;
    else
      return cut<T>(wide(a) - wide(b));
  }
};
struct Mul {
  template <class T>
  T operator()(T a, T b) const {
    if constexpr (kIsFloat<T>)
      return a * b;
    else
      return cut<T>(wide(a) * wide(b));
  }
};
struct Div {
  template <class T>
  T operator()(T a, T b) const {
    if constexpr (kIsFloat<T>) {
      return a / b;
    } else {
      if (b == 0) return 0;
      if constexpr (std::is_signed_v<T>)
        if (b == -1) return cut<T>(0 - wide(a));
      return static_cast<T>(a / b);
    }
  }
};
struct Mod {
  template <class T>
  T operator()(T a, T b) const {
    if (b == 0) return 0;
    if constexpr (std::is_signed_v<T>) {
      if (b == -1) return 0;
      const T r = static_cast<T>(a % b);
      return r != 0 && (r ^ b) < 0 ? static_cast<T>(r + b) : r;
    } else {
      return static_cast<T>(a % b);
    }
  }
};
struct Min {
  template <class T>
  T operator()(T a, T b) const {
    return a < b ? a : b;
  }
};
struct Max {
  template <class T>
  T operator()(T a, T b) const {
    return a > b ? a : b;
  }
};
struct And {
  template <class T>
  T operator()(T a, T b) const {
    return static_cast<T>(a & b);
  }
};
struct Or {
  template <class T>
  T operator()(T a, T b) const {
    return static_cast<T>(a | b);
  }
};
struct Xor {
  template <class T>
  T operator()(T a, T b) const {
    return static_cast<T>(a ^ b);
  }
};
struct Shl {
  template <class T>
  T operator()(T a, T b) const {
    return cut<T>(wide(a) << (wide(b) & (8 * sizeof(T) - 1)));
  }
};
struct Shr {
  template <class T>
  T operator()(T a, T b) const {
    return static_cast<T>(a >> (wide(b) & (8 * sizeof(T) - 1)));
  }
};

struct Fma {
  // The file that uses this is compiled without contraction: two roundings everywhere.
  template <class T>
  T operator()(T a, T b, T c) const {
    const T product = a * b;
    return product + c;
  }
};

struct Neg {
  template <class T>
  T operator()(T a) const {
    if constexpr (kIsFloat<T>)
      return -a;
    else
      return cut<T>(0 - wide(a));
  }
};
struct Abs {
  template <class T>
  T operator()(T a) const {
    if constexpr (kIsFloat<T>)
      return std::fabs(a);
    else if constexpr (std::is_signed_v<T>)
      return a < 0 ? cut<T>(0 - wide(a)) : a;
    else
      return a;
  }
};
struct Sqrt {
  template <class T>
  T operator()(T a) const {
    return std::sqrt(a);
  }
};
struct Rsqrt {
  template <class T>
  T operator()(T a) const {
    return T(1) / std::sqrt(a);
  }
};

// Rounding without a library call, so that the lanes vectorise: where |x| < 2^(mantissa bits),
// adding and subtracting that power leaves the nearest integer, ties to even; larger numbers are
// integers already, and NaN fails the comparison. The sign keeps -0.
template <class T>
T to_even(T x) {
  constexpr T kWhole = std::is_same_v<T, float> ? T(0x1p23) : T(0x1p52);
  const T magnitude = std::fabs(x);
  const T rounded = (magnitude + kWhole) - kWhole;
  return magnitude < kWhole ? std::copysign(rounded, x) : x;
}
struct Round {
  template <class T>
  T operator()(T a) const {
    return to_even(a);
  }
};
struct Floor {
  template <class T>
  T operator()(T a) const {
    const T r = to_even(a);
    return std::copysign(r > a ? r - T(1) : r, a);
  }
};
struct Ceil {
  template <class T>
  T operator()(T a) const {
    const T r = to_even(a);
    return std::copysign(r < a ? r + T(1) : r, a);
  }
};
struct Trunc {
  template <class T>
  T operator()(T a) const {
    const T magnitude = std::fabs(a), r = to_even(magnitude);
    return std::copysign(r > magnitude ? r - T(1) : r, a);
  }
};
struct Not {
  template <class T>
  T operator()(T a) const {
    return static_cast<T>(~a);
  }
};
struct NotBool {
  uint8_t operator()(uint8_t a) const { return static_cast<uint8_t>(a ^ 1); }
};

struct Eq {
  template <class T>
  bool operator()(T a, T b) const {
    return a == b;
  }
};
struct Ne {
  template <class T>
  bool operator()(T a, T b) const {
    return a != b;
  }
};
struct Lt {
  template <class T>
  bool operator()(T a, T b) const {
    return a < b;
  }
};
struct Le {
  template <class T>
  bool operator()(T a, T b) const {
    return a <= b;
  }
};
struct Gt {
  template <class T>
  bool operator()(T a, T b) const {
    return a > b;
  }
};
struct Ge {
  template <class T>
  bool operator()(T a, T b) const {
    return a >= b;
  }
};

// To = uint8_t stands for the integer, never for bool.
template <class To, class From>
To convert(From v) {
  if constexpr (kIsFloat<To> || !kIsFloat<From>) {
    return static_cast<To>(v);
  } else {
    // The bounds are powers of two, or one less than one, which rounds up to it: exact tests.
    constexpr From kHigh = From(2) * From(uint64_t{1} << (std::numeric_limits<To>::digits - 1));
    constexpr From kLow = std::is_signed_v<To> ? -kHigh : From(0);
    if (std::isnan(v)) return 0;
    if (v >= kHigh) return std::numeric_limits<To>::max();
    if (v <= kLow) return std::numeric_limits<To>::min();
    return static_cast<To>(v);
  }
}

}  // namespace nimble::rt::lanes
