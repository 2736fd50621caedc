// Makes the products that the policy of the compilation computes in 8-bit integers (Precision.def).
// A sum of k terms is cut into groups as the policy says, if these divide it. The range of a group
// of a row of the left-hand side is found at run time, the scale of one of a column of the constant
// right-hand side at compile time.
//
//   x ≈ l + s q, l = min x, s = (max x - min x) / steps of its group, q = round((x - l) / s)  (u8)
//   w ≈ t v,     t = max |w| / most of its group, v = round(w / t) in -most … most            (i8)
//   x w ≈ Σ over groups  t (s Σ q v + l Σ v)
//
// Steps are 255 and `most` is 127, but for a policy that leaves room for machines to multiply bytes
// by instructions that take no full ones.
//
// Rows have outliers, and most have them to one side: a range around zero would leave half of the
// bytes unused. (Of MiniLM's embeddings it doubles the error.) The least element is a float, so
// there is no zero point to be rounded, and rows far from zero lose nothing. An outlier spoils its
// group alone: with groups of 128 MiniLM's error is two thirds of that with whole rows and columns.
//
// Each of x and w is off by at most half a step, so an element of the product by at most
// k (s max |w| + max |x| t) / 2 of each group, and usually by about a root of k of such steps. A
// group of equal elements or of zeros is exact but for f32's rounding, a row with a NaN is NaN, and
// one whose range is beyond f32's is not finite; the sums of a group, in i32, are exact.
//
// Products in groups are one operator (packed_groupwise_matmul, compiler/ir/groupwise.h), with its
// weights packed here: their scales go with them. Where there is one group, the rows' ranges and
// values are operators of the module like any others: the pass fuse makes one kernel of them, or
// puts them into that of a normalisation ahead, and what follows a product's sums behind it.
// Nothing is quantised that pack-weights does not lay out, or where a weight is not finite.
#include <algorithm>
#include <cmath>
#include <vector>

#include "compiler/ir/groupwise.h"
#include "compiler/ir/layout.h"
#include "compiler/ir/op.h"
#include "compiler/kernels/templates/dense.h"
#include "compiler/passes/pack_weights.h"
#include "compiler/passes/passes.h"
#include "compiler/passes/precision.h"
#include "compiler/passes/support/has_kernel.h"
#include "compiler/passes/support/rewrite.h"
#include "vm/base/error.h"

namespace nimble::passes {
namespace {

using ir::Atom;
using ir::Dim;
using ir::Expr;

constexpr int64_t kLargest = 127, kSteps = 255;  // of full bytes
// The longest rows: 255 * 127 of each element fit 31 bits, and a column's sum fits f32.
constexpr int64_t kMostRows = 32768;
// The least that a row's range counts as: a row of equal elements has a scale, too.
constexpr float kLeastRange = 1e-30F;

struct QuantisedColumns {
  ir::TensorRef values;       // i8, of the matrix's shape
  int64_t groups = 0, n = 0;  // of a column; columns
  // Of each group of each column, (groups, n): its scale, and the sum of its values.
  std::vector<float> scales, sums;
};

Atom scalar(float v) {
  return Atom::of(ir::Tensor::scalar_f32(v));
}

// Rows and columns of a product's constant right-hand side, and how it is stored.
struct Matrix {
  const ir::Tensor& w;  // f32
  bool transposed;      // stored as (n, k)
  int64_t k, n;

