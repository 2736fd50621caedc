// What the rules of quantised tensors share (ops_quantised.cpp).
#pragma once

#include "compiler/frontend/onnx/arithmetic.h"
#include "compiler/frontend/onnx/operators.h"

namespace nimble::frontend::onnx {

inline bool is_byte(DType t) {
  return t == DType::kU8 || t == DType::kI8;
}

// A scale or zero point as it meets x: one number, one per element of an axis, or one per block of
// `block` elements along the axis.
Value spread(NodeContext& c, const Value& v, const Value& x, int64_t axis, int64_t block);

// round(x) + zero within the limits of `to`, for x in a float dtype.
Value saturated(NodeContext& c, const Value& x, const std::optional<Value>& zero, DType to);

// Error(kUnsupported) unless `t` is an integer of 8 or 16 bits.
void require_integers(NodeContext& c, DType t);

// What bytes and their scale stand for, which is noted.
Value dequantised(NodeContext& c, const GraphBuilder::Quantised& q);

// Whether two tensors have the same type, and the same constant scale, a positive number, and zero
// point: then equal numbers are equal bytes, and larger ones larger.
bool is_scaled_alike(const GraphBuilder::Quantised& a, const GraphBuilder::Quantised& b);

// x in u8, with one scale and zero point from the range of its values, 0 included.
struct DynamicallyQuantised {
  Value values, scale, zero;
};
DynamicallyQuantised quantised_by_range(NodeContext& c, const Value& x);

}  // namespace nimble::frontend::onnx
