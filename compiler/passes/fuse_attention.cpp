// Finds scaled dot-product attention as exporters write it out and makes it one operator:
//
//   q' = transpose(reshape(q, (b, n, h, d)), 0 2 1 3)          scale may stand on the scores
//   k' = transpose(reshape(k, (b, m, h, d)), 0 2 3 1)          (mul or div), on q', on k', or
//   v' = transpose(reshape(v, (b, m, h, d)), 0 2 1 3)          on both
//   softmax(matmul(q', k') * scale + mask, -1)
//   reshape(transpose(matmul(…, v'), 0 2 1 3), (b, n, h*d))
//     ->  attention(q, k, v, mask) {heads = h, scale}
//
// PyTorch's scaled_dot_product_attention is exported with a guard: rows without any unmasked key,
// whose mask is -inf throughout, give softmax NaN and where(isnan(p), 0, p) makes them 0. The
// operator gets a finite mask instead, and such rows are set to 0 behind it.
//
// Only the last reshape is rewritten; whatever else used the intermediates keeps them, and
// eliminate-dead sweeps the rest.
#include <limits>

#include "compiler/passes/passes.h"
#include "compiler/passes/rewrite.h"

namespace nimble::passes {
namespace {

using ir::Atom;
using ir::Dim;
using ir::Expr;
using ir::Type;

using Axes = std::vector<int64_t>;

struct Heads {
  Atom flat;  // (b, n, h*d)
  int64_t heads = 0;
};

class Matcher {
 public:
  explicit Matcher(const Definitions& d) : d_(d) {}

  const Expr* op(const Atom& a, std::string_view name) const { return definition(d_, a, name); }

  // Takes factors off: x * c and x / c for one-element constants, repeatedly.
  Atom strip_scale(Atom a, double* scale) const {
    while (true) {
      if (const Expr* mul = op(a, "mul")) {
        if (auto c = constant_value(mul->args[1])) {
          *scale *= *c;
          a = mul->args[0];
          continue;
        }
        if (auto c = constant_value(mul->args[0])) {
          *scale *= *c;
          a = mul->args[1];
          continue;
        }
      } else if (const Expr* div = op(a, "div")) {
        if (auto c = constant_value(div->args[1])) {
          *scale /= *c;
          a = div->args[0];
          continue;
        }
      }
      return a;
    }
  }

  // transpose(reshape(x, (b, n, h, d)), axes), factors between taken off. `scale` changes only if
  // the form matches: callers try several.
  std::optional<Heads> split(const Atom& a, const Axes& axes, double* scale) const {
    double factor = *scale;
    const Expr* transpose = op(strip_scale(a, &factor), "transpose");
    if (!transpose || ir::attr<Axes>(transpose->attrs, "axes") != axes) return std::nullopt;
    Atom inner = strip_scale(transpose->args[0], &factor);
    const Expr* reshape = op(inner, "reshape");
    if (!reshape) return std::nullopt;
    Type whole = ir::type_of(reshape->args[0]), parts = ir::type_of(inner);
    if (!whole || whole->dims.size() != 3 || parts->dims.size() != 4) return std::nullopt;
    auto heads = parts->dims[2].as_constant();
    if (!heads || !(whole->dims[0] == parts->dims[0]) || !(whole->dims[1] == parts->dims[1]))
      return std::nullopt;
    *scale = factor;
    return Heads{reshape->args[0], *heads};
  }

  // p of where(p != p, 0, p).
  std::optional<Atom> strip_guard(const Atom& a) const {
    const Expr* where = op(a, "where");
    if (!where || constant_value(where->args[1]) != 0.0) return std::nullopt;
    const Atom& p = where->args[2];
    const Expr* is_nan = op(where->args[0], "not_equal");
    if (!is_nan || !p.is_var()) return std::nullopt;
    for (const Atom& side : is_nan->args)
      if (!side.is_var() || side.var != p.var) return std::nullopt;
    return p;
  }

  // y of a transpose of y's last two axes that goes through (b*h, m, d) and back.
  std::optional<Atom> merged_transpose(const Atom& a) const {
    const Expr* apart = op(a, "reshape");
    const Expr* transpose = apart ? op(apart->args[0], "transpose") : nullptr;
    if (!transpose || ir::attr<Axes>(transpose->attrs, "axes") != Axes{0, 2, 1})
      return std::nullopt;
    const Expr* merge = op(transpose->args[0], "reshape");
    if (!merge) return std::nullopt;
    const Type y = ir::type_of(merge->args[0]), merged = ir::type_of(transpose->args[0]);
    const Type result = ir::type_of(a);
    if (!y || !merged || !result || y->dims.size() != 4) return std::nullopt;
    const std::vector<Dim>& d = y->dims;
    if (merged->dims != std::vector<Dim>{d[0] * d[1], d[2], d[3]} ||
        result->dims != std::vector<Dim>{d[0], d[1], d[3], d[2]})
      return std::nullopt;
    return merge->args[0];
  }

  // k' = split(k, 0 2 3 1), or a transpose of split(k, 0 2 1 3).
  std::optional<Heads> split_transposed(const Atom& a, double* scale) const {
    if (auto direct = split(a, {0, 2, 3, 1}, scale)) return direct;
    double factor = *scale;
    const Atom bare = strip_scale(a, &factor);
    std::optional<Atom> y = merged_transpose(bare);
    if (const Expr* transpose = op(bare, "transpose");
        transpose && ir::attr<Axes>(transpose->attrs, "axes") == Axes{0, 1, 3, 2})
      y = transpose->args[0];
    auto heads = y ? split(*y, {0, 2, 1, 3}, &factor) : std::nullopt;
    if (heads) *scale = factor;
    return heads;
  }

