// Finds scaled dot-product attention as exporters write it out and makes it one operator:
//
//   q' = transpose(reshape(q, (b, n, h, d)), 0 2 1 3)          scale may stand on the scores
//   k' = transpose(reshape(k, (b, m, h, d)), 0 2 3 1)          (mul or div), on q', on k', or
//   v' = transpose(reshape(v, (b, m, h, d)), 0 2 1 3)          on both, at any place
//   matmul(softmax(matmul(q', k') * scale + mask, -1), v')
//     ->  transpose(reshape(attention(q, k, v, mask) {heads = h, scale}, (b, n, h, d)), 0 2 1 3)
//
// What follows in the model is the same transposition and reshape the other way: simplify cancels
// them.
//
// What brings a matrix into that form is not looked at step by step: its elements are traced back
// to a tensor of which they are rows (b, n) and columns (h, d), next to each other. So q, k and v
// may be parts of one product (b, n, 3*h*d) that was reshaped, permuted and taken apart, as vision
// transformers do; then each is a slice of it, which the template reads in place.
//
// An operand may come in another form: in a step of a decoding loop n is 1, so that simplify has
// made reshapes of the transpositions, and k' and v' are caches (positions, b, h, d) with their
// axes permuted. Then the flat form is made, by a transposition to (b, n, h, d) and a reshape. For
// k and v this is done only where it costs no copy: heads and columns are the last axes in memory,
// and the template reads them by strides.
//
// Several tensors may be added to the scores, as by attention within windows: a bias by relative
// position and a mask. Their sum is the operator's mask. The mask of windows is added to scores
// (g, w, h, n, m) whose batch axis b was parted into images and windows of one.
//
// PyTorch's scaled_dot_product_attention is exported with a guard: rows without any unmasked key,
// whose mask is -inf throughout, give softmax NaN and where(isnan(p), 0, p) makes them 0. The
// operator gets a finite mask instead, and such rows are set to 0 behind it.
//
// Whatever else used the intermediates keeps them; eliminate-dead sweeps the rest.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string_view>
#include <utility>

#include "compiler/ir/axes.h"
#include "compiler/ir/op.h"
#include "compiler/passes/passes.h"
#include "compiler/passes/support/rewrite.h"
#include "compiler/passes/support/strided_view.h"

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
  const Expr* call(const Atom& a) const { return definition(d_, a); }
  Atom strip_scale(const Atom& a, double* scale) const { return strip_factors(d_, a, scale); }
  std::vector<StridedView> views(const Atom& a) const { return views_of(d_, a); }

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

// The view, whose axes b, n, h and d are `axes`, as (b, n, h*d): a tensor or a slice of one.
std::optional<Heads> rows_of(const StridedView& v, const Axes& axes, ir::BlockBuilder& out,
                             const ir::Location& at) {
  if (v.axes.size() != 4) return std::nullopt;
  std::array<StridedView::Step, 4> step;  // of b, n, h and d
  for (size_t i = 0; i < 4; ++i) {
    const auto axis = v.axis(static_cast<size_t>(axes[i]));
    if (!axis) return std::nullopt;
    step[i] = *axis;
  }
  const Dim b = step[0].extent, n = step[1].extent, h = step[2].extent, d = step[3].extent;
  const Dim width = h * d;
  const auto heads = h.as_constant();
  if (!heads || !(d.is_constant(1) || step[3].stride.is_constant(1)) ||
      !(*heads == 1 || step[2].stride == d))
    return std::nullopt;
  const Type source = ir::type_of(v.source);
  const Dim elements = ir::element_count(source);
  const bool several_rows = !n.is_constant(1), several = !b.is_constant(1);
  Dim row = several_rows ? step[1].stride : several ? step[0].stride : elements;
  const bool swapped = several_rows && several && !(step[0].stride == n * row);
  if (swapped) row = step[0].stride;
  if ((swapped && !(step[1].stride == b * row)) || !(b * n * row == elements)) return std::nullopt;
  std::vector<Dim> dims = {b, n, row};
  if (swapped) std::swap(dims[0], dims[1]);
  // Of a cache (n, b, h, d) is_strided decides.
  if (swapped && source->dims != dims) return std::nullopt;
  const auto first = v.offset.as_constant(), columns = width.as_constant(), all = row.as_constant();
  const bool whole = first == 0 && row == width;
  if (!whole && (!first || !columns || !all || *first + *columns > *all)) return std::nullopt;

  Atom x = v.source;
  if (source->dims != dims)
    x = emit(out, "reshape", {x}, {{"shape", dims}, {"allow_zero", true}},
             ir::tensor_type(dims, source->dtype), "rows", at);
  if (swapped) {
    std::swap(dims[0], dims[1]);
    x = emit(out, "transpose", {x}, {{"axes", Axes{1, 0, 2}}}, ir::tensor_type(dims, source->dtype),
             "rows", at);
  }
  if (!whole) {
    dims[2] = width;
    x = emit(out, "slice", {x},
             {{"axes", Axes{2}},
              {"starts", std::vector<Dim>{*first}},
              {"ends", std::vector<Dim>{*first + *columns}},
              {"steps", std::vector<Dim>{1}}},
             ir::tensor_type(dims, source->dtype), "columns", at);
  }
  return Heads{x, *heads};
}

