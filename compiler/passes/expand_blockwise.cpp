// Writes products with weights that have scales by blocks, and that no kernel takes, as plain ones,
// by their definition (compiler/ir/blockwise.h):
//
//   blockwise_matmul(x, q, s, z)
//     ->  n = numbers of 4 or 8 bits as u8 (n, blocks, block)
//         w = reshape((cast(n) - z) * s, (n, blocks * block)), cut to k
//         matmul(x, w) {transpose_b = true}
//
// Weights that are computed at run time come here, zero points that are no integers, and whatever
// pack-weights left. Of a product that rounds its activations
//
//         t = max |x| / 127 of each block of a row
//         x' = round(x / t) * t
//
// takes the place of x, filled up to whole blocks.
#include "compiler/ir/blockwise.h"
#include "compiler/ir/op.h"
#include "compiler/passes/passes.h"
#include "compiler/passes/support/has_kernel.h"
#include "compiler/passes/support/rewrite.h"

namespace nimble::passes {
namespace {

using ir::Atom;
using ir::Dim;
using ir::Expr;
using Axes = std::vector<int64_t>;
using Dims = std::vector<Dim>;

// A smaller scale of activations counts as this; only zeros, and what is as good as zero, have one.
constexpr float kLeastScale = 1e-38F;

class Expansion {
 public:
  Expansion(const Expr& e, ir::BlockBuilder& out)
      : e_(e), out_(out), form_(ir::blockwise_of(e.attrs)) {}

  Atom run(const ir::Type& result) {
    const bool rounds = e_.attrs.contains("activations");
    const int64_t whole = form_.blocks() * form_.block;
    Atom w = weights();
    if (!rounds) w = cut(w, 1, whole, form_.k);
    const Atom x = rounds ? rounded(e_.args[0]) : e_.args[0];
    return call("matmul", {x, w}, {{"transpose_b", true}}, result->dims);
  }

 private:
  Atom call(const char* op, std::vector<Atom> args, ir::Attrs attrs, Dims dims,
            DType type = DType::kF32) {
    const ir::VarRef v = out_.call(op, std::move(args), std::move(attrs), "blocks", e_.location);
    v->type = ir::tensor_type(std::move(dims), type);
    return v;
  }
  Atom reshape(const Atom& a, Dims dims) {
    return call("reshape", {a}, {{"shape", dims}, {"allow_zero", true}}, dims,
                ir::type_of(a)->dtype);
  }
  static Atom number(float v) { return Atom::of(ir::Tensor::scalar_f32(v)); }
  static Atom byte(uint8_t v) { return Atom::of(ir::Tensor::of<uint8_t>(DType::kU8, {}, {v})); }

  // The first `to` of an axis's `from`, or zeros behind them.
  Atom cut(const Atom& a, size_t axis, int64_t from, int64_t to) {
    if (from == to) return a;
    Dims dims = ir::type_of(a)->dims;
    const DType type = ir::type_of(a)->dtype;
    dims[axis] = to;
    if (to < from)
      return call(
          "slice", {a},
          {{"axes", Axes{static_cast<int64_t>(axis)}}, {"starts", Dims{0}}, {"ends", Dims{to}}},
          dims, type);
    Dims before(dims.size(), 0), after(dims.size(), 0);
    after[axis] = to - from;
    return call("pad", {a}, {{"before", before}, {"after", after}, {"value", 0.0}}, dims, type);
  }

  // The numbers, a byte each: (n, blocks, block).
  Atom numbers() {
    Atom q = e_.args[1];
    Dims dims = ir::type_of(q)->dims;
    if (form_.bits == 4) {
      const Atom low = call("bitwise_and", {q, byte(15)}, {}, dims, DType::kU8);
      const Atom high = call("shift_right", {q, byte(4)}, {}, dims, DType::kU8);
      if (form_.layout) {  // the upper halves are the later rows
        dims[3] = form_.per_word();
        q = call("concat", {low, high}, {{"axis", int64_t{3}}}, dims, DType::kU8);
      } else {
        dims.emplace_back(1);
        const Atom even = reshape(low, dims), odd = reshape(high, dims);
        dims.back() = 2;
        q = call("concat", {even, odd}, {{"axis", int64_t{3}}}, dims, DType::kU8);
      }
    }
    if (form_.layout) {
      const int64_t width = form_.layout->width, panels = (form_.n + width - 1) / width;
      const int64_t rows = form_.words() * form_.per_word();
      q = call("transpose", {q}, {{"axes", Axes{0, 2, 1, 3}}},
               {panels, width, form_.words(), form_.per_word()}, DType::kU8);
      q = cut(reshape(q, {panels * width, rows}), 0, panels * width, form_.n);
      q = cut(q, 1, rows, form_.blocks() * form_.block);
    }
    return reshape(q, {form_.n, form_.blocks(), form_.block});
  }