 private:
  const Definitions& d_;
};

ir::VarRef emit(ir::BlockBuilder& out, const char* op, std::vector<Atom> args, ir::Attrs attrs,
                Type type, const char* hint, const ir::Location& at) {
  ir::VarRef v = out.call(op, std::move(args), std::move(attrs), hint, at);
  v->type = std::move(type);
  return v;
}

// Whether a row has an unmasked key, (b, n, 1), from a mask (b, 1, n, m); nothing for other forms.
std::optional<Atom> rows_present(const Atom& mask, ir::BlockBuilder& out, const ir::Location& at) {
  const Type t = ir::type_of(mask);
  if (!t || t->dims.size() != 4 || !t->dims[1].is_constant(1) || t->dtype != DType::kF32)
    return std::nullopt;
  const ir::Dim b = t->dims[0], n = t->dims[2];
  ir::VarRef most = emit(out, "reduce_max", {mask}, {{"axes", Axes{3}}, {"keepdims", true}},
                         ir::tensor_type({b, 1, n, 1}, t->dtype), "most", at);
  most = emit(out, "squeeze", {most}, {{"axes", Axes{1}}}, ir::tensor_type({b, n, 1}, t->dtype),
              "most", at);
  Atom nothing = Atom::of(ir::Tensor::scalar_f32(-std::numeric_limits<float>::infinity()));
  return emit(out, "greater", {most, nothing}, {}, ir::tensor_type({b, n, 1}, DType::kBool),
              "present", at);
}

std::optional<Atom> rewrite(const Matcher& match, const ir::Binding& b, ir::BlockBuilder& out) {
  const Expr& e = *b.value;
  if (e.op != "reshape") return std::nullopt;
  const Expr* back = match.op(e.args[0], "transpose");
  if (!back || ir::attr<Axes>(back->attrs, "axes") != Axes{0, 2, 1, 3}) return std::nullopt;
  const Expr* context = match.op(back->args[0], "matmul");
  if (!context || ir::attr_or(context->attrs, "transpose_a", false) ||
      ir::attr_or(context->attrs, "transpose_b", false))
    return std::nullopt;
  const std::optional<Atom> guarded = match.strip_guard(context->args[0]);
  const Expr* softmax = match.op(guarded.value_or(context->args[0]), "softmax");
  if (!softmax) return std::nullopt;
  auto axis = ir::attr<int64_t>(softmax->attrs, "axis");
  if (axis != -1 && axis != 3) return std::nullopt;

  double scale = 1, unit = 1;
  Atom scores = softmax->args[0];
  std::optional<Atom> mask;
  const Expr* product = match.op(match.strip_scale(scores, &scale), "matmul");
  if (!product) {
    const Expr* add = match.op(scores, "add");
    if (!add) return std::nullopt;
    for (size_t side : {size_t{0}, size_t{1}}) {
      scale = 1;
      product = match.op(match.strip_scale(add->args[side], &scale), "matmul");
      if (!product) continue;
      mask = add->args[1 - side];
      break;
    }
    if (!product) return std::nullopt;
  }
  if (ir::attr_or(product->attrs, "transpose_a", false)) return std::nullopt;
  auto q = match.split(product->args[0], {0, 2, 1, 3}, &scale);
  auto k = ir::attr_or(product->attrs, "transpose_b", false)
               ? match.split(product->args[1], {0, 2, 1, 3}, &scale)
               : match.split_transposed(product->args[1], &scale);
  auto v = match.split(context->args[1], {0, 2, 1, 3}, &unit);
  if (!q || !k || !v || unit != 1 || q->heads != k->heads || q->heads != v->heads)
    return std::nullopt;
  // The result must be q's shape again (or another view of it).
  const Type flat = ir::type_of(q->flat);
  const Type made = b.var->type;
  if (!made || made->dims.size() != 3 || !(made->dims == flat->dims)) return std::nullopt;

  std::optional<Atom> present;
  if (guarded && mask) {
    present = rows_present(*mask, out, e.location);
    if (!present) return std::nullopt;
    constexpr float kMasked = -1e30f;  // its exponential is 0, a sum with it finite
    mask = emit(out, "maximum", {*mask, Atom::of(ir::Tensor::scalar_f32(kMasked))}, {},
                ir::type_of(*mask), "mask", e.location);
  }
  std::vector<Atom> args = {q->flat, k->flat, v->flat};
  if (mask) args.push_back(*mask);
  ir::VarRef y = emit(out, "attention", std::move(args), {{"heads", q->heads}, {"scale", scale}},
                      made, "attention", e.location);
  if (present)
    y = emit(out, "where", {*present, y, Atom::of(ir::Tensor::scalar_f32(0))}, {}, made,
             "attention", e.location);
  return Atom(y);
}

}  // namespace

ir::Module fuse_attention(const ir::Module& m, PassContext& context) {
  ir::Module out = m;
  for (auto& [name, f] : out.functions) {
    Definitions definitions = definitions_of(*f);
    Matcher matcher(definitions);
    Rewriter rewriter([&](const ir::Binding& b, ir::BlockBuilder& o) -> std::optional<Atom> {
      auto atom = rewrite(matcher, b, o);
      if (atom) context.count("fuse-attention.found");
      return atom;
    });
    f = rewriter.rewrite(f);
  }
  return out;
}

}  // namespace nimble::passes
