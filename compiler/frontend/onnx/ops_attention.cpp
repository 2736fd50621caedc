// Attention and what comes with it: rotary embedding, cache updates, linear attention.
//
// Attention is written out in its definition: scores, soft cap, bias, softmax, product. What has no
// key to attend to gives 0. Positions are compared as integers, so that caches of any length need
// no table. The pass fuse-attention finds the plain form again.
#include <cmath>

#include "compiler/frontend/onnx/arithmetic.h"
#include "compiler/frontend/onnx/operators.h"

namespace nimble::frontend::onnx {
namespace {

using ir::Dim;

// (b, n, heads * d) → (b, heads, n, d).
Value split_heads(NodeContext& c, const Value& x, int64_t heads) {
  if (heads < 1) c.fail("the number of heads is missing");
  const Dim width = c.g.simplify(ir::floordiv(x.dim(2), Dim(heads)));
  Arithmetic a(c.g);
  return a.transpose(c.g.reshape(x, {x.dim(0), x.dim(1), Dim(heads), width}), {0, 2, 1, 3});
}

Value join_heads(NodeContext& c, const Value& x) {
  Arithmetic a(c.g);
  const Value y = a.transpose(x, {0, 2, 1, 3});
  return c.g.reshape(y, {y.dim(0), y.dim(1), y.dim(2) * y.dim(3)});
}

// (b, heads, n, d) with each head `times` times in a row.
Value repeat_heads(NodeContext& c, const Value& x, const Dim& times) {
  if (times.is_constant(1)) return x;
  Arithmetic a(c.g);
  const Dims& d = x.dims();
  return c.g.reshape(a.expand(a.unsqueeze(x, {2}), {d[0], d[1], times, d[2], d[3]}),
                     {d[0], d[1] * times, d[2], d[3]});
}

class Attention {
 public:
  explicit Attention(NodeContext& c) : c_(c), a_(c.g) {}

  Values build() {
    Value q = c_.in(0), k = c_.in(1), v = c_.in(2);
    const bool flat = q.rank() == 3;
    if (flat) {
      q = split_heads(c_, q, c_.integer("q_num_heads"));
      k = split_heads(c_, k, c_.integer("kv_num_heads"));
      v = split_heads(c_, v, c_.integer("kv_num_heads"));
    }
    if (q.rank() != 4 || k.rank() != 4 || v.rank() != 4) c_.fail("Q, K and V have rank 3 or 4");
    type_ = q.dtype();
    if (c_.has(4)) {
      past_ = c_.in(4).dim(2);
      k = a_.concat({c_.in(4), k}, 2);
      v = a_.concat({c_.in(5), v}, 2);
    }
    queries_ = q.dim(2);
    keys_ = k.dim(2);
    const Value present_k = k, present_v = v;
    const Dim group = c_.g.simplify(ir::floordiv(q.dim(1), k.dim(1)));
    Value scores = rounded(score(q, repeat_heads(c_, k, group)));
    const int64_t mode = c_.integer("qk_matmul_output_mode", 0);
    Value shown = scores;
    if (const double cap = c_.real("softcap", 0); cap > 0)
      scores = a_.mul(a_.unary("tanh", a_.div(scores, cap)), cap);
    if (mode == 1) shown = scores;
    const std::optional<Value> bias = bias_of();
    if (bias) scores = a_.add(scores, *bias);
    if (mode == 2) shown = scores;
    Value weights = probabilities(scores, bias);
    if (mode == 3) shown = weights;
    weights = rounded(weights);
    Value y = a_.matmul(weights, a_.widened(repeat_heads(c_, v, group)));
    y = a_.cast(y, v.dtype());
    return {flat ? join_heads(c_, y) : y, present_k, present_v, a_.cast(shown, type_)};
  }

