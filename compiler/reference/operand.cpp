#include "compiler/reference/operand.h"

#include <cstring>

#include "vm/base/half.h"

namespace nimble::reference {
namespace {

template <class T>
void store_integer(std::vector<int64_t> const& from, uint8_t* to) {
  for (size_t k = 0; k < from.size(); ++k) {
    T v = static_cast<T>(from[k]);
    std::memcpy(to + k * sizeof(T), &v, sizeof(T));
  }
}

void store(const Array& a, uint8_t* to) {
  switch (a.dtype) {
    case DType::kBool:
      for (size_t k = 0; k < a.i.size(); ++k) to[k] = a.i[k] != 0;
      return;
    case DType::kI8:
      return store_integer<int8_t>(a.i, to);
    case DType::kI16:
      return store_integer<int16_t>(a.i, to);
    case DType::kI32:
      return store_integer<int32_t>(a.i, to);
    case DType::kI64:
      return store_integer<int64_t>(a.i, to);
    case DType::kU8:
      return store_integer<uint8_t>(a.i, to);
    case DType::kU16:
      return store_integer<uint16_t>(a.i, to);
    case DType::kU32:
      return store_integer<uint32_t>(a.i, to);
    case DType::kU64:
      return store_integer<uint64_t>(a.i, to);
    case DType::kF64:
      if (!a.f.empty()) std::memcpy(to, a.f.data(), a.f.size() * sizeof(double));
      return;
    case DType::kF32:
      for (size_t k = 0; k < a.f.size(); ++k) {
        auto v = static_cast<float>(a.f[k]);
        std::memcpy(to + k * sizeof v, &v, sizeof v);
      }
      return;
    case DType::kF16:
    case DType::kBF16:
      for (size_t k = 0; k < a.f.size(); ++k) {
        auto v = static_cast<float>(a.f[k]);
        uint16_t bits = a.dtype == DType::kF16 ? f16_from_f32(v) : bf16_from_f32(v);
        std::memcpy(to + k * sizeof bits, &bits, sizeof bits);
      }
      return;
  }
}

}  // namespace

Array Array::from(const ir::Tensor& t) {
  Array a;
  a.dtype = t.dtype;
  a.shape = t.shape;
  int64_t n = t.elements();
  if (a.floating()) {
    a.f.resize(static_cast<size_t>(n));
    if (t.dtype == DType::kF32) {
      std::span<const float> v = t.as<float>();
      a.f.assign(v.begin(), v.end());
    } else {
      for (int64_t k = 0; k < n; ++k) a.f[static_cast<size_t>(k)] = t.value(k);
    }
  } else {
    a.i.resize(static_cast<size_t>(n));
    for (int64_t k = 0; k < n; ++k) a.i[static_cast<size_t>(k)] = t.integer(k);
  }
  return a;
}

Array Array::make(DType dtype, Shape shape) {
  Array a;
  a.dtype = dtype;
  a.shape = std::move(shape);
  auto n = static_cast<size_t>(elements(a.shape));
  if (a.floating())
    a.f.assign(n, 0.0);
  else
    a.i.assign(n, 0);
  return a;
}

ir::TensorRef Array::tensor() const {
  uint8_t* data = nullptr;
  auto t = ir::Tensor::make(dtype, shape, &data);
  store(*this, data);
  return t;
}

Shape OpCall::result_shape(size_t k) const {
  Shape shape;
  for (const ir::Dim& d : results[k]->dims) shape.push_back(*d.as_constant());
  return shape;
}

Array OpCall::result(size_t k) const {
  return Array::make(results[k]->dtype, result_shape(k));
}

int64_t elements(const Shape& s) {
  int64_t n = 1;
  for (int64_t d : s) n *= d;
  return n;
}

Shape strides_of(const Shape& s) {
  Shape out(s.size(), 1);
  for (size_t k = s.size(); k-- > 1;) out[k - 1] = out[k] * s[k];
  return out;
}

void for_each(const Shape& s, const std::function<void(const Shape&, int64_t)>& visit) {
  Shape at(s.size(), 0);
  int64_t n = elements(s);
  for (int64_t flat = 0; flat < n; ++flat) {
    visit(at, flat);
    for (size_t k = s.size(); k-- > 0;) {
      if (++at[k] < s[k]) break;
      at[k] = 0;
    }
  }
}

int64_t broadcast_offset(const Shape& from, const Shape& at) {
  int64_t offset = 0;
  size_t skip = at.size() - from.size();
  for (size_t k = 0; k < from.size(); ++k)
    offset = offset * from[k] + (from[k] == 1 ? 0 : at[skip + k]);
  return offset;
}

void fatal(const OpCall& c, const std::string& problem) {
  throw Error(Status::kFatal, c.e.location.str(), c.e.op + ": " + problem);
}

}  // namespace nimble::reference
