// Typed access to the elements of a tensor, for host operators that compute with any dtype.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>

#include "vm/base/checked.h"
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
    if (std::isnan(a) || std::isnan(b)) return !std::isnan(a);
  }
  return a < b;
}

// How many elements there are. (An empty tensor's other extents may be any.)
inline int64_t count_of(const LibraryTensor& t) {
  return try_element_count(t.shape).value_or(0);
}
inline uint64_t bytes_of(const LibraryTensor& t) {
  return static_cast<uint64_t>(count_of(t)) * size_of(t.dtype);
}

// A tensor around one axis: outer slices of `extent` blocks of `inner` elements each. Axis -1:
// the tensor counts as flat. Of an empty tensor, outer and inner may be too many to count: then
// they are the greatest integer. A loop over them begins with a look at count_of.
struct AxisView {
  int64_t outer = 1, extent = 1, inner = 1;
};
inline AxisView around(const LibraryTensor& t, int64_t axis) {
  if (axis < 0) return {1, count_of(t), 1};
  const auto at = std::min(static_cast<size_t>(axis), t.shape.size());
  const auto product = [](std::span<const int64_t> extents) {
    return try_element_count(extents).value_or(std::numeric_limits<int64_t>::max());
  };
  if (at == t.shape.size()) return {product(t.shape), 1, 1};
  return {product(t.shape.first(at)), t.shape[at], product(t.shape.subspan(at + 1))};
}

// Whether y is x with another extent of the axis (axis -1: a vector).
inline bool same_but_axis(const LibraryTensor& x, const LibraryTensor& y, int64_t axis) {
  if (axis < 0) return y.shape.size() == 1;
  if (x.shape.size() != y.shape.size() || axis >= static_cast<int64_t>(x.shape.size()))
    return false;
  for (size_t i = 0; i < x.shape.size(); ++i)
    if (static_cast<int64_t>(i) != axis && x.shape[i] != y.shape[i]) return false;
  return true;
}

// Elements that a simple loop passes in one step.
inline constexpr uint64_t kElementsPerStep = 8;
// For going once over n elements.
inline void charge_elements(StepCounter& steps, int64_t n) {
  steps.charge(static_cast<uint64_t>(n) / kElementsPerStep + 1);
}

// What is done between two looks at whether the run was cancelled.
inline constexpr uint64_t kBytesPerPoll = WorkMeter::kPollSteps * WorkMeter::kBytesPerStep;

// Copies piece by piece, each charged for.
inline void copy_charged(StepCounter& steps, uint8_t* to, const uint8_t* from, uint64_t bytes) {
  do {
    const uint64_t piece = std::min(bytes, kBytesPerPoll);
    steps.charge_bytes(piece);
    if (piece > 0) std::memmove(to, from, piece);
    to += piece;
    from += piece;
    bytes -= piece;
  } while (bytes > 0);
}

// For what only a wrong program or a wrong shape function can cause: nothing was written yet. Calls
// that are fine make no text of it.
inline void require_fit(bool fits, const char* kernel, std::string_view problem) {
  if (!fits)
    throw Error(Status::kFatal, "", fmt::format("{}: {}", kernel, problem),
                "report it: the compiled shape function disagrees with the operator");
}

// The rules of host operators: a tensor that is read, or written, of a dtype (none: T, the same for
// all such tensors of the operator) and of so many dims.
struct Ranks {
  int least = 0, most = kMaxRank;
};
inline TensorRule reads(std::optional<DType> dtype, Ranks ranks = {}) {
  const auto type = dtype ? TensorRule::Type::kFixed : TensorRule::Type::kSame;
  return {exec::Access::kIn, type, dtype.value_or(DType::kF32), ranks.least, ranks.most};
}
inline TensorRule writes(std::optional<DType> dtype, Ranks ranks = {}) {
  TensorRule rule = reads(dtype, ranks);
  rule.access = exec::Access::kOut;
  return rule;
}
inline TensorRule of_first_rank(TensorRule rule) {
  rule.rank_of_first = true;
  return rule;
}
inline constexpr std::nullopt_t kT = std::nullopt;

}  // namespace nimble::rt