 private:
  // The root of the scale on either side: neither product overflows a narrow type.
  Value score(const Value& q, const Value& k) {
    Value root;
    if (c_.node.find("scale")) {
      root = c_.g.scalar(std::sqrt(c_.real("scale", 1)), type_);
    } else {
      const auto width = q.dim(3).as_constant();
      if (width) {
        root = c_.g.scalar(std::pow(static_cast<double>(*width), -0.25), type_);
      } else {
        Value w = a_.cast(c_.g.size(q.dim(3)), DType::kF32);
        root = a_.cast(a_.unary("rsqrt", a_.sqrt(w)), type_);
      }
    }
    const Value left = a_.widened(a_.mul(q, root)), right = a_.widened(a_.mul(k, root));
    return a_.matmul(left, right, true);
  }

  // Rounded to the type that the model computes in.
  Value rounded(const Value& x) { return a_.rounded(x, type_); }

  Value minus_infinity() { return c_.g.scalar(-HUGE_VAL, wide()); }
  DType wide() const { return is_narrow_float(type_) ? DType::kF32 : type_; }
  // 0 where allowed, else -infinity.
  Value allowed(const Value& condition) {
    return a_.where(condition, c_.g.scalar(0, wide()), minus_infinity());
  }
  static void add_to(Arithmetic& a, std::optional<Value>& sum, const Value& v) {
    sum = sum ? a.add(*sum, v) : v;
  }

  std::optional<Value> bias_of() {
    std::optional<Value> bias;
    if (c_.has(3)) {
      Value m = c_.in(3);
      const bool boolean = m.dtype() == DType::kBool;
      m = boolean ? allowed(m) : a_.widened(m);
      // A mask that is too short allows none of the rest.
      const Dim missing = c_.g.simplify(keys_ - m.dim(m.rank() - 1));
      if (!missing.is_constant(0) && !m.dim(m.rank() - 1).is_constant(1)) {
        Dims before(m.dims().size(), 0), after = before;
        after.back() = missing;
        m = a_.pad(m, before, after, -HUGE_VAL);
      }
      bias = m;
    }
    const bool causal = c_.integer("is_causal", 0) != 0;
    const int64_t left = c_.integer("left_window_size", -1),
                  right = c_.integer("right_window_size", -1);
    if (causal || left >= 0 || right >= 0) {
      // The distance of a key to its query: how far it lies ahead.
      const Value i = a_.range(queries_, DType::kI64, 0, 2), j = a_.range(keys_, DType::kI64, 1, 2);
      Value ahead = a_.sub(j, i);
      if (c_.has(4)) {
        ahead = a_.sub(ahead, c_.g.size(past_));
      } else if (c_.has(6)) {
        const Value offset = a_.sub(lengths(), c_.g.size(queries_));
        ahead = a_.sub(ahead, offset);  // (b, 1, n, m)
      }
      if (causal) add_to(a_, bias, allowed(a_.less_equal(ahead, 0.0)));
      if (left >= 0) add_to(a_, bias, allowed(a_.greater_equal(ahead, -static_cast<double>(left))));
      if (right >= 0) add_to(a_, bias, allowed(a_.less_equal(ahead, static_cast<double>(right))));
    }
    if (c_.has(6))
      add_to(a_, bias, allowed(a_.less(a_.range(keys_, DType::kI64, 3, 4), lengths())));
    return bias;
  }

  // The numbers of keys that are no padding, as (b, 1, 1, 1).
  Value lengths() { return a_.unsqueeze(a_.cast(c_.in(6), DType::kI64), {1, 2, 3}); }

  Value probabilities(const Value& scores, const std::optional<Value>& bias) {
    Value s = scores;
    if (int64_t given = c_.integer("softmax_precision", 0)) {
      const DType precise = dtype_of(given, c_.place);
      if (precise == DType::kF64) s = a_.cast(s, precise);
    } else {
      s = a_.cast(s, type_);
    }
    Value p = a_.cast(a_.softmax(s, s.rank() - 1), wide());
    if (!bias) return p;
    const Value best = a_.reduce("reduce_max", *bias, {bias->rank() - 1}, true);
    return a_.where(a_.equal(best, -HUGE_VAL), 0.0, p);
  }

