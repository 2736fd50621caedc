#include "compiler/passes/support/cell_steps.h"

namespace nimble::passes {

using ir::Atom;
using ir::Dim;
using ir::Expr;

namespace {

constexpr size_t kSides[] = {0, 1};

bool is_matrix(const ir::Type& t) {
  return t && t->kind == ir::TypeKind::kTensor && t->dims.size() == 2;
}

// h' as a blend of the old state and the candidate n, by the update gate z.
struct Blend {
  Atom h, n, z;
};

class GruMatcher {
 public:
  GruMatcher(const Definitions& d, const ir::Type& type, int64_t width)
      : d_(d), type_(type), width_(width) {}

  std::optional<GruStep> match(const Expr& e) const {
    const auto blend = match_blend(e);
    if (!blend || !is_state(blend->h) || !is_state(blend->n) || !is_state(blend->z))
      return std::nullopt;
    const Expr* candidate = definition(d_, blend->n, "tanh");
    const Expr* sum = candidate ? definition(d_, candidate->args[0], "add") : nullptr;
    if (!sum || !is_state(sum->args[0]) || !is_state(sum->args[1])) return std::nullopt;
    for (const size_t side : kSides) {
      const Columns x = columns_of(d_, sum->args[side]);
      if (x.first != 2 * width_ || !is_wide(x.of, 3 * width_)) continue;
      const Atom& recurrent = sum->args[1 - side];
      if (auto step = match_linear(*blend, x.of, recurrent)) return step;
      if (auto step = match_reset_first(*blend, x.of, recurrent)) return step;
    }
    return std::nullopt;
  }

 private:
  bool is_wide(const Atom& a, int64_t columns) const {
    const ir::Type t = ir::type_of(a);
    return t && ir::equal(t, ir::tensor_type({type_->dims[0], Dim(columns)}, type_->dtype));
  }
  bool is_state(const Atom& a) const { return is_wide(a, width_); }

  // (1 - z) * n + z * h, or n + z * (h - n).
  std::optional<Blend> match_blend(const Expr& add) const {
    if (add.op != "add") return std::nullopt;
    for (const size_t side : kSides) {
      const Atom &first = add.args[side], &second = add.args[1 - side];
      const Expr* keep = definition(d_, second, "mul");
      if (!keep) continue;
      for (const size_t k : kSides) {
        const Expr* change = definition(d_, keep->args[k], "sub");
        if (change && same_variable(change->args[1], first))
          return Blend{change->args[0], first, keep->args[1 - k]};
      }
      const Expr* enter = definition(d_, first, "mul");
      if (!enter) continue;
      for (const size_t k : kSides) {
        const Expr* rest = definition(d_, enter->args[k], "sub");
        if (!rest || constant_value(rest->args[0]) != 1.0) continue;
        for (const size_t j : kSides)
          if (same_variable(rest->args[1], keep->args[j]))
            return Blend{keep->args[1 - j], enter->args[1 - k], keep->args[j]};
      }
    }
    return std::nullopt;
  }

  // n = tanh(x_n + r * (product of h)_n)
  std::optional<GruStep> match_linear(const Blend& blend, const Atom& x,
                                      const Atom& recurrent) const {
    const Expr* gated = definition(d_, recurrent, "mul");
    if (!gated) return std::nullopt;
    for (const size_t k : kSides) {
      const Columns part = columns_of(d_, gated->args[1 - k]);
      if (part.first != 2 * width_ || !is_wide(part.of, 3 * width_)) continue;
      auto product = match_product(d_, part.of, 3 * width_, true);
      if (product && same_variable(product->state, blend.h) &&
          is_gate(gated->args[k], 0, x, part.of) && is_gate(blend.z, 1, x, part.of))
        return GruStep{x, blend.h, {*product}};
    }
    return std::nullopt;
  }

  // n = tanh(x_n + product of r * h)
  std::optional<GruStep> match_reset_first(const Blend& blend, const Atom& x,
                                           const Atom& recurrent) const {
    auto last = match_product(d_, recurrent, width_, true);
    const Expr* reset = last ? definition(d_, last->state, "mul") : nullptr;
    if (!reset || !last->weights.is_constant()) return std::nullopt;
    for (const size_t k : kSides) {
      if (!same_variable(reset->args[1 - k], blend.h)) continue;
      const auto part = recurrent_part(reset->args[k], 0, x);
      if (!part || part->first != 0 || !is_wide(part->of, 2 * width_)) continue;
      auto product = match_product(d_, part->of, 2 * width_, true);
      if (product && product->weights.is_constant() && same_variable(product->state, blend.h) &&
          is_gate(blend.z, 1, x, part->of))
        return GruStep{x, blend.h, {*product, *last}};
    }
    return std::nullopt;
  }

