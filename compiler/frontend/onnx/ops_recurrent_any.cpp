// Recurrent layers in all their variants, and linear attention: loops over time whose step is
// written out in its formula.
//
// What PyTorch exports — constant weights, the usual activations, no lengths — takes the fused
// cells of ops_recurrent.cpp; this is for the rest. The input's part of the gates is one product
// over all steps ahead of the loop. A sequence that is shorter than the others keeps its state and
// gives 0 behind its end, and backwards it is mirrored within its own length.
#include <array>
#include <cmath>
#include <map>
#include <tuple>

#include "compiler/frontend/onnx/arithmetic.h"
#include "compiler/frontend/onnx/operators.h"

namespace nimble::frontend::onnx {
namespace {

using ir::Dim;

struct Activation {
  std::string name;
  double alpha = 0, beta = 0;
};

Value activated(NodeContext& c, const Activation& f, const Value& x) {
  Arithmetic a(c.g);
  const std::string& n = f.name;
  if (n == "Sigmoid") return a.unary("sigmoid", x);
  if (n == "Tanh") return a.unary("tanh", x);
  if (n == "Relu") return a.unary("relu", x);
  if (n == "Affine") return a.add(a.mul(x, f.alpha), f.beta);
  if (n == "LeakyRelu") return c.g.call("leaky_relu", {x}, {{"alpha", f.alpha}});
  if (n == "ThresholdedRelu") return a.where(a.greater(x, f.alpha), x, 0.0);
  if (n == "ScaledTanh") return a.mul(a.unary("tanh", a.mul(x, f.beta)), f.alpha);
  if (n == "HardSigmoid")
    return c.g.call("clip", {a.add(a.mul(x, f.alpha), f.beta)}, {{"min", 0.0}, {"max", 1.0}});
  if (n == "Elu")
    return a.where(a.greater(x, 0.0), x, a.mul(a.sub(a.exp(a.minimum(x, 0.0)), 1.0), f.alpha));
  if (n == "Softsign") return a.div(x, a.add(a.abs(x), 1.0));
  if (n == "Softplus") return a.unary("softplus", x);
  c.unsupported(fmt::format("the activation {}", printable(n)), "use one that ONNX lists");
}

class Layer {
 public:
  explicit Layer(NodeContext& c) : c_(c), a_(c.g) {
    const std::string& op = c.node.op;
    gates_ = op == "LSTM" ? 4 : op == "GRU" ? 3 : 1;
    functions_ = op == "LSTM" ? 3 : op == "GRU" ? 2 : 1;
  }

  Values build() {
    const std::string direction = c_.text("direction", "forward");
    const bool both = direction == "bidirectional";
    if (!both && direction != "forward" && direction != "reverse")
      c_.fail(fmt::format("direction {} has no meaning", printable(direction)));
    directions_ = both ? 2 : 1;
    batch_first_ = c_.integer("layout", 0) != 0;
    x_ = batch_first_ ? swapped(c_.in(0)) : c_.in(0);
    if (x_.rank() != 3) c_.fail("the input's rank is not 3");
    type_ = x_.dtype();
    x_ = a_.widened(x_);
    const auto hidden = c_.in(2).rank() == 3 ? c_.in(2).dim(2).as_constant() : std::nullopt;
    hidden_ = c_.integer("hidden_size", hidden.value_or(0));
    if (hidden_ < 1 || hidden_ > INT32_MAX) c_.fail("the hidden size is out of range");
    if (c_.has(4)) lengths_ = a_.unsqueeze(a_.cast(c_.in(4), DType::kI64), {1});
    std::array<Values, 3> all;
    for (int64_t d = 0; d < directions_; ++d) {
      Values one = run(d, both ? d == 1 : direction == "reverse");
      all[0].push_back(a_.unsqueeze(one[0], {1}));
      for (size_t i = 1; i < one.size(); ++i) all[i].push_back(a_.unsqueeze(one[i], {0}));
    }
    Values out;
    for (size_t i = 0; i < all.size(); ++i)
      if (!all[i].empty()) out.push_back(a_.cast(a_.concat(all[i], i == 0 ? 1 : 0), type_));
    if (batch_first_) {
      out[0] = a_.transpose(out[0], {2, 0, 1, 3});
      for (size_t i = 1; i < out.size(); ++i) out[i] = swapped(out[i]);
    }
    return out;
  }

