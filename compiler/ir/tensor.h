// A tensor value known at compile time: weights, folded constants, values of the reference
// interpreter. Dense row-major; the data may view a mapped file.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "vm/base/dtype.h"
#include "vm/base/error.h"

namespace nimble::ir {

struct Tensor;
using TensorRef = std::shared_ptr<const Tensor>;

struct Tensor {
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  std::span<const uint8_t> bytes;
  std::shared_ptr<const void> owner;  // keeps `bytes` alive
  std::string name;                   // of a weight in its model; may be empty

  int64_t elements() const;
  template <class T>
  std::span<const T> as() const {
    NIMBLE_CHECK(sizeof(T) == size_of(dtype), "element size of {}", name_of(dtype));
    return {reinterpret_cast<const T*>(bytes.data()), bytes.size() / sizeof(T)};
  }
  // Element i as a double or an integer, whatever the dtype.
  double value(int64_t i) const;
  int64_t integer(int64_t i) const;
  // Whether no element is infinite or NaN.
  bool all_finite() const;

  // A tensor with its own zeroed memory; `data` points into it until the tensor is shared.
  static std::shared_ptr<Tensor> make(DType dtype, std::vector<int64_t> shape, uint8_t** data);
  template <class T>
  static TensorRef of(DType dtype, std::vector<int64_t> shape, const std::vector<T>& values) {
    uint8_t* data = nullptr;
    auto t = make(dtype, std::move(shape), &data);
    NIMBLE_CHECK(values.size() * sizeof(T) == t->bytes.size(), "{} values", values.size());
    std::copy(values.begin(), values.end(), reinterpret_cast<T*>(data));
    return t;
  }
  static TensorRef scalar_f32(float v) { return of<float>(DType::kF32, {}, {v}); }
  static TensorRef scalar_i64(int64_t v) { return of<int64_t>(DType::kI64, {}, {v}); }
};

}  // namespace nimble::ir