  NodeContext& c_;
  Arithmetic a_;
  DType type_ = DType::kF32;
  Dim past_ = 0, queries_ = 0, keys_ = 0;
};

Values attention(NodeContext& c) {
  return Attention(c).build();
}

// Softmax(score_mod(q k^T * scale)), prob_mod of it, times v; the modifiers are graphs.
Values flex_attention(NodeContext& c) {
  Arithmetic a(c.g);
  const Value &q = c.in(0), &k = c.in(1), &v = c.in(2);
  if (q.rank() != 4 || k.rank() != 4 || v.rank() != 4) c.fail("Q, K and V have rank 4");
  const auto modified = [&](const char* graph, const Value& x) {
    if (!c.node.find(graph)) return x;
    const Values out = c.subgraph(graph, {x});
    if (out.size() != 1) c.fail(fmt::format("{} has {} results, not one", graph, out.size()));
    return out[0];
  };
  const Dim group = c.g.simplify(ir::floordiv(q.dim(1), k.dim(1)));
  DType type = q.dtype() == DType::kF64 ? DType::kF64 : DType::kF32;
  if (int64_t given = c.integer("softmax_precision", 0)) type = dtype_of(given, c.place);
  const auto width = q.dim(3).as_constant();
  if (!width && !c.node.find("scale"))
    c.unsupported("a scale of a symbolic head size", "write the attribute scale");
  const double scale =
      c.node.find("scale") ? c.real("scale", 1) : 1 / std::sqrt(static_cast<double>(*width));
  const DType wide = type == DType::kF64 ? type : DType::kF32;
  Value s = a.matmul(a.cast(q, wide), a.cast(repeat_heads(c, k, group), wide), true);
  s = a.cast(a.mul(s, scale), type);
  s = modified("score_mod", s);
  Value p = modified("prob_mod", c.g.call("softmax", {s}, {{"axis", int64_t{-1}}}));
  p = a.cast(a.cast(p, q.dtype()), wide);
  const Value y = a.matmul(p, a.cast(repeat_heads(c, v, group), wide));
  return {a.cast(y, q.dtype())};
}

// Pairs of elements rotated by the angles of their positions.
Values rotary(NodeContext& c) {
  Arithmetic a(c.g);
  Value x = c.in(0);
  const bool flat = x.rank() == 3;
  if (flat) x = split_heads(c, x, c.integer("num_heads"));  // (b, heads, n, d)
  const auto angle = [&](size_t i) {
    Value t = c.in(i);
    if (c.has(3)) t = a.gather(t, c.in(3), 0);
    return a.unsqueeze(t, {1});  // (b, 1, n, d / 2)
  };
  const Value cosine = angle(1), sine = angle(2);
  const Dim width = x.dim(3);
  const int64_t partial = c.integer("rotary_embedding_dim", 0);
  const Dim turned = partial > 0 ? Dim(partial) : width;
  const Dim half = c.g.simplify(ir::floordiv(turned, Dim(2)));
  const Value part = partial > 0 ? c.g.slice(x, 3, 0, turned) : x;
  const Dims& d = x.dims();
  const bool interleaved = c.integer("interleaved", 0) != 0;
  // The two elements of a pair stand side by side, or half the width apart.
  const Value pairs = c.g.reshape(
      part, interleaved ? Dims{d[0], d[1], d[2], half, 2} : Dims{d[0], d[1], d[2], 2, half});
  const int64_t axis = interleaved ? 4 : 3;
  const Value first = a.squeeze(c.g.slice(pairs, axis, 0, 1), {axis});
  const Value second = a.squeeze(c.g.slice(pairs, axis, 1, 2), {axis});
  const Value real = a.sub(a.mul(cosine, first), a.mul(sine, second));
  const Value imaginary = a.add(a.mul(sine, first), a.mul(cosine, second));
  Value y = a.concat({a.unsqueeze(real, {axis}), a.unsqueeze(imaginary, {axis})}, axis);
  y = c.g.reshape(y, {d[0], d[1], d[2], turned});
  if (partial > 0) y = a.concat({y, c.g.slice(x, 3, turned, width)}, 3);
  return {flat ? join_heads(c, y) : y};
}

// Each sample's update goes into its cache from its index on: rows of the flattened cache.
Values tensor_scatter(NodeContext& c) {
  Arithmetic a(c.g);
  const Value &cache = c.in(0), &update = c.in(1);
  const int64_t axis = c.axis(c.integer("axis", -2), cache.rank());
  if (axis == 0) c.fail("the axis of TensorScatter is the batch");
  const auto at = static_cast<size_t>(axis);
  const Dim most = cache.dim(at), length = update.dim(at), batch = cache.dim(0);
  const Dim between = product_of(cache.dims(), 1, axis);
  const Dim inner = product_of(cache.dims(), axis + 1, cache.rank());
  Value at_time = a.range(length, DType::kI64, 2, 3);
  if (c.has(2)) at_time = a.add(a.unsqueeze(a.cast(c.in(2), DType::kI64), {1, 2}), at_time);
  if (c.text("mode", "linear") == "circular") at_time = a.mod(at_time, c.g.size(most));
  const Value outer = a.add(a.mul(a.range(batch, DType::kI64, 0, 3), c.g.size(between)),
                            a.range(between, DType::kI64, 1, 3));
  Value rows = a.add(a.mul(outer, c.g.size(most)), at_time);
  rows = c.g.reshape(a.expand(rows, {batch, between, length}), {batch * between * length});
  const Value y = c.g.call("scatter",
                           {c.g.reshape(cache, {batch * between * most, inner}), rows,
                            c.g.reshape(update, {batch * between * length, inner})},
                           {{"reduction", std::string("none")}});
  return {c.g.reshape(y, cache.dims())};
}

// A depthwise convolution over time that carries the last inputs on.
Values causal_conv(NodeContext& c) {
  Arithmetic a(c.g);
  const Value &x = c.in(0), &w = c.in(1);
  if (x.rank() != 3 || w.rank() != 3) c.fail("input and weight have rank 3");
  const Dim taps = w.dim(2);
  const Value past =
      c.has(3) ? c.in(3)
               : c.g.full({x.dim(0), x.dim(1), c.g.simplify(taps - Dim(1))}, 0, x.dtype());
  const Value padded = a.concat({past, x}, 2);
  const auto channels = x.dim(1).as_constant();
  if (!channels) c.unsupported("a symbolic number of channels", "export it as a constant");
  Values args = {a.unsqueeze(a.widened(padded), {2}), a.unsqueeze(a.widened(w), {2})};
  if (c.has(2)) args.push_back(a.widened(c.in(2)));
  Value y = c.g.call("conv2d", args,
                     {{"strides", Axes{1, 1}},
                      {"pads", Axes{0, 0, 0, 0}},
                      {"dilations", Axes{1, 1}},
                      {"groups", *channels}});
  y = a.cast(a.squeeze(y, {2}), x.dtype());
  const std::string activation = c.text("activation", "none");
  if (activation == "silu" || activation == "swish")
    y = a.mul(y, a.unary("sigmoid", y));
  else if (activation != "none")
    c.fail(fmt::format("activation {} has no meaning", printable(activation)));
  const Dim total = padded.dim(2);
  return {y, c.g.slice(padded, 2, c.g.simplify(total - taps + Dim(1)), total)};
}

}  // namespace

std::span<const Operator> attention_operators() {
  static const Operator kRows[] = {
      {"Attention", attention},
      {"FlexAttention", flex_attention, nullptr, "ai.onnx.preview"},
      {"RotaryEmbedding", rotary},
      {"TensorScatter", tensor_scatter},
      {"CausalConvWithState", causal_conv},
  };
  return kRows;
}

}  // namespace nimble::frontend::onnx