 private:
  Value swapped(const Value& v) { return a_.transpose(v, {1, 0, 2}); }
  // Direction d of an input.
  Value part(size_t input, int64_t d) {
    const Value v = a_.widened(c_.in(input));
    return a_.squeeze(directions_ > 1 ? c_.g.slice(v, 0, Dim(d), Dim(d + 1)) : v, {0});
  }
  Value initial(size_t input, int64_t d) {
    if (!c_.has(input)) return c_.g.full({x_.dim(1), Dim(hidden_)}, 0, x_.dtype());
    const Value v = a_.widened(batch_first_ ? swapped(c_.in(input)) : c_.in(input));
    return a_.squeeze(directions_ > 1 ? c_.g.slice(v, 0, Dim(d), Dim(d + 1)) : v, {0});
  }
  // Gate i of the last axis.
  Value gate(const Value& v, int64_t i) {
    return c_.g.slice(v, v.rank() - 1, Dim(i * hidden_), Dim((i + 1) * hidden_));
  }

  std::vector<Activation> activations(int64_t d) {
    static const std::map<std::string, std::pair<double, double>> kDefaults = {
        {"Affine", {1, 0}},     {"LeakyRelu", {0.01, 0}},    {"ThresholdedRelu", {1, 0}},
        {"ScaledTanh", {1, 1}}, {"HardSigmoid", {0.2, 0.5}}, {"Elu", {1, 0}}};
    const Attribute* given = c_.node.find("activations");
    const Attribute *alphas = c_.node.find("activation_alpha"),
                    *betas = c_.node.find("activation_beta");
    std::vector<Activation> out;
    size_t next_alpha = 0, next_beta = 0;
    for (size_t i = 0; i < static_cast<size_t>(functions_ * directions_); ++i) {
      const auto k = static_cast<int64_t>(i) % functions_;
      Activation f{c_.node.op == "RNN" || k > 0 ? "Tanh" : "Sigmoid"};
      if (given) {
        if (i >= given->strings.size()) c_.fail("there are too few activations");
        f.name = given->strings[i];
      }
      // The lists hold numbers for those functions that take one, in order.
      if (auto it = kDefaults.find(f.name); it != kDefaults.end()) {
        std::tie(f.alpha, f.beta) = it->second;
        if (alphas && next_alpha < alphas->floats.size())
          f.alpha = static_cast<double>(alphas->floats[next_alpha++]);
        const bool takes_beta =
            f.name == "Affine" || f.name == "ScaledTanh" || f.name == "HardSigmoid";
        if (takes_beta && betas && next_beta < betas->floats.size())
          f.beta = static_cast<double>(betas->floats[next_beta++]);
      }
      if (static_cast<int64_t>(i) / functions_ == d) out.push_back(f);
    }
    return out;
  }

  Value clipped(const Value& v) {
    const double clip = c_.real("clip", 0);
    return clip > 0 ? c_.g.call("clip", {v}, {{"min", -clip}, {"max", clip}}) : v;
  }

  // Time turned round, each sequence within its length.
  Value turned(const Value& v) {
    if (!lengths_) return a_.reversed(v, 0);
    const Value step = a_.range(v.dim(0), DType::kI64, 0, 3);
    const Value length = a_.unsqueeze(*lengths_, {0});
    const Value from = a_.where(a_.less(step, length), a_.sub(a_.sub(length, 1.0), step), step);
    return c_.g.call("gather_elements", {v, a_.expand(from, v.dims())}, {{"axis", int64_t{0}}});
  }

