#include "tuner/measure/inputs.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "vm/base/element.h"
#include "vm/base/error.h"
#include "vm/base/half.h"

namespace nimble::tuner {
namespace {

// SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014).
struct SplitMix {
  uint64_t state;
  uint64_t next() {
    uint64_t z = state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  double unit() { return static_cast<double>(next() >> 11) * 0x1p-53; }
};

template <typename T, typename Make>
void each(std::span<uint8_t> bytes, Make make) {
  for (size_t at = 0; at + sizeof(T) <= bytes.size(); at += sizeof(T)) {
    const T v = make();
    std::memcpy(bytes.data() + at, &v, sizeof v);
  }
}

}  // namespace

void fill_tensor(const Fill& fill, DType dtype, uint64_t seed, uint32_t index,
                 std::span<uint8_t> bytes) {
  SplitMix random{(fill.constant ? 1 : seed) * 0x9e3779b97f4a7c15u + index};
  const auto real = [&] { return fill.low + (fill.high - fill.low) * random.unit(); };
  const auto whole = [&] {
    const auto low = static_cast<int64_t>(fill.low), high = static_cast<int64_t>(fill.high);
    if (high <= low) return low;
    const auto count = static_cast<uint64_t>(high - low) + 1;
    return low + static_cast<int64_t>(random.next() % count);
  };
  switch (dtype) {
    case DType::kBool:
      return each<uint8_t>(bytes, [&] { return static_cast<uint8_t>(whole() != 0); });
    case DType::kI8:
    case DType::kU8:
      return each<uint8_t>(bytes, [&] { return static_cast<uint8_t>(whole()); });
    case DType::kI16:
    case DType::kU16:
      return each<uint16_t>(bytes, [&] { return static_cast<uint16_t>(whole()); });
    case DType::kI32:
    case DType::kU32:
      return each<uint32_t>(bytes, [&] { return static_cast<uint32_t>(whole()); });
    case DType::kI64:
    case DType::kU64:
      return each<int64_t>(bytes, whole);
    case DType::kF16:
      return each<uint16_t>(bytes, [&] { return f16_from_f32(static_cast<float>(real())); });
    case DType::kBF16:
      return each<uint16_t>(bytes, [&] { return bf16_from_f32(static_cast<float>(real())); });
    case DType::kF32:
      return each<float>(bytes, [&] { return static_cast<float>(real()); });
    case DType::kF64:
      return each<double>(bytes, real);
  }
}

double compare_tensors(DType dtype, std::span<const uint8_t> got, std::span<const uint8_t> want,
                       int64_t* worst) {
  if (got.size() != want.size()) return std::numeric_limits<double>::infinity();
  int64_t unused = 0;
  if (!worst) worst = &unused;
  if (!is_float(dtype)) {
    const auto first = std::mismatch(got.begin(), got.end(), want.begin()).first;
    if (first == got.end()) return 0;
    *worst = (first - got.begin()) / static_cast<int64_t>(size_of(dtype));
    return 1;
  }
  const size_t n = want.size() / size_of(dtype);
  double squares = 0;
  size_t finite = 0;
  for (size_t i = 0; i < n; ++i) {
    const double w = number_at(dtype, want.data() + i * size_of(dtype));
    if (std::isfinite(w)) squares += w * w, ++finite;
  }
  const double scale =
      finite > 0 ? std::max(1e-30, std::sqrt(squares / static_cast<double>(finite))) : 1;
  double most = 0;
  for (size_t i = 0; i < n; ++i) {
    const double g = number_at(dtype, got.data() + i * size_of(dtype)),
                 w = number_at(dtype, want.data() + i * size_of(dtype));
    if (std::isnan(g) != std::isnan(w)) {
      *worst = static_cast<int64_t>(i);
      return std::numeric_limits<double>::quiet_NaN();
    }
    if (std::isnan(w) || g == w) continue;
    // No quotient below tells: infinity over infinity is no number, and no number exceeds any.
    if (std::isinf(w)) {
      *worst = static_cast<int64_t>(i);
      return std::numeric_limits<double>::infinity();
    }
    const double off = std::abs(g - w) / (scale + std::abs(w));
    if (off > most) most = off, *worst = static_cast<int64_t>(i);
  }
  return most;
}

}  // namespace nimble::tuner
