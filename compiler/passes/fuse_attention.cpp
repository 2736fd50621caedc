// Finds scaled dot-product attention as exporters write it out and makes it one operator:
//
//   q' = transpose(reshape(q, (b, n, h, d)), 0 2 1 3)          scale may stand on the scores
//   k' = transpose(reshape(k, (b, m, h, d)), 0 2 3 1)          (mul or div), on q', on k', or
//   v' = transpose(reshape(v, (b, m, h, d)), 0 2 1 3)          on both
//   matmul(softmax(matmul(q', k') * scale + mask, -1), v')
//     ->  transpose(reshape(attention(q, k, v, mask) {heads = h, scale}, (b, n, h, d)), 0 2 1 3)
//
// What follows in the model is the same transposition and reshape the other way: simplify cancels
// them.
//
// An operand may come in another form: in a step of a decoding loop n is 1, so that simplify has
// made reshapes of the transpositions, and k' and v' are caches (positions, b, h, d) with their
// axes permuted. Then the flat form is made, by a transposition to (b, n, h, d) and a reshape. For
// k and v this is done only where it costs no copy: heads and columns are the last axes in memory,
// and the template reads them by strides.
//
// PyTorch's scaled_dot_product_attention is exported with a guard: rows without any unmasked key,
// whose mask is -inf throughout, give softmax NaN and where(isnan(p), 0, p) makes them 0. The
// operator gets a finite mask instead, and such rows are set to 0 behind it.
//
// Whatever else used the intermediates keeps them; eliminate-dead sweeps the rest.
#include <limits>

