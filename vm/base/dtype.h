// Element types of tensors. The numbers are part of the executable format: append, never renumber.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace nimble {

enum class DType : uint8_t {
  kBool = 0,
  kI8 = 1,
  kI16 = 2,
  kI32 = 3,
  kI64 = 4,
  kU8 = 5,
  kU16 = 6,
  kU32 = 7,
  kU64 = 8,
  kF16 = 9,
  kBF16 = 10,
  kF32 = 11,
  kF64 = 12,
};
inline constexpr int kDTypeCount = 13;

// Dims of a tensor in memory, at most. Inside of a kernel there may be more.
inline constexpr int kMaxRank = 8;

// Bytes of one element; a bool takes one byte holding 0 or 1.
constexpr size_t size_of(DType t) {
  constexpr uint8_t kSize[kDTypeCount] = {1, 1, 2, 4, 8, 1, 2, 4, 8, 2, 2, 4, 8};
  return kSize[static_cast<int>(t)];
}

constexpr bool is_float(DType t) {
  return t >= DType::kF16;
}
// Floats of 16 bits: stored as they are, computed in f32.
constexpr bool is_narrow_float(DType t) {
  return is_float(t) && size_of(t) < size_of(DType::kF32);
}
constexpr bool is_signed_int(DType t) {
  return t >= DType::kI8 && t <= DType::kI64;
}
constexpr bool is_unsigned_int(DType t) {
  return t >= DType::kU8 && t <= DType::kU64;
}
constexpr bool is_int(DType t) {
  return t >= DType::kI8 && t <= DType::kU64;
}

// The name in the text IR and in every message: "f32", "i64", "bool", …
std::string_view name_of(DType t);
// The inverse of name_of; nothing if `name` is no dtype.
std::optional<DType> dtype_from_name(std::string_view name);

}  // namespace nimble
