// Typed access to the elements of a tensor, for host operators that compute with any dtype.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>

#include "vm/base/error.h"
#include "vm/base/half.h"
#include "vm/library/registry.h"

namespace nimble::rt {

// How elements of one dtype are read: as T, a C++ type with the usual comparisons.
template <class T, class Stored = T, float (*Widen)(uint16_t) = nullptr>
struct Elements {
  using Value = T;
  const Stored* data;
  T operator[](int64_t i) const {
    // Not `Widen != nullptr`, which GCC does not fold under UBSan.
    if constexpr (!std::is_same_v<T, Stored>) {
      return Widen(data[i]);
    } else {
      return data[i];
    }
  }
};

// Calls f with the Elements of a tensor of any dtype.
template <class F>
decltype(auto) visit_elements(const LibraryTensor& t, F f) {
  const void* d = t.data;
  switch (t.dtype) {
    case DType::kBool:
    case DType::kU8:
      return f(Elements<uint8_t>{static_cast<const uint8_t*>(d)});
    case DType::kI8:
      return f(Elements<int8_t>{static_cast<const int8_t*>(d)});
    case DType::kI16:
      return f(Elements<int16_t>{static_cast<const int16_t*>(d)});
    case DType::kU16:
      return f(Elements<uint16_t>{static_cast<const uint16_t*>(d)});
    case DType::kI32:
      return f(Elements<int32_t>{static_cast<const int32_t*>(d)});
    case DType::kU32:
      return f(Elements<uint32_t>{static_cast<const uint32_t*>(d)});
    case DType::kI64:
      return f(Elements<int64_t>{static_cast<const int64_t*>(d)});
    case DType::kU64:
      return f(Elements<uint64_t>{static_cast<const uint64_t*>(d)});
    case DType::kF16:
      return f(Elements<float, uint16_t, f32_from_f16>{static_cast<const uint16_t*>(d)});
    case DType::kBF16:
      return f(Elements<float, uint16_t, f32_from_bf16>{static_cast<const uint16_t*>(d)});
    case DType::kF32:
      return f(Elements<float>{static_cast<const float*>(d)});
    case DType::kF64:
      return f(Elements<double>{static_cast<const double*>(d)});
  }
  NIMBLE_UNREACHABLE("dtype {}", static_cast<int>(t.dtype));
}

// Orders numbers with NaN above all others and equal to itself, so that sorting is well defined.
template <class T>
bool less_number(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    if (std::isnan(a) || std::isnan(b)) return !std::isnan(a) && std::isnan(b);
  }
  return a < b;
}

inline int64_t count_of(const LibraryTensor& t) {
  int64_t n = 1;
  for (int64_t d : t.shape) n *= d;
  return n;
}

// A tensor around one axis: outer slices of `extent` blocks of `inner` elements each. Axis -1:
// the tensor counts as flat.
struct AxisView {
  int64_t outer = 1, extent = 1, inner = 1;
};
inline AxisView around(const LibraryTensor& t, int64_t axis) {
  if (axis < 0) return {1, count_of(t), 1};
  AxisView v;
  for (size_t i = 0; i < t.shape.size(); ++i) {
    const auto at = static_cast<int64_t>(i);
    (at < axis ? v.outer : at == axis ? v.extent : v.inner) *= t.shape[i];
  }
  return v;
}

// For what only a wrong program or a wrong shape function can cause: nothing was written yet.
inline void require_fit(bool fits, const char* kernel, const std::string& problem) {
  if (!fits)
    throw Error(Status::kFatal, "", std::string(kernel) + ": " + problem,
                "report it: the compiled shape function disagrees with the operator");
}

// For `check` functions: "" if the contract has at least `count` scalars.
inline std::string check_scalars(const exec::KernelContract& contract, size_t count) {
  size_t n = 0;
  for (const exec::KernelArgument& a : contract.arguments)
    n += a.kind == exec::KernelArgument::Kind::kScalar;
  return n >= count ? "" : "it is not told its parameters";
}

}  // namespace nimble::rt