  // Results y (n, b, h), h and, for LSTM, c.
  Values run(int64_t d, bool backwards) {
    const std::string& op = c_.node.op;
    const int64_t rows = gates_ * hidden_;
    const std::vector<Activation> f = activations(d);
    Value x = backwards ? turned(x_) : x_;
    Value gates = c_.g.call("matmul", {x, part(1, d)}, {{"transpose_b", true}});
    const Value recurrent = a_.transpose(part(2, d), {1, 0});
    Value state_bias = c_.g.full({Dim(rows)}, 0, x.dtype());
    if (c_.has(3)) {
      const Value b = part(3, d);
      gates = a_.add(gates, c_.g.slice(b, 0, 0, Dim(rows)));
      state_bias = c_.g.slice(b, 0, Dim(rows), Dim(2 * rows));
    }
    GraphBuilder::Loop loop;
    loop.name = op == "LSTM" ? "lstm_any" : op == "GRU" ? "gru_any" : "rnn";
    loop.count = c_.g.size(x.dim(0));
    loop.state = {initial(5, d)};
    if (op == "LSTM") loop.state.push_back(initial(6, d));
    loop.captured = {gates, recurrent, state_bias};
    if (lengths_) loop.captured.push_back(*lengths_);
    if (op == "LSTM" && c_.has(7)) loop.captured.push_back(part(7, d));
    loop.body = [&](const Value& step, const Values& state, const Values& captured) {
      const Value row = c_.g.call("take_row", {captured[0], step});
      const std::optional<Value> peepholes =
          op == "LSTM" && c_.has(7) ? std::optional(captured.back()) : std::nullopt;
      Values next = op == "LSTM"  ? lstm(f, row, state, captured, peepholes)
                    : op == "GRU" ? gru(f, row, state, captured)
                                  : rnn(f, row, state, captured);
      Value y = next[0];
      if (lengths_) {
        const Value active = a_.less(step, captured[3]);
        y = a_.where(active, y, 0.0);
        for (size_t i = 0; i < next.size(); ++i) next[i] = a_.where(active, next[i], state[i]);
      }
      return GraphBuilder::Step{std::nullopt, next, {y}};
    };
    Values out = c_.g.loop(loop);
    Value y = out.back();
    out.pop_back();
    out.insert(out.begin(), backwards ? turned(y) : y);
    return out;
  }

  Values rnn(const std::vector<Activation>& f, const Value& row, const Values& state,
             const Values& captured) {
    const Value sum = a_.add(a_.add(row, a_.matmul(state[0], captured[1])), captured[2]);
    return {activated(c_, f[0], clipped(sum))};
  }

  // Gates z, r, h.
  Values gru(const std::vector<Activation>& f, const Value& row, const Values& state,
             const Values& captured) {
    const Value &h = state[0], &r = captured[1], &bias = captured[2];
    const Value recurrent = a_.add(a_.matmul(h, r), bias);
    const auto opened = [&](int64_t i) {
      return activated(c_, f[0], clipped(a_.add(gate(row, i), gate(recurrent, i))));
    };
    const Value update = opened(0), reset = opened(1);
    Value inner = c_.integer("linear_before_reset", 0)
                      ? a_.mul(reset, gate(recurrent, 2))
                      : a_.add(a_.matmul(a_.mul(reset, h), gate(r, 2)), gate(bias, 2));
    inner = activated(c_, f[1], clipped(a_.add(gate(row, 2), inner)));
    return {a_.add(a_.mul(a_.sub(a_.like(update, 1), update), inner), a_.mul(update, h))};
  }

  // Gates i, o, f, c; peepholes i, o, f.
  Values lstm(const std::vector<Activation>& f, const Value& row, const Values& state,
              const Values& captured, const std::optional<Value>& peepholes) {
    const Value &h = state[0], &cell = state[1];
    const Value sum = a_.add(a_.add(row, a_.matmul(h, captured[1])), captured[2]);
    const auto opened = [&](int64_t i, const Value& seen) {
      Value v = gate(sum, i);
      if (peepholes) v = a_.add(v, a_.mul(gate(*peepholes, i), seen));
      return activated(c_, f[0], clipped(v));
    };
    const Value in = opened(0, cell);
    const Value forget =
        c_.integer("input_forget", 0) ? a_.sub(a_.like(in, 1), in) : opened(2, cell);
    const Value candidate = activated(c_, f[1], clipped(gate(sum, 3)));
    const Value next = a_.add(a_.mul(forget, cell), a_.mul(in, candidate));
    return {a_.mul(opened(1, next), activated(c_, f[2], next)), next};
  }

