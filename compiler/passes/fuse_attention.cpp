// Finds scaled dot-product attention as exporters write it out and makes it one operator:
//
//   q' = transpose(reshape(q, (b, n, h, d)), 0 2 1 3)          scale may stand on the scores
//   k' = transpose(reshape(k, (b, m, h, d)), 0 2 3 1)          (mul or div), on q', on k', or
//   v' = transpose(reshape(v, (b, m, h, d)), 0 2 1 3)          on both
//   softmax(matmul(q', k') * scale + mask, -1)
//   reshape(transpose(matmul(…, v'), 0 2 1 3), (b, n, h*d))
//     ->  attention(q, k, v, mask) {heads = h, scale}
//
// Only the last reshape is rewritten; whatever else used the intermediates keeps them, and
// eliminate-dead sweeps the rest.
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

  // transpose(reshape(x, (b, n, h, d)), axes), factors between taken off.
  std::optional<Heads> split(const Atom& a, const Axes& axes, double* scale) const {
    const Expr* transpose = op(strip_scale(a, scale), "transpose");
    if (!transpose || ir::attr<Axes>(transpose->attrs, "axes") != axes) return std::nullopt;
    Atom inner = strip_scale(transpose->args[0], scale);
    const Expr* reshape = op(inner, "reshape");
    if (!reshape) return std::nullopt;
    Type whole = ir::type_of(reshape->args[0]), parts = ir::type_of(inner);
    if (!whole || whole->dims.size() != 3 || parts->dims.size() != 4) return std::nullopt;
    auto heads = parts->dims[2].as_constant();
    if (!heads || !(whole->dims[0] == parts->dims[0]) || !(whole->dims[1] == parts->dims[1]))
      return std::nullopt;
    return Heads{reshape->args[0], *heads};
  }

  // k' = split(k, 0 2 3 1), or a transpose of split(k, 0 2 1 3).
  std::optional<Heads> split_transposed(const Atom& a, double* scale) const {
    if (auto direct = split(a, {0, 2, 3, 1}, scale)) return direct;
    const Expr* transpose = op(strip_scale(a, scale), "transpose");
    if (!transpose || ir::attr<Axes>(transpose->attrs, "axes") != Axes{0, 1, 3, 2})
      return std::nullopt;
    return split(transpose->args[0], {0, 2, 1, 3}, scale);
  }

 private:
  const Definitions& d_;
};

std::optional<Atom> rewrite(const Matcher& match, const ir::Binding& b, ir::BlockBuilder& out) {
  const Expr& e = *b.value;
  if (e.op != "reshape") return std::nullopt;
  const Expr* back = match.op(e.args[0], "transpose");
  if (!back || ir::attr<Axes>(back->attrs, "axes") != Axes{0, 2, 1, 3}) return std::nullopt;
  const Expr* context = match.op(back->args[0], "matmul");
  if (!context || ir::attr_or(context->attrs, "transpose_a", false) ||
      ir::attr_or(context->attrs, "transpose_b", false))
    return std::nullopt;
  const Expr* softmax = match.op(context->args[0], "softmax");
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

  std::vector<Atom> args = {q->flat, k->flat, v->flat};
  if (mask) args.push_back(*mask);
  ir::VarRef y = out.call("attention", std::move(args), {{"heads", q->heads}, {"scale", scale}},
                          "attention", e.location);
  y->type = made;
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
