// An element of a tensor's bytes as the number that it is, so that what a dtype's bytes mean stands
// once.
#pragma once

#include <cstdint>
#include <cstring>

#include "vm/base/dtype.h"
#include "vm/base/error.h"
#include "vm/base/half.h"

namespace nimble {

// visit(value) with the element at `at`: integers in their own type, a bool as its byte, f16 and
// bf16 as float.
template <class Visit>
auto visit_element(DType dtype, const uint8_t* at, const Visit& visit) {
  const auto load = [at]<typename T>(T value) {
    std::memcpy(&value, at, sizeof value);
    return value;
  };
  switch (dtype) {
    case DType::kBool:
    case DType::kU8:
      return visit(load(uint8_t{}));
    case DType::kI8:
      return visit(load(int8_t{}));
    case DType::kI16:
      return visit(load(int16_t{}));
    case DType::kI32:
      return visit(load(int32_t{}));
    case DType::kI64:
      return visit(load(int64_t{}));
    case DType::kU16:
      return visit(load(uint16_t{}));
    case DType::kU32:
      return visit(load(uint32_t{}));
    case DType::kU64:
      return visit(load(uint64_t{}));
    case DType::kF16:
      return visit(f32_from_f16(load(uint16_t{})));
    case DType::kBF16:
      return visit(f32_from_bf16(load(uint16_t{})));
    case DType::kF32:
      return visit(load(float{}));
    case DType::kF64:
      return visit(load(double{}));
  }
  NIMBLE_UNREACHABLE("dtype {}", static_cast<int>(dtype));
}

// As a double: integers beyond 2^53 are rounded.
inline double number_at(DType dtype, const uint8_t* at) {
  return visit_element(dtype, at, [](auto value) { return static_cast<double>(value); });
}

}  // namespace nimble