  // What is added to the input's part of gate number `gate`, of which `a` is the sigmoid.
  std::optional<Columns> recurrent_part(const Atom& a, int64_t gate, const Atom& x) const {
    if (!is_state(a)) return std::nullopt;
    const Columns active = columns_of(d_, a);
    const Expr* sigmoid = definition(d_, active.of, "sigmoid");
    if (!sigmoid) return std::nullopt;
    const Columns gates = columns_of(d_, sigmoid->args[0], active.first);
    const Expr* sum = definition(d_, gates.of, "add");
    if (!sum || !ir::equal(ir::type_of(sum->args[0]), ir::type_of(sum->args[1])))
      return std::nullopt;
    for (const size_t side : kSides) {
      const Columns input = columns_of(d_, sum->args[side], gates.first);
      if (same_variable(input.of, x) && input.first == gate * width_)
        return columns_of(d_, sum->args[1 - side], gates.first);
    }
    return std::nullopt;
  }

  // Whether `a` is gate number `gate` of the sum of x and `products`.
  bool is_gate(const Atom& a, int64_t gate, const Atom& x, const Atom& products) const {
    const auto part = recurrent_part(a, gate, x);
    return part && same_variable(part->of, products) && part->first == gate * width_;
  }

  const Definitions& d_;
  const ir::Type& type_;
  int64_t width_;
};

}  // namespace

bool same_variable(const Atom& a, const Atom& b) {
  return a.is_var() && b.is_var() && a.var == b.var;
}

Columns columns_of(const Definitions& d, Atom a, int64_t first) {
  while (const Expr* s = definition(d, a, "slice")) {
    const auto& axes = ir::attr<std::vector<int64_t>>(s->attrs, "axes");
    const auto starts = ir::attr_or<std::vector<Dim>>(s->attrs, "starts", {});
    const ir::Type whole = ir::type_of(s->args[0]);
    if (!is_matrix(whole) || axes.size() != 1 || (axes[0] != 1 && axes[0] != -1) ||
        starts.size() != 1 || !starts[0].as_constant() || *starts[0].as_constant() < 0)
      break;
    bool strided = false;
    for (const Dim& step : ir::attr_or<std::vector<Dim>>(s->attrs, "steps", {}))
      strided |= !step.is_constant(1);
    if (strided || s->args.size() != 1) break;
    first += *starts[0].as_constant();
    a = s->args[0];
  }
  return {a, first};
}

std::optional<RecurrentProduct> match_product(const Definitions& d, const Atom& a, int64_t columns,
                                              bool with_bias) {
  const ir::Type result = ir::type_of(a);
  if (!is_matrix(result) || !result->dims[1].is_constant(columns)) return std::nullopt;
  RecurrentProduct p;
  p.columns = columns;
  const Expr* e = definition(d, a);
  if (with_bias && e && e->op == "add") {
    const Expr* product = nullptr;
    for (const size_t side : kSides) {
      const ir::Type bias = ir::type_of(e->args[side]);
      if (!bias || bias->kind != ir::TypeKind::kTensor || bias->dims.size() != 1 ||
          !bias->dims[0].is_constant(columns))
        continue;
      p.bias = e->args[side];
      product = definition(d, e->args[1 - side]);
      if (!ir::equal(ir::type_of(e->args[1 - side]), result)) return std::nullopt;
      break;
    }
    e = product;
  }
  if (!e || e->op != "matmul" || ir::attr_or(e->attrs, "transpose_a", false)) return std::nullopt;
  if (!is_matrix(ir::type_of(e->args[0])) || !is_matrix(ir::type_of(e->args[1])))
    return std::nullopt;
  p.state = e->args[0];
  p.weights = e->args[1];
  p.transposed = ir::attr_or(e->attrs, "transpose_b", false);
  return p;
}

std::optional<GruStep> match_gru(const Definitions& d, const Expr& e, const ir::Type& type) {
  if (!is_matrix(type) || !is_float(type->dtype)) return std::nullopt;
  const auto width = type->dims[1].as_constant();
  if (!width || *width < 1) return std::nullopt;
  return GruMatcher(d, type, *width).match(e);
}

}  // namespace nimble::passes