// `a` in flat form without a copy, from as far back as there is one. Factors go to `scale`; none
// is taken off where that is null.
std::optional<Heads> split(const Matcher& match, const Atom& a, const Axes& axes, double* scale,
                           ir::BlockBuilder& out, const ir::Location& at) {
  const std::vector<StridedView> views = match.views(a);
  for (auto v = views.rbegin(); v != views.rend(); ++v) {
    if (!scale && v->scale != 1) continue;
    auto heads = rows_of(*v, axes, out, at);
    if (!heads) continue;
    if (scale) *scale *= v->scale;
    return heads;
  }
  return std::nullopt;
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
  const Axes& of_keys = transposed ? forward : backward;
  const ir::Location& at = context.location;
  Parts p;
  p.scale = scale;
  p.k = split(match, product.args[1], of_keys, &p.scale, out, at);
  if (!p.k) {
    const Atom bare = match.strip_scale(product.args[1], &p.scale);
    if (match.is_strided(bare, of_keys)) p.k = flatten(bare, of_keys, out, at);
  }
  if (!p.k) return p;
  p.v = split(match, context.args[1], forward, nullptr, out, at);
  if (!p.v && match.is_strided(context.args[1], forward))
    p.v = flatten(context.args[1], forward, out, at);
  if (!p.v) return p;
  p.q = split(match, product.args[0], forward, &p.scale, out, at);
  if (!p.q) p.q = flatten(match.strip_scale(product.args[0], &p.scale), forward, out, at);
  return p;
}

// What the softmax is of: product * scale + added[0] + added[1] …
struct Scores {
  const Expr* product = nullptr;
  double scale = 1;
  struct Addend {
    Atom value;
    std::vector<Dim> dims;  // of the sum
  };
  std::vector<Addend> added;
};

// Finds the scores (b, h, n, m) in `a`, which has these dims or (g, w, h, n, m) with g * w = b.
// `depth`: so many operators at most are looked through, since of a sum either side may lead there.
bool find_scores(const Matcher& match, const Atom& a, const std::vector<Dim>& dims, int depth,
                 Scores* found) {
  const Type t = ir::type_of(a);
  if (!t || t->kind != ir::TypeKind::kTensor) return false;
  const bool parted = t->dims.size() == 5 && t->dims[0] * t->dims[1] == dims[0] &&
                      std::equal(dims.begin() + 1, dims.end(), t->dims.begin() + 2);
  if (!parted && t->dims != dims) return false;
  double scale = 1;
  const Atom bare = match.strip_scale(a, &scale);
  if (const Expr* product = match.op(bare, "matmul")) {
    const Type made = ir::type_of(bare);
    if (parted || !made || made->dims != dims) return false;
    found->product = product;
    found->scale = scale;
    return true;
  }
  const Expr* e = match.call(a);
  if (!e || depth == 0) return false;
  if (ir::traits_of(*e).memory == ir::Memory::kView)
    return find_scores(match, e->args[0], dims, depth - 1, found);
  if (!match.op(a, "add")) return false;
  for (const size_t side : {size_t{0}, size_t{1}}) {
    if (!find_scores(match, e->args[side], dims, depth - 1, found)) continue;
    found->added.push_back({e->args[1 - side], t->dims});
    return true;
  }
  return false;
}