  int64_t at(int64_t row, int64_t column) const {
    return transposed ? column * k + row : row * n + column;
  }
};
Matrix matrix_of(const Expr& product) {
  const ir::Tensor& w = *product.args[1].constant;
  const bool transposed = ir::attr_or(product.attrs, "transpose_b", false);
  return {w, transposed, w.shape[transposed ? 1 : 0], w.shape[transposed ? 0 : 1]};
}

// In groups of so many rows, which divide k, to whole numbers of that size at most. Nothing if a
// weight is not finite, or if a group has more than kMostRows rows.
std::optional<QuantisedColumns> quantise_columns(const Matrix& m, int64_t group, int64_t most) {
  if (group > kMostRows || !m.w.all_finite()) return {};
  QuantisedColumns out;
  out.groups = m.k / group;
  out.n = m.n;
  std::vector<int8_t> values(static_cast<size_t>(m.k * m.n));
  out.scales.resize(static_cast<size_t>(out.groups * m.n));
  out.sums.resize(out.scales.size());
  for (int64_t g = 0; g < out.groups; ++g)
    for (int64_t column = 0; column < m.n; ++column) {
      const int64_t first = g * group, end = first + group;
      double extreme = 0;
      for (int64_t row = first; row < end; ++row)
        extreme = std::max(extreme, std::abs(m.w.value(m.at(row, column))));
      const auto of_group = static_cast<size_t>(g * m.n + column);
      const auto scale = static_cast<float>(extreme / static_cast<double>(most));
      out.scales[of_group] = scale;
      if (scale == 0) continue;  // zeros, or too small for a scale: their values are zeros
      int64_t sum = 0;
      for (int64_t row = first; row < end; ++row) {
        const int64_t at = m.at(row, column);
        const double step = std::nearbyint(m.w.value(at) / scale);
        const auto v = std::clamp(static_cast<int64_t>(step), -most, most);
        values[static_cast<size_t>(at)] = static_cast<int8_t>(v);
        sum += v;
      }
      out.sums[of_group] = static_cast<float>(sum);
    }
  out.values = ir::Tensor::of<int8_t>(DType::kI8, m.w.shape, values);
  return out;
}

// How many terms of a sum of k have scales of their own; 0: all of them have the same.
int64_t group_of(const ByteRule& rule, int64_t k) {
  for (const int64_t group : {rule.group, rule.group / 2})
    if (group > 0 && k % group == 0 && group % ir::Groupwise::kUnit == 0)
      return group < k ? group : 0;
  return 0;
}

// The product in groups at the end of `out`. Nothing if no kernel takes it so, or as above.
std::optional<Atom> product_in_groups(const ir::Binding& b, int64_t group, const ByteRule& rule,
                                      PassContext& context, ir::BlockBuilder& out) {
  if (!context.packs_weights()) return {};
  const Expr& e = *b.value;
  const Matrix m = matrix_of(e);
  ir::Groupwise form;
  form.group = group;
  form.k = m.k;
  form.n = m.n;
  form.steps = rule.steps;
  form.most = rule.most;
  form.layout =
      *ir::parse_layout(kernels::groupwise_layout(context.target, m.n, form.most_beside_bytes()));
  ir::Attrs attrs = {{"group", group}, {"k", m.k}, {"n", m.n}, {"layout", form.layout.str()}};
  if (rule.steps != kSteps) attrs["steps"] = rule.steps;
  if (rule.most != kLargest) attrs["max_weight"] = rule.most;
  const ir::ExprRef call = ir::make_call("packed_groupwise_matmul", {}, std::move(attrs));
  const ir::Type weights = ir::tensor_type(form.layout.packed_dims(m.k, m.n), DType::kI8);
  const ir::Type by_group = ir::tensor_type({form.groups(), form.stored()}, DType::kF32);
  if (!has_kernel(*call, {ir::type_of(e.args[0]), weights, by_group, by_group}, b.var->type,
                  context.target, context))
    return {};
  const auto columns = quantise_columns(m, group, rule.most);
  if (!columns) return {};
  // Filled up to whole panels, as the weights are.
  const std::vector<int64_t> shape = {form.groups(), form.stored()};
  std::vector<float> scales(static_cast<size_t>(shape[0] * shape[1])), sums(scales.size());
  for (int64_t g = 0; g < form.groups(); ++g)
    for (int64_t column = 0; column < m.n; ++column) {
      const auto from = static_cast<size_t>(g * m.n + column);
      const auto to = static_cast<size_t>(g * form.stored() + column);
      scales[to] = columns->scales[from];
      sums[to] = columns->scales[from] * columns->sums[from];
    }
  const ir::VarRef y =
      out.call(call->op,
               {e.args[0], Atom::of(ir::pack_matrix(*columns->values, form.layout, m.transposed)),
                Atom::of(ir::Tensor::of<float>(DType::kF32, shape, scales)),
                Atom::of(ir::Tensor::of<float>(DType::kF32, shape, sums))},
               call->attrs, b.var->name, e.location);
  y->type = b.var->type;
  context.count("quantise-products.in-groups");
  return Atom(y);
}

// The product in one group, written out at the end of `out`, of its type. Nothing as above.
std::optional<Atom> quantised_product(const ir::Binding& b, ir::BlockBuilder& out) {
  const Expr& e = *b.value;
  const Matrix m = matrix_of(e);
  const auto columns = quantise_columns(m, m.k, kLargest);
  if (!columns) return {};
  const auto by_column = [&](const std::vector<float>& v) {
    return Atom::of(ir::Tensor::of<float>(DType::kF32, {m.n}, v));
  };
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
  const Atom offset = f32("mul", {least, by_column(columns->sums)}, shape);
  const Atom scaled = f32("add", {f32("mul", {real, scale}, shape), offset}, shape);
  return f32("mul", {scaled, by_column(columns->scales)}, shape);
}

}  // namespace

ir::Module quantise_products(const ir::Module& m, PassContext& context) {
  return rewrite_module(m, [&](const ir::Binding& b, ir::BlockBuilder& o) -> std::optional<Atom> {
    const Expr& e = *b.value;
    if (e.kind != ir::ExprKind::kCall) return std::nullopt;
    const ByteRule* rule = byte_rule_of(context.precision, ir::traits_of(e).packs);
    if (!rule || !is_packable_product(e, DType::kF32, DType::kF32)) return std::nullopt;
    std::optional<Atom> y;
    if (const int64_t group = group_of(*rule, matrix_of(e).k))
      y = product_in_groups(b, group, *rule, context, o);
    if (!y) y = quantised_product(b, o);
    if (y) context.count("quantise-products.products");
    return y;
  });
}

}  // namespace nimble::passes