  // Scales or zeros: (n, blocks, 1).
  Atom by_block(const Atom& a) {
    Atom v = a;
    if (form_.layout) {
      const int64_t width = form_.layout->width, panels = (form_.n + width - 1) / width;
      v = call("transpose", {v}, {{"axes", Axes{0, 2, 1}}}, {panels, width, form_.blocks()},
               ir::type_of(v)->dtype);
      v = cut(reshape(v, {panels * width, form_.blocks()}), 0, panels * width, form_.n);
    }
    v = reshape(v, {form_.n, form_.blocks(), 1});
    return to_f32(v);
  }
  Atom to_f32(const Atom& a) {
    const ir::Type& t = ir::type_of(a);
    if (t->dtype == DType::kF32) return a;
    return call("cast", {a}, {{"dtype", DType::kF32}}, t->dims);
  }

  // The matrix that the weights stand for: (n, blocks * block).
  Atom weights() {
    const Dims dims = {form_.n, form_.blocks(), form_.block};
    const Atom zeros =
        e_.args.size() > 3 ? by_block(e_.args[3]) : number(static_cast<float>(form_.middle()));
    Atom w = call("sub", {to_f32(numbers()), zeros}, {}, dims);
    w = call("mul", {w, by_block(e_.args[2])}, {}, dims);
    return reshape(w, {form_.n, form_.blocks() * form_.block});
  }

  // x as it is multiplied, its rows filled up to whole blocks.
  Atom rounded(const Atom& given) {
    const int64_t whole = form_.blocks() * form_.block;
    const Dims rows = ir::type_of(given)->dims;
    const Atom x = cut(given, rows.size() - 1, form_.k, whole);
    Dims apart = rows, one = rows, filled = rows;
    filled.back() = whole;
    apart.back() = one.back() = form_.blocks();
    apart.emplace_back(form_.block);
    one.emplace_back(1);
    const Atom blocks = reshape(x, apart);
    const Atom size = call("abs", {blocks}, {}, apart);
    const Atom extreme =
        call("reduce_max", {size},
             {{"axes", Axes{static_cast<int64_t>(rows.size())}}, {"keepdims", true}}, one);
    Atom scale = call("div", {extreme, number(127)}, {}, one);
    scale = call("maximum", {scale, number(kLeastScale)}, {}, one);
    const Atom steps = call("round", {call("div", {blocks, scale}, {}, apart)}, {}, apart);
    return reshape(call("mul", {steps, scale}, {}, apart), filled);
  }

  const Expr& e_;
  ir::BlockBuilder& out_;
  ir::Blockwise form_;
};

}  // namespace

ir::Module expand_blockwise(const ir::Module& m, PassContext& context) {
  const auto expand = [&](const ir::Function& f, const ir::Binding& b,
                          ir::BlockBuilder& out) -> std::optional<Atom> {
    const Expr& e = *b.value;
    if (e.kind != ir::ExprKind::kCall || ir::traits_of(e).packs != ir::Packs::kBlocks ||
        !b.var->type)
      return std::nullopt;
    std::vector<ir::Type> operands;
    for (const Atom& a : e.args) operands.push_back(ir::type_of(a));
    for (const ir::Type& t : operands)
      if (!t) return std::nullopt;  // nobody has typed it
    if (has_kernel(e, operands, b.var->type, context.target_in(f), context)) return std::nullopt;
    context.count("expand-blockwise.expanded");
    return Expansion(e, out).run(b.var->type);
  };
  return rewrite_module(m, expand);
}

}  // namespace nimble::passes
