// Matrix products.
#include "compiler/frontend/onnx/arithmetic.h"
#include "compiler/frontend/onnx/operators.h"

namespace nimble::frontend::onnx {
namespace {

// The templates multiply numbers of 4 and 8 bytes: narrower ones are widened.
Value widened(Arithmetic& a, const Value& x) {
  if (size_of(x.dtype()) >= 4) return x;
  return a.cast(x, is_float(x.dtype()) ? DType::kF32 : DType::kI32);
}

Values matmul(NodeContext& c) {
  if (auto y = quantised_product(c, /*transpose_b=*/false)) return {*y};
  Arithmetic a(c.g);
  const Value y = a.matmul(widened(a, c.in(0)), widened(a, c.in(1)));
  return {a.cast(y, c.in(0).dtype())};
}

Values gemm(NodeContext& c) {
  Arithmetic a(c.g);
  const Value left = widened(a, c.in(0)), right = widened(a, c.in(1));
  const DType type = left.dtype(), result = c.in(0).dtype();
  ir::Attrs attrs;
  const bool transpose_a = c.integer("transA", 0) != 0, transpose_b = c.integer("transB", 0) != 0;
  if (transpose_a) attrs["transpose_a"] = true;
  if (transpose_b) attrs["transpose_b"] = true;
  const std::optional<Value> of_bytes =
      transpose_a ? std::nullopt : quantised_product(c, transpose_b);
  Value y = of_bytes ? *of_bytes : c.g.call("matmul", {left, right}, attrs);
  const double alpha = c.real("alpha", 1), beta = c.real("beta", 1);
  if (alpha != 1) y = c.g.call("mul", {y, c.g.scalar(alpha, type)});
  if (!c.has(2) || beta == 0) return {a.cast(y, result)};
  Value bias = a.cast(c.in(2), type);
  if (beta != 1) bias = c.g.call("mul", {bias, c.g.scalar(beta, type)});
  return {a.cast(c.g.call("add", {y, bias}), result)};
}

}  // namespace

std::span<const Operator> product_operators() {
  static const Operator kRows[] = {
      {"MatMul", matmul},
      {"Gemm", gemm},
  };
  return kRows;
}

}  // namespace nimble::frontend::onnx
