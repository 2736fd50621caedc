#include "compiler/ir/tensor.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <new>

namespace nimble::ir {
namespace {

template <class T>
T read(std::span<const uint8_t> bytes, int64_t i) {
  T v;
  NIMBLE_CHECK(i >= 0 && (static_cast<size_t>(i) + 1) * sizeof(T) <= bytes.size(), "element {}", i);
  std::memcpy(&v, bytes.data() + static_cast<size_t>(i) * sizeof(T), sizeof(T));
  return v;
}

double half_to_double(uint16_t h) {
  const int exponent = (h >> 10) & 31, mantissa = h & 1023;
  double v = exponent == 31  ? (mantissa ? NAN : INFINITY)
             : exponent == 0 ? std::ldexp(mantissa, -24)
                             : std::ldexp(1024 + mantissa, exponent - 25);
  return h & 0x8000 ? -v : v;
}

}  // namespace

int64_t Tensor::elements() const {
  // The product of the others may be beyond 64 bits.
  if (std::ranges::find(shape, 0) != shape.end()) return 0;
  int64_t n = 1;
  for (int64_t d : shape) {
    NIMBLE_CHECK(!__builtin_mul_overflow(n, d, &n), "element count overflows");
  }
  return n;
}

bool Tensor::all_finite() const {
  for (int64_t i = 0, n = is_float(dtype) ? elements() : 0; i < n; ++i)
    if (!std::isfinite(value(i))) return false;
  return true;
}

double Tensor::value(int64_t i) const {
  switch (dtype) {
    case DType::kF32:
      return read<float>(bytes, i);
    case DType::kF64:
      return read<double>(bytes, i);
    case DType::kF16:
      return half_to_double(read<uint16_t>(bytes, i));
    case DType::kBF16:
      return std::bit_cast<float>(uint32_t{read<uint16_t>(bytes, i)} << 16);
    case DType::kU64:
      return static_cast<double>(read<uint64_t>(bytes, i));
    default:
      return static_cast<double>(integer(i));
  }
}

int64_t Tensor::integer(int64_t i) const {
  switch (dtype) {
    case DType::kBool:
    case DType::kU8:
      return read<uint8_t>(bytes, i);
    case DType::kI8:
      return read<int8_t>(bytes, i);
    case DType::kI16:
      return read<int16_t>(bytes, i);
    case DType::kU16:
      return read<uint16_t>(bytes, i);
    case DType::kI32:
      return read<int32_t>(bytes, i);
    case DType::kU32:
      return read<uint32_t>(bytes, i);
    case DType::kI64:
    case DType::kU64:
      return read<int64_t>(bytes, i);
    default:
      return static_cast<int64_t>(value(i));
  }
}

std::shared_ptr<Tensor> Tensor::make(DType dtype, std::vector<int64_t> shape, uint8_t** data) {
  auto t = std::make_shared<Tensor>();
  t->dtype = dtype;
  t->shape = std::move(shape);
  const size_t size = static_cast<size_t>(t->elements()) * size_of(dtype);
  // Aligned for vector loads; one byte at least, so that an empty tensor has an address.
  constexpr std::align_val_t kAlignment{64};
  auto* memory = static_cast<uint8_t*>(::operator new(std::max<size_t>(size, 1), kAlignment));
  std::memset(memory, 0, size);
  t->owner = std::shared_ptr<const void>(memory, [](const void* p) {
    ::operator delete (const_cast<void*>(p), std::align_val_t{64});
  });
  t->bytes = {memory, size};
  *data = memory;
  return t;
}

}  // namespace nimble::ir