// What is added to parted scores (g, w, h, n, m) as what is added to (g*w, h, n, m).
std::optional<Atom> join_batch(const Scores::Addend& a, ir::BlockBuilder& out,
                               const ir::Location& at) {
  const Type t = ir::type_of(a.value);
  if (!t || t->kind != ir::TypeKind::kTensor) return std::nullopt;
  if (a.dims.size() == 4 || t->dims.size() < 4) return a.value;
  std::vector<Dim> parted = t->dims;
  if (parted.size() == 4) parted.insert(parted.begin(), 1);
  Atom x = a.value;
  const auto shaped = [&](const char* op, const std::vector<Dim>& dims, ir::Attrs attrs) {
    attrs["shape"] = dims;
    x = emit(out, op, {x}, std::move(attrs), ir::tensor_type(dims, t->dtype), "mask", at);
  };
  const bool shared = parted[0].is_constant(1) && parted[1].is_constant(1);
  if (!shared && !(parted[0] == a.dims[0] && parted[1] == a.dims[1])) {
    parted[0] = a.dims[0];
    parted[1] = a.dims[1];
    shaped("expand", parted, {});
  }
  shaped("reshape", {parted[0] * parted[1], parted[2], parted[3], parted[4]},
         {{"allow_zero", true}});
  return x;
}

// The sum of two addends of the scores, each broadcastable to these.
std::optional<Atom> sum_of(const Atom& a, const Atom& b, ir::BlockBuilder& out,
                           const ir::Location& at) {
  const Type x = ir::type_of(a), y = ir::type_of(b);
  if (!x || !y || x->dtype != y->dtype) return std::nullopt;
  const size_t rank = std::max(x->dims.size(), y->dims.size());
  const auto extent = [&](const Type& t, size_t i) {
    return i + t->dims.size() < rank ? Dim(1) : t->dims[i + t->dims.size() - rank];
  };
  std::vector<Dim> dims;
  for (size_t i = 0; i < rank; ++i) {
    const Dim left = extent(x, i), right = extent(y, i);
    if (!(left == right) && !left.is_constant(1) && !right.is_constant(1)) return std::nullopt;
    dims.push_back(left.is_constant(1) ? right : left);
  }
  return Atom(emit(out, "add", {a, b}, {}, ir::tensor_type(dims, x->dtype), "mask", at));
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
  const Type rows = ir::type_of(softmax->args[0]);
  if (ir::axis_of(*softmax) != 3 || !rows || rows->dims.size() != 4) return std::nullopt;

  constexpr int kDepth = 4;  // a bias, then a mask between two reshapes
  Scores scores;
  if (!find_scores(match, softmax->args[0], rows->dims, kDepth, &scores)) return std::nullopt;
  // The operator has one element type for everything.
  const Expr* product = scores.product;
  if (ir::attr_or(product->attrs, "transpose_a", false) || product->attrs.contains("out"))
    return std::nullopt;
  const Parts parts = parts_of(match, *product, context, scores.scale, out);
  if (!parts.complete() || !std::isfinite(parts.scale)) return std::nullopt;
  const Type flat = ir::type_of(parts.q->flat);
  const int64_t heads = parts.q->heads;
  const auto width = ir::type_of(parts.v->flat)->dims[2];
  const std::vector<Dim> apart = {made->dims[0], made->dims[2], made->dims[1], made->dims[3]};
  // Broadcast batch axes have no flat form.
  if (!(apart[0] == flat->dims[0]) || !(apart[1] == flat->dims[1]) ||
      !(ir::type_of(parts.k->flat)->dims[0] == apart[0]) ||
      !(ir::type_of(parts.v->flat)->dims[0] == apart[0]) || !(apart[2] * apart[3] == width))
    return std::nullopt;

  std::optional<Atom> mask;
  for (const Scores::Addend& a : scores.added) {
    const auto whole = join_batch(a, out, context.location);
    if (!whole) return std::nullopt;
    mask = mask ? sum_of(*mask, *whole, out, context.location) : whole;
    if (!mask) return std::nullopt;
  }
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
      // Operands may have been replaced: what reads them later sees them as they are now.
      definitions[b.var.get()] = b.value.get();
      auto atom = rewrite(matcher, b, o);
      if (atom) context.count("fuse-attention.found");
      return atom;
    });
    f = rewriter.rewrite(f);
  }
  return out;
}

}  // namespace nimble::passes