#include "compiler/ir/axes.h"
#include "compiler/passes/passes.h"
#include "compiler/passes/support/rewrite.h"

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

  // Whether heads and columns of `a` are the last axes in memory of what it permutes. `axes` are
  // those of b, n, h and d in `a`.
  bool is_strided(const Atom& a, const Axes& axes) const {
    const Expr* transpose = op(a, "transpose");
    if (!transpose) return false;
    const auto& from = ir::attr<Axes>(transpose->attrs, "axes");
    return from.size() == 4 && from[static_cast<size_t>(axes[2])] == 2 &&
           from[static_cast<size_t>(axes[3])] == 3;
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

// `x`, whose axes are b, h, n, d in the order of `axes`, as (b, n, h*d).
std::optional<Heads> flatten(const Atom& x, const Axes& axes, ir::BlockBuilder& out,
                             const ir::Location& at) {
  const Type t = ir::type_of(x);
  if (!t || t->dims.size() != 4) return std::nullopt;
  std::vector<Dim> apart;
  for (int64_t axis : axes) apart.push_back(t->dims[static_cast<size_t>(axis)]);
  const auto heads = apart[2].as_constant();
  if (!heads || !apart[3].as_constant()) return std::nullopt;
  const ir::VarRef split =
      emit(out, "transpose", {x}, {{"axes", axes}}, ir::tensor_type(apart, t->dtype), "apart", at);
  const std::vector<Dim> flat = {apart[0], apart[1], apart[2] * apart[3]};
  return Heads{emit(out, "reshape", {split}, {{"shape", flat}, {"allow_zero", true}},
                    ir::tensor_type(flat, t->dtype), "flat", at),
               *heads};
}

struct Parts {
  std::optional<Heads> q, k, v;
  double scale = 1;
  bool complete() const { return q && k && v && q->heads == k->heads && q->heads == v->heads; }
};

// The operands of matmul(softmax(matmul(q', k')), v') in flat form. What a caller that finds them
// incomplete has in `out` by then is dead.
Parts parts_of(const Matcher& match, const Expr& product, const Expr& context, double scale,
               ir::BlockBuilder& out) {
  const bool transposed = ir::attr_or(product.attrs, "transpose_b", false);
  const Axes forward = {0, 2, 1, 3}, backward = {0, 3, 1, 2};
  Parts p;
  double unit = 1;
  p.scale = scale;
  p.q = match.split(product.args[0], forward, &p.scale);
  p.k = transposed ? match.split(product.args[1], forward, &p.scale)
                   : match.split_transposed(product.args[1], &p.scale);
  p.v = match.split(context.args[1], forward, &unit);
  if (unit != 1) return {};
  const ir::Location& at = context.location;
  if (!p.k) {
    const Atom bare = match.strip_scale(product.args[1], &p.scale);
    const Axes& axes = transposed ? forward : backward;
    if (match.is_strided(bare, axes)) p.k = flatten(bare, axes, out, at);
  }
  if (!p.v && match.is_strided(context.args[1], forward))
    p.v = flatten(context.args[1], forward, out, at);
  if (!p.q && p.k && p.v)
    p.q = flatten(match.strip_scale(product.args[0], &p.scale), forward, out, at);
  return p;
}

std::optional<Atom> rewrite(const Matcher& match, const ir::Binding& b, ir::BlockBuilder& out) {
  const Expr& context = *b.value;
  const Type& made = b.var->type;
  if (context.op != "matmul" || !made || made->dims.size() != 4 ||
      ir::attr_or(context.attrs, "transpose_a", false) ||
      ir::attr_or(context.attrs, "transpose_b", false) || context.attrs.contains("out"))
    return std::nullopt;
  const std::optional<Atom> guarded = match.strip_guard(context.args[0]);
  const Expr* softmax = match.op(guarded.value_or(context.args[0]), "softmax");
  if (!softmax) return std::nullopt;
  if (ir::axis_of(*softmax) != 3) return std::nullopt;

  double scale = 1;
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
  // The operator has one element type for everything.
  if (ir::attr_or(product->attrs, "transpose_a", false) || product->attrs.contains("out"))
    return std::nullopt;
  const Parts parts = parts_of(match, *product, context, scale, out);
  if (!parts.complete()) return std::nullopt;
  const Type flat = ir::type_of(parts.q->flat);
  const int64_t heads = parts.q->heads;
  const auto width = ir::type_of(parts.v->flat)->dims[2];
  const std::vector<Dim> apart = {made->dims[0], made->dims[2], made->dims[1], made->dims[3]};
  // Broadcast batch axes have no flat form.
  if (!(apart[0] == flat->dims[0]) || !(apart[1] == flat->dims[1]) ||
      !(ir::type_of(parts.k->flat)->dims[0] == apart[0]) ||
      !(ir::type_of(parts.v->flat)->dims[0] == apart[0]) || !(apart[2] * apart[3] == width))
    return std::nullopt;

  std::optional<Atom> present;
  if (guarded && mask) {
    present = rows_present(*mask, out, context.location);
    if (!present) return std::nullopt;
    constexpr float kMasked = -1e30f;  // its exponential is 0, a sum with it finite
    mask = emit(out, "maximum", {*mask, Atom::of(ir::Tensor::scalar_f32(kMasked))}, {},
                ir::type_of(*mask), "mask", context.location);
  }
  std::vector<Atom> args = {parts.q->flat, parts.k->flat, parts.v->flat};
  if (mask) args.push_back(*mask);
  const Type type = ir::tensor_type({apart[0], apart[1], width}, made->dtype);
  ir::VarRef y = emit(out, "attention", std::move(args), {{"heads", heads}, {"scale", parts.scale}},
                      type, "attention", context.location);
  if (present)
    y = emit(out, "where", {*present, y, Atom::of(ir::Tensor::scalar_f32(0))}, {}, type,
             "attention", context.location);
  y = emit(out, "reshape", {y}, {{"shape", apart}, {"allow_zero", true}},
           ir::tensor_type(apart, made->dtype), "apart", context.location);
  return Atom(emit(out, "transpose", {y}, {{"axes", Axes{0, 2, 1, 3}}}, made, "attention",
                   context.location));
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
