// Makes the products that the policy of the compilation computes in 8-bit integers (Precision.def).
// The range of a row of the left-hand side is found at run time, the scale of a column of the
// constant right-hand side at compile time.
//
//   x ≈ l + s q, l = min x, s = (max x - min x) / 255 of its row, q = round((x - l) / s)  (u8)
//   w ≈ t v,     t = max |w| / 127 of its column, v = round(w / t) in -127 … 127          (i8)
//   x w ≈ t (s Σ q v + l Σ v)
//
// Rows have outliers, and most have them to one side: a range around zero would leave half of the
// bytes unused. (Of MiniLM's embeddings it doubles the error.) The least element is a float, so
// there is no zero point to be rounded, and rows far from zero lose nothing.
//
// Each of x and w is off by at most half a step, so an element of the product by at most
// k (s max |w| + max |x| t) / 2, and usually by about a root of k of such steps. A row of equal
// elements or a column of zeros is exact but for f32's rounding, a row with a NaN is NaN, and one
// whose range is beyond f32's is not finite; the sums, in i32, are exact.
//
// The rows' ranges and values are operators of the module like any others: the pass fuse makes one
// kernel of them, or puts them into that of a normalisation ahead, and what follows a product's
// sums behind it. Nothing is quantised that pack-weights does not lay out, or where a weight is not
// finite.
#include <algorithm>
#include <cmath>
#include <vector>

#include "compiler/ir/op.h"
#include "compiler/passes/pack_weights.h"
#include "compiler/passes/passes.h"
#include "compiler/passes/precision.h"
#include "compiler/passes/support/rewrite.h"
#include "vm/base/error.h"

namespace nimble::passes {
namespace {

using ir::Atom;
using ir::Dim;
using ir::Expr;

constexpr int64_t kLargest = 127, kSteps = 255;
// The longest rows: 255 * 127 of each element fit 31 bits, and a column's sum fits f32.
constexpr int64_t kMostRows = 32768;
// The least that a row's range counts as: a row of equal elements has a scale, too.
constexpr float kLeastRange = 1e-30F;

struct QuantisedColumns {
  ir::TensorRef values;  // i8, of the matrix's shape
  ir::TensorRef scales;  // f32, one for each column
  ir::TensorRef sums;    // f32: each column's sum of values
};

Atom scalar(float v) {
  return Atom::of(ir::Tensor::scalar_f32(v));
}

// A constant f32 matrix (k, n), stored as (n, k) where `transposed`. Nothing if a weight is not
// finite, or if there are more than kMostRows rows.
std::optional<QuantisedColumns> quantise_columns(const ir::Tensor& w, bool transposed) {
  const int64_t k = w.shape[transposed ? 1 : 0], n = w.shape[transposed ? 0 : 1];
  if (k > kMostRows || !w.all_finite()) return {};
  const int64_t row_step = transposed ? 1 : n, column_step = transposed ? k : 1;
  std::vector<int8_t> values(static_cast<size_t>(k * n));
  std::vector<float> scales(static_cast<size_t>(n));
  std::vector<float> sums(static_cast<size_t>(n));
  for (int64_t column = 0; column < n; ++column) {
    double extreme = 0;
    for (int64_t row = 0; row < k; ++row)
      extreme = std::max(extreme, std::abs(w.value(row * row_step + column * column_step)));
    const auto scale = static_cast<float>(extreme / kLargest);
    scales[static_cast<size_t>(column)] = scale;
    if (scale == 0) continue;  // zeros, or too small for a scale: their values are zeros
    int64_t sum = 0;
    for (int64_t row = 0; row < k; ++row) {
      const int64_t at = row * row_step + column * column_step;
      const double step = std::nearbyint(w.value(at) / scale);
      const auto v = static_cast<int64_t>(std::clamp<double>(step, -kLargest, kLargest));
      values[static_cast<size_t>(at)] = static_cast<int8_t>(v);
      sum += v;
    }
    sums[static_cast<size_t>(column)] = static_cast<float>(sum);
  }
  return QuantisedColumns{ir::Tensor::of<int8_t>(DType::kI8, w.shape, values),
                          ir::Tensor::of<float>(DType::kF32, {n}, scales),
                          ir::Tensor::of<float>(DType::kF32, {n}, sums)};
}

// The product written out at the end of `out`, of its type. Nothing as above.
std::optional<Atom> quantised_product(const ir::Binding& b, ir::BlockBuilder& out) {
  const Expr& e = *b.value;
  const auto columns =
      quantise_columns(*e.args[1].constant, ir::attr_or(e.attrs, "transpose_b", false));
  if (!columns) return {};
  const Atom& x = e.args[0];
  const std::vector<Dim>& dims = ir::type_of(x)->dims;
  const auto call = [&](const char* op, std::vector<Atom> args, ir::Attrs attrs,
                        std::vector<Dim> shape, DType dtype) {
    ir::VarRef y = out.call(op, std::move(args), std::move(attrs), b.var->name, e.location);
    y->type = ir::tensor_type(std::move(shape), dtype);
    return Atom(y);
  };
  const auto f32 = [&](const char* op, std::vector<Atom> args, std::vector<Dim> shape) {
    return call(op, std::move(args), {}, std::move(shape), DType::kF32);
  };
  std::vector<Dim> row = dims;
  row.back() = 1;
  const auto last = static_cast<int64_t>(dims.size()) - 1;
  const auto extreme = [&](const char* op) {
    return call(op, {x}, {{"axes", std::vector<int64_t>{last}}, {"keepdims", true}}, row,
                DType::kF32);
  };
  const Atom most = extreme("reduce_max"), least = extreme("reduce_min");
  const Atom range = f32("maximum", {f32("sub", {most, least}, row), scalar(kLeastRange)}, row);
  const Atom scale = f32("mul", {range, scalar(1.0F / kSteps)}, row);
  const Atom steps = f32("round", {f32("div", {f32("sub", {x, least}, dims), scale}, dims)}, dims);
  const Atom q = call("cast", {steps}, {{"dtype", DType::kU8}}, dims, DType::kU8);

  const std::vector<Dim>& shape = b.var->type->dims;
  ir::Attrs attrs = e.attrs;
  attrs["out"] = DType::kI32;
  const Atom sums =
      call(e.op.c_str(), {q, Atom::of(columns->values)}, std::move(attrs), shape, DType::kI32);
  const Atom real = call("cast", {sums}, {{"dtype", DType::kF32}}, shape, DType::kF32);
  const Atom offset = f32("mul", {least, Atom::of(columns->sums)}, shape);
  const Atom scaled = f32("add", {f32("mul", {real, scale}, shape), offset}, shape);
  return f32("mul", {scaled, Atom::of(columns->scales)}, shape);
}

}  // namespace

ir::Module quantise_products(const ir::Module& m, PassContext& context) {
  return rewrite_module(m, [&](const ir::Binding& b, ir::BlockBuilder& o) -> std::optional<Atom> {
    const Expr& e = *b.value;
    if (e.kind != ir::ExprKind::kCall) return std::nullopt;
    const PrecisionRule* rule = rule_of(context.precision, ir::traits_of(e).packs);
    if (!rule || rule->operands != DType::kI8 || !is_packable_product(e, DType::kF32, DType::kF32))
      return std::nullopt;
    auto y = quantised_product(b, o);
    if (y) context.count("quantise-products.products");
    return y;
  });
}

}  // namespace nimble::passes
