// Tensors as plain vectors of doubles or integers, for the reference functions.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "compiler/ir/expr.h"
#include "compiler/ir/tensor.h"
#include "compiler/reference/reference.h"

namespace nimble::reference {

using Shape = std::vector<int64_t>;

// One operand or result. Float dtypes use `f`, integer and bool dtypes `i`.
struct Array {
  DType dtype = DType::kF32;
  Shape shape;
  std::vector<double> f;
  std::vector<int64_t> i;

  static Array from(const ir::Tensor& t);
  static Array make(DType dtype, Shape shape);
  // Rounds to the dtype; integers wrap.
  ir::TensorRef tensor() const;

  bool floating() const { return is_float(dtype); }
  int64_t size() const { return static_cast<int64_t>(floating() ? f.size() : i.size()); }
  int64_t rank() const { return static_cast<int64_t>(shape.size()); }
  double number(int64_t k) const {
    return floating() ? f[static_cast<size_t>(k)] : static_cast<double>(i[static_cast<size_t>(k)]);
  }
  void copy(int64_t to, const Array& from, int64_t k) {
    if (floating())
      f[static_cast<size_t>(to)] = from.f[static_cast<size_t>(k)];
    else
      i[static_cast<size_t>(to)] = from.i[static_cast<size_t>(k)];
  }
};

// Orders integers of a dtype: those of u64 beyond 2^63 are kept as negative ones.
inline bool integer_less(DType t, int64_t a, int64_t b) {
  return t == DType::kU64 ? static_cast<uint64_t>(a) < static_cast<uint64_t>(b) : a < b;
}

struct OpCall {
  const ir::Expr& e;  // attributes have constant dims
  std::vector<Array> in;
  std::vector<ir::Type> results;     // static
  Array result(size_t k = 0) const;  // zeroed, of result k's type
  Shape result_shape(size_t k = 0) const;
};
using ReferenceFunction = std::vector<Array> (*)(const OpCall&);

// Where in operand 0 an element of the result comes from, both as flat positions; kNowhere:
// padding. The call must outlive it; of operand 0 only the shape is read.
using Origin = std::function<int64_t(const Shape& at, int64_t flat)>;
using OriginRule = Origin (*)(const OpCall&);
inline constexpr int64_t kNowhere = -1;
// Null if the operator does not move elements of operand 0.
OriginRule find_origin(const std::string& op);

// Null if there is none.
ReferenceFunction find_elementwise(const std::string& op);
ReferenceFunction find_rearrangement(const std::string& op);
ReferenceFunction find_product(const std::string& op);
ReferenceFunction find_reduction(const std::string& op);
ReferenceFunction find_network(const std::string& op);
ReferenceFunction find_dynamic(const std::string& op);

// count.linearise and linearise of a value of a data type (vm/library/linearise.cpp).
std::vector<ir::TensorRef> linearise(const ir::Expr& call, const Value& root, const ir::Module& m);

int64_t elements(const Shape& s);
// Row-major strides.
Shape strides_of(const Shape& s);
// Calls `visit(index, flat)` for every coordinate of a shape, in row-major order.
void for_each(const Shape& s, const std::function<void(const Shape& at, int64_t flat)>& visit);
// The flat position in `from` that broadcasting maps `at` (of a shape of higher or equal rank) to.
int64_t broadcast_offset(const Shape& from, const Shape& at);
[[noreturn]] void fatal(const OpCall& c, const std::string& problem);

}  // namespace nimble::reference
