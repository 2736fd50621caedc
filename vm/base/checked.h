// Arithmetic that never wraps. The try_ forms answer nothing on overflow; the checked_ forms
// throw nimble::Error with a status of the caller's choice.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "vm/base/dtype.h"
#include "vm/base/error.h"

namespace nimble {

template <typename T>
constexpr std::optional<T> try_add(T a, T b) {
  T r{};
  if (__builtin_add_overflow(a, b, &r)) return std::nullopt;
  return r;
}

template <typename T>
constexpr std::optional<T> try_mul(T a, T b) {
  T r{};
  if (__builtin_mul_overflow(a, b, &r)) return std::nullopt;
  return r;
}

template <typename T>
constexpr T checked_add(T a, T b, Status status = Status::kFatal) {
  T r{};
  if (__builtin_add_overflow(a, b, &r))
    throw Error(status, "", fmt::format("{} + {} overflows", a, b), "use smaller sizes");
  return r;
}

template <typename T>
constexpr T checked_mul(T a, T b, Status status = Status::kFatal) {
  T r{};
  if (__builtin_mul_overflow(a, b, &r))
    throw Error(status, "", fmt::format("{} * {} overflows", a, b), "use smaller sizes");
  return r;
}

// Number of elements of a shape; nothing if an extent is negative or the product overflows,
// where a zero extent anywhere makes the product zero.
inline std::optional<int64_t> try_element_count(std::span<const int64_t> shape) {
  int64_t count = 1;
  bool overflow = false, empty = false;
  for (int64_t extent : shape) {
    if (extent < 0) return std::nullopt;
    empty |= extent == 0;
    overflow |= __builtin_mul_overflow(count, extent, &count);
  }
  if (empty) return 0;
  if (overflow) return std::nullopt;
  return count;
}

// Bytes of a dense tensor; nothing as above.
inline std::optional<int64_t> try_byte_size(DType dtype, std::span<const int64_t> shape) {
  const std::optional<int64_t> count = try_element_count(shape);
  if (!count) return std::nullopt;
  return try_mul(*count, static_cast<int64_t>(size_of(dtype)));
}

// Rounds up to a multiple of `alignment`, a power of two; nothing on overflow.
constexpr std::optional<uint64_t> try_align_up(uint64_t value, uint64_t alignment) {
  const std::optional<uint64_t> sum = try_add(value, alignment - 1);
  if (!sum) return std::nullopt;
  return *sum & ~(alignment - 1);
}

constexpr bool is_power_of_two(int64_t value) {
  return value > 0 && (value & (value - 1)) == 0;
}

}  // namespace nimble
