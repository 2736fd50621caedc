// Keeps the constant matrices of products in 4 or 8 bits as the policy of the compilation says
// (Precision.def): blockwise_matmul, with a scale for each block of rows of a column and no zero
// points.
//
//   w ≈ s (q - 2^(bits-1)),   q = round(w / s) + 2^(bits-1), kept within 0 … 2^bits - 1
//
// The numbers that a block has reach one step further down than up. Its element e of the largest
// size is therefore put at the lower end, s = -e / 2^(bits-1), or, where that gives less error, at
// the upper one, s = e / (2^(bits-1) - 1), or beyond the end, with a scale smaller by 5, 10, 15 or
// 20 %: what is cut off of a few may be worth less than finer steps of the rest. Of these scales
// the one with the smallest sum of squared errors is taken, the first of equals.
//
// Products of such weights are made in f32: where rows are few their time is that of reading the
// weights, and these are an eighth or a quarter. A matrix with a weight that is not finite stays as
// it is; so do embedding tables, whose rows are taken and not multiplied.
#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <vector>

#include "compiler/ir/blockwise.h"
#include "compiler/ir/op.h"
#include "compiler/passes/pack_weights.h"
#include "compiler/passes/passes.h"
#include "compiler/passes/precision.h"
#include "compiler/passes/support/rewrite.h"

namespace nimble::passes {
namespace {

using ir::Atom;
using ir::Expr;

// What the largest element's scale is multiplied by.
constexpr std::array kShrunk = {1.0, 0.95, 0.9, 0.85, 0.8};

struct Weights {
  ir::TensorRef numbers, scales;  // null: the matrix cannot be kept so
};

double quantised(double w, double scale, double middle) {
  return std::clamp(std::nearbyint(w / scale), -middle, middle - 1);
}

// The scale of a block of finite weights by the rule above; 0 for zeros.
float scale_of(const std::vector<double>& w, double middle) {
  double extreme = 0;
  for (double v : w)
    if (std::abs(v) > std::abs(extreme)) extreme = v;
  if (extreme == 0) return 0;
  float best = 0;
  double least = INFINITY;
  const auto attempt = [&](double exact) {
    const auto scale = static_cast<float>(exact);
    if (scale == 0) return;
    double error = 0;
    for (double v : w) {
      const double off = quantised(v, scale, middle) * scale - v;
      error += off * off;
    }
    if (error < least) least = error, best = scale;
  };
  for (double f : kShrunk) attempt(-extreme / middle * f);
  for (double f : kShrunk) attempt(extreme / (middle - 1) * f);
  return best;  // 0 where the block's elements are too small for a scale: they count as zeros
}

// A constant f32 matrix (k, n), stored as (n, k) where `transposed`.
Weights quantise(const ir::Tensor& w, bool transposed, const ir::Blockwise& form) {
  if (!w.all_finite()) return {};
  const auto middle = static_cast<double>(form.middle());
  const int64_t row_step = transposed ? 1 : form.n, column_step = transposed ? form.k : 1;
  const auto values = w.as<float>();
  uint8_t* numbers = nullptr;
  const auto packed = ir::Tensor::make(DType::kU8, form.weight_shape(), &numbers);
  std::vector<float> scales;
  std::vector<double> block;
  for (int64_t column = 0; column < form.n; ++column)
    for (int64_t first = 0; first < form.k; first += form.block) {
      block.clear();
      for (int64_t row = first; row < std::min(form.k, first + form.block); ++row)
        block.push_back(values[static_cast<size_t>(row * row_step + column * column_step)]);
      const float scale = scale_of(block, middle);
      scales.push_back(scale);
      for (size_t i = 0; i < block.size(); ++i) {
        const double q = scale == 0 ? 0 : quantised(block[i], scale, middle);
        const auto place = form.place(first + static_cast<int64_t>(i), column);
        numbers[place.byte] |= static_cast<uint8_t>(static_cast<int>(q + middle) << place.shift);
      }
    }
  return {packed, ir::Tensor::of<float>(DType::kF32, form.scale_shape(), scales)};
}

}  // namespace

ir::Module quantise_weights(const ir::Module& m, PassContext& context) {
  std::map<std::pair<const ir::Tensor*, bool>, Weights> known;  // what products share
  return rewrite_module(m, [&](const ir::Binding& b, ir::BlockBuilder& o) -> std::optional<Atom> {
    const Expr& e = *b.value;
    if (e.kind != ir::ExprKind::kCall) return std::nullopt;
    const WeightRule* rule = weight_rule_of(context.precision, ir::traits_of(e).packs);
    if (!rule || !is_packable_product(e, DType::kF32, DType::kF32)) return std::nullopt;
    const bool transposed = ir::attr_or(e.attrs, "transpose_b", false);
    const ir::TensorRef& w = e.args[1].constant;
    ir::Blockwise form;
    form.bits = rule->bits;
    form.block = rule->block;
    form.k = w->shape[transposed ? 1 : 0];
    form.n = w->shape[transposed ? 0 : 1];
    const auto [at, is_new] = known.try_emplace({w.get(), transposed});
    if (is_new) at->second = quantise(*w, transposed, form);
    const Weights& weights = at->second;
    if (!weights.numbers) return std::nullopt;
    context.count("quantise-weights.products");
    const ir::VarRef y =
        o.call("blockwise_matmul", {e.args[0], Atom::of(weights.numbers), Atom::of(weights.scales)},
               {{"bits", form.bits}, {"block", form.block}, {"k", form.k}, {"n", form.n}},
               b.var->name, e.location);
    y->type = b.var->type;
    return Atom(y);
  });
}

}  // namespace nimble::passes