  NodeContext& c_;
  Arithmetic a_;
  int64_t gates_ = 1, functions_ = 1, directions_ = 1, hidden_ = 0;
  bool batch_first_ = false;
  DType type_ = DType::kF32;
  Value x_;
  std::optional<Value> lengths_;
};

Values rnn(NodeContext& c) {
  return Layer(c).build();
}

// A matrix per head that every step decays, corrects, adds key times value to, and reads.
Values linear_attention(NodeContext& c) {
  Arithmetic a(c.g);
  const int64_t q_heads = c.integer("q_num_heads"), heads = c.integer("kv_num_heads");
  const std::string rule = c.text("update_rule", "gated_delta");
  const bool gated = rule == "gated" || rule == "gated_delta";
  const bool delta = rule == "delta" || rule == "gated_delta";
  if (!gated && !delta && rule != "linear")
    c.fail(fmt::format("update_rule {} has no meaning", printable(rule)));
  if (q_heads < 1 || heads < 1 || q_heads % heads) c.fail("the numbers of heads don't fit");
  const DType type = c.in(0).dtype();
  // (b, n, h * d) → (n, b, h, d)
  const auto by_time = [&](const Value& v, int64_t h) {
    const Value x = a.cast(v, DType::kF32);
    const Dim width = c.g.simplify(ir::floordiv(x.dim(2), Dim(h)));
    return a.transpose(c.g.reshape(x, {x.dim(0), x.dim(1), Dim(h), width}), {1, 0, 2, 3});
  };
  const Value q = by_time(c.in(0), q_heads), k = by_time(c.in(1), heads),
              v = by_time(c.in(2), heads);
  const Dim batch = q.dim(1), key = k.dim(3), width = v.dim(3);
  GraphBuilder::Loop loop;
  loop.name = "linear_attention";
  loop.count = c.g.size(q.dim(0));
  loop.state = {c.has(3) ? a.cast(c.in(3), DType::kF32)
                         : c.g.full({batch, Dim(heads), key, width}, 0, DType::kF32)};
  loop.captured = {q, k, v};
  // Decay and strength: one number a head, or one for each element of the key.
  if (gated) loop.captured.push_back(by_time(c.in(4), heads));
  if (delta) {
    const bool shared = c.in(5).dim(2).is_constant(1);
    loop.captured.push_back(by_time(c.in(5), shared ? 1 : heads));
  }
  double scale = c.real("scale", 0);
  if (scale == 0) {
    const auto d = key.as_constant();
    if (!d) c.unsupported("a scale of a symbolic head size", "write the attribute scale");
    scale = 1 / std::sqrt(static_cast<double>(*d));
  }
  loop.body = [&](const Value& step, const Values& state, const Values& captured) {
    const auto row = [&](size_t i) { return c.g.call("take_row", {captured[i], step}); };
    Value s = state[0];
    if (gated) s = a.mul(s, a.unsqueeze(a.exp(row(3)), {3}));
    const Value key_column = a.unsqueeze(row(1), {3});
    Value value = row(2);
    if (delta) {
      const Value known = a.sum(a.mul(s, key_column), {2}, false);
      value = a.mul(row(gated ? 4 : 3), a.sub(value, known));
    }
    s = a.add(s, a.mul(key_column, a.unsqueeze(value, {2})));
    // Query heads in groups, each reading one state.
    const Value query = c.g.reshape(
        row(0), {captured[0].dim(1), Dim(heads), Dim(q_heads / heads), captured[0].dim(3)});
    return GraphBuilder::Step{std::nullopt, {s}, {a.mul(a.matmul(query, s), scale)}};
  };
  const Values out = c.g.loop(loop);
  // (n, b, h, g, d) → (b, n, h * g * d)
  const Value y = a.transpose(out[1], {1, 0, 2, 3, 4});
  const Value joined = c.g.reshape(y, {y.dim(0), y.dim(1), Dim(q_heads) * y.dim(4)});
  return {a.cast(joined, type), a.cast(out[0], c.has(3) ? c.in(3).dtype() : type)};
}

}  // namespace

Values recurrent_layer(NodeContext& c) {
  return Layer(c).build();
}

std::span<const Operator> loop_operators() {
  static const Operator kRows[] = {
      {"RNN", rnn},
      {"LinearAttention", linear_attention},
  };
  return kRows;
}

}  // namespace nimble::frontend::onnx
