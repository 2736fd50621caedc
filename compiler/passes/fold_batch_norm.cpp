// Batch normalisation by constants is one multiplication and one addition a channel:
//
//   (x - mean) / sqrt(variance + epsilon) * scale + bias  =  x * k + c,
//   k = scale / sqrt(variance + epsilon),  c = bias - mean * k
//
// Behind a convolution with constant weights whose result nobody else reads, k goes into its
// filters and c into its bias, and nothing is left to do at run time. Elsewhere, as ahead of the
// convolutions of DenseNet, it becomes mul and add by constants (c, 1, 1): cheap enough to be
// computed again by each reader, and without an axis of its own, so that channels-last can turn
// it.
//
// k and c are computed in double and rounded once. The sums are rounded otherwise than the
// formula's, like those of any convolution that adds in another order. Where a k or c is not
// finite once it is rounded (a variance of 0 without an epsilon, a factor beyond f32) the formula
// stays; where a filter's weight would not be, the convolution does.
#include <cmath>
#include <unordered_map>
#include <unordered_set>

#include "compiler/ir/image_layout.h"
#include "compiler/ir/op.h"
#include "compiler/passes/passes.h"
#include "compiler/passes/support/rewrite.h"

namespace nimble::passes {
namespace {

using ir::Atom;
using ir::Binding;
using ir::BlockBuilder;
using ir::Expr;
using ir::TensorRef;
using ir::Var;

struct Affine {
  std::vector<double> factors, offsets;  // of each channel
};

bool is_supported(DType t) {
  return t == DType::kF32 || t == DType::kF64;
}

// A value as a supported type holds it.
double rounded(DType t, double value) {
  return t == DType::kF64 ? value : static_cast<double>(static_cast<float>(value));
}
bool stays_finite(DType t, double value) {
  return std::isfinite(rounded(t, value));
}

// Nothing unless all of it is known and finite.
std::optional<Affine> affine_of(const Expr& e) {
  if (e.kind != ir::ExprKind::kCall || e.op != "batch_norm") return std::nullopt;
  for (size_t i = 1; i < e.args.size(); ++i)
    if (!e.args[i].is_constant() || !is_supported(e.args[i].constant->dtype)) return std::nullopt;
  const ir::Tensor &scale = *e.args[1].constant, &bias = *e.args[2].constant,
                   &mean = *e.args[3].constant, &variance = *e.args[4].constant;
  const double epsilon = ir::attr<double>(e.attrs, "epsilon");
  Affine a;
  for (int64_t i = 0; i < scale.elements(); ++i) {
    const double factor = scale.value(i) / std::sqrt(variance.value(i) + epsilon);
    const double offset = bias.value(i) - mean.value(i) * factor;
    if (!stays_finite(scale.dtype, factor) || !stays_finite(scale.dtype, offset))
      return std::nullopt;
    a.factors.push_back(factor);
    a.offsets.push_back(offset);
  }
  return a;
}

// Rounded to a supported type.
TensorRef constant(DType t, std::vector<int64_t> shape, const std::vector<double>& values) {
  if (t == DType::kF64) return ir::Tensor::of<double>(t, std::move(shape), values);
  return ir::Tensor::of<float>(t, std::move(shape),
                               std::vector<float>(values.begin(), values.end()));
}

bool has_constant_filters(const Expr& e) {
  for (size_t i = 1; i < e.args.size(); ++i)
    if (!e.args[i].is_constant() || !is_supported(e.args[i].constant->dtype)) return false;
  return !ir::image_layout_of(e.attrs).channels_last() && e.args[1].constant->elements() > 0;
}

// squeeze of spatial axes: a convolution over one axis is one over two (frontend).
bool drops_spatial_axes(const Expr& e) {
  const ir::OpInfo* op = ir::find_op(e.op);
  if (!op || op->traits.memory != ir::Memory::kView || op->rows() != ir::Rows::kAxes) return false;
  for (int64_t axis : ir::attr<std::vector<int64_t>>(e.attrs, "axes"))
    if (axis < 2) return false;
  return true;
}

// The convolution that makes `x`, channels on axis 1, where nobody else reads what it makes.
const Var* convolution_of(Atom x, const Definitions& definitions, const UseCounts& uses) {
  while (const Expr* e = definition(definitions, x)) {
    const auto used = uses.find(x.var.get());
    if (used == uses.end() || used->second != 1) return nullptr;
    if (e->op == "conv2d") return has_constant_filters(*e) ? x.var.get() : nullptr;
    if (!drops_spatial_axes(*e)) return nullptr;
    x = e->args[0];
  }
  return nullptr;
}

// A convolution's weights and bias.
struct Filters {
  TensorRef weights, bias;
};

// Each filter of a convolution through `a`; nothing where a finite weight or bias would become too
// large for its type.
std::optional<Filters> folded(const Expr& e, const Affine& a) {
  const ir::Tensor& weights = *e.args[1].constant;
  const auto filters = static_cast<int64_t>(a.factors.size());
  const int64_t of_each = weights.elements() / filters;
  bool fits = true;
  const auto checked = [&](double made, double from) {
    fits &= stays_finite(weights.dtype, made) || !std::isfinite(from);
    return made;
  };
  std::vector<double> scaled(static_cast<size_t>(weights.elements()));
  for (int64_t i = 0; i < weights.elements(); ++i) {
    const double w = weights.value(i);
    scaled[static_cast<size_t>(i)] = checked(w * a.factors[static_cast<size_t>(i / of_each)], w);
  }
  std::vector<double> bias = a.offsets;
  if (e.args.size() > 2)
    for (size_t i = 0; i < bias.size(); ++i) {
      const double b = e.args[2].constant->value(static_cast<int64_t>(i));
      bias[i] = checked(bias[i] + b * a.factors[i], b);
    }
  if (!fits) return std::nullopt;
  return Filters{constant(weights.dtype, weights.shape, scaled),
                 constant(weights.dtype, {filters}, bias)};
}

Atom with_filters(const Binding& b, const Filters& filters, BlockBuilder& out) {
  const Expr& e = *b.value;
  ir::VarRef y = out.call("conv2d", {e.args[0], Atom::of(filters.weights), Atom::of(filters.bias)},
                          e.attrs, b.var->name, e.location);
  y->type = b.var->type;
  return y;
}

Atom written_out(const Binding& b, const Affine& a, BlockBuilder& out) {
  const Expr& e = *b.value;
  std::vector<int64_t> shape(b.var->type->dims.size() - 1, 1);  // from the channels on
  shape[0] = static_cast<int64_t>(a.factors.size());
  const auto by = [&](const char* op, const Atom& x, const std::vector<double>& values) {
    ir::VarRef v = out.call(op, {x, Atom::of(constant(b.var->type->dtype, shape, values))}, {},
                            b.var->name, e.location);
    v->type = b.var->type;
    return Atom(v);
  };
  return by("add", by("mul", e.args[0], a.factors), a.offsets);
}

}  // namespace

ir::Module fold_batch_norm(const ir::Module& m, PassContext& context) {
  ir::Module out = m;
  for (auto& [name, f] : out.functions) {
    const Definitions definitions = definitions_of(*f);
    const UseCounts uses = count_uses(*f->body);
    std::unordered_map<const Var*, Filters> normalised;  // by convolution
    std::unordered_set<const Var*> gone;                 // normalisations of these
    visit_bindings(*f->body, [&](const Binding& b) {
      const auto affine = affine_of(*b.value);
      const Var* made = affine ? convolution_of(b.value->args[0], definitions, uses) : nullptr;
      auto filters = made ? folded(*definitions.at(made), *affine) : std::nullopt;
      if (!filters) return;
      gone.insert(b.var.get());
      normalised.emplace(made, std::move(*filters));
    });
    Rewriter rewriter([&](const Binding& b, BlockBuilder& to) -> std::optional<Atom> {
      if (const auto it = normalised.find(b.var.get()); it != normalised.end()) {
        context.count("fold-batch-norm.folded");
        return with_filters(b, it->second, to);
      }
      if (gone.contains(b.var.get())) return b.value->args[0];
      const auto affine = b.var->type ? affine_of(*b.value) : std::nullopt;
      if (!affine) return std::nullopt;
      context.count("fold-batch-norm.written-out");
      return written_out(b, *affine, to);
    });
    f = rewriter.rewrite(f);
  }
  return out;
}

}  // namespace nimble::passes
