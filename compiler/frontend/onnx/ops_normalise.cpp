// Normalisations and losses, in the float type that the operator prescribes: 16-bit floats are
// widened, and what they give is narrowed again.
#include <cmath>

#include "compiler/frontend/onnx/arithmetic.h"
#include "compiler/frontend/onnx/operators.h"

namespace nimble::frontend::onnx {
namespace {

using ir::Dim;

bool wants_from(const Node& n, size_t from) {
  for (size_t i = from; i < n.outputs.size(); ++i)
    if (!n.outputs[i].empty()) return true;
  return false;
}

// (x - mean) / sqrt(variance + epsilon) over the axes; also the mean and the reciprocal deviation.
struct Normalised {
  Value y, mean, inverse;
};
Normalised normalise(Arithmetic& a, const Value& x, const Axes& axes, double epsilon) {
  const Value mean = a.mean(x, axes, true), d = a.sub(x, mean);
  const Value inverse = a.unary("rsqrt", a.add(a.mean(a.mul(d, d), axes, true), epsilon));
  return {a.mul(d, inverse), mean, inverse};
}

Values layer_norm(NodeContext& c) {
  Arithmetic a(c.g);
  const Value& x = c.in(0);
  const int64_t axis = c.axis(c.integer("axis", -1), x.rank());
  const double epsilon = c.real("epsilon", 1e-5);
  Value gamma = c.in(1);
  const bool plain = (x.dtype() == DType::kF32 || x.dtype() == DType::kF64) &&
                     gamma.rank() == x.rank() - axis && !wants_from(c.node, 1);
  if (plain) {
    Value beta = c.has(2) ? c.in(2) : c.g.full(gamma.dims(), 0, x.dtype());
    return {c.g.call("layer_norm", {x, gamma, beta}, {{"epsilon", epsilon}, {"axis", axis}})};
  }
  const Normalised n = normalise(a, a.widened(x), axes_between(axis, x.rank()), epsilon);
  Value y = a.mul(n.y, a.cast(gamma, n.y.dtype()));
  if (c.has(2)) y = a.add(y, a.cast(c.in(2), n.y.dtype()));
  return {a.cast(y, x.dtype()), n.mean, n.inverse};
}

Values rms_norm(NodeContext& c) {
  Arithmetic a(c.g);
  const Value x = a.widened(c.in(0));
  const int64_t axis = c.axis(c.integer("axis", -1), x.rank());
  const Value mean = a.mean(a.mul(x, x), axes_between(axis, x.rank()), true);
  const Value y = a.mul(x, a.unary("rsqrt", a.add(mean, c.real("epsilon", 1e-5))));
  return {a.cast(a.mul(y, a.cast(c.in(1), y.dtype())), c.in(1).dtype())};
}

// A vector over the channels as it meets (n, channels, …).
Value along_channels(Arithmetic& a, const Value& v, int64_t rank) {
  return a.unsqueeze(v, axes_between(1, rank - 1));
}

Values instance_norm(NodeContext& c) {
  Arithmetic a(c.g);
  const Value x = a.widened(c.in(0));
  const Normalised n = normalise(a, x, axes_between(2, x.rank()), c.real("epsilon", 1e-5));
  const Value y = a.mul(n.y, along_channels(a, a.widened(c.in(1)), x.rank()));
  return {a.cast(a.add(y, along_channels(a, a.widened(c.in(2)), x.rank())), c.in(0).dtype())};
}

// Scale and bias are one per channel; before opset 21 one per group.
Values group_norm(NodeContext& c) {
  Arithmetic a(c.g);
  const Value x = a.widened(c.in(0));
  const int64_t groups = c.integer("num_groups");
  if (groups < 1) c.fail("num_groups is not positive");
  const Dim size = c.g.simplify(ir::floordiv(x.dim(1), Dim(groups)));
  Dims apart = {x.dim(0), Dim(groups), size};
  apart.insert(apart.end(), x.dims().begin() + 2, x.dims().end());
  const auto rank = static_cast<int64_t>(apart.size());
  Value y = normalise(a, c.g.reshape(x, apart), axes_between(2, rank), c.real("epsilon", 1e-5)).y;
  const auto with = [&](size_t i) {
    const Value v = a.widened(c.in(i));
    if (c.opset >= 21) return along_channels(a, v, x.rank());
    return a.unsqueeze(v, axes_between(1, rank - 1));
  };
  if (c.opset >= 21) y = c.g.reshape(y, x.dims());
  y = a.add(a.mul(y, with(1)), with(2));
  return {a.cast(c.g.reshape(y, x.dims()), c.in(0).dtype())};
}

Values mean_variance(NodeContext& c) {
  Arithmetic a(c.g);
  const Value& x = c.in(0);
  Axes axes = c.integers("axes", {0, 2, 3});
  const Value d = a.sub(x, a.mean(x, axes, true));
  const Value deviation = a.sqrt(a.mean(a.mul(d, d), axes, true));
  return {a.div(d, a.add(deviation, 1e-9))};
}

// x / (bias + alpha / size * the sum of squares of the neighbouring channels)^beta.
Values local_response(NodeContext& c) {
  Arithmetic a(c.g);
  const Value& x = c.in(0);
  if (x.rank() < 2) c.fail(fmt::format("a tensor of rank {} has no channels", x.rank()));
  const int64_t size = c.integer("size");
  if (size < 1) c.fail("size is not positive");
  constexpr int64_t kMost = 1024;  // each neighbour becomes operations of its own
  if (size > kMost) c.unsupported(fmt::format("a size of {}", size), "normalise by fewer channels");
  const int64_t before = (size - 1) / 2;
  Dims low(x.dims().size(), 0), high = low;
  low[1] = before;
  high[1] = size - 1 - before;
  const Value squares = a.pad(a.mul(x, x), low, high);
  std::optional<Value> sum;
  for (int64_t i = 0; i < size; ++i) {
    const Value part = c.g.slice(squares, 1, Dim(i), c.g.simplify(Dim(i) + x.dim(1)));
    sum = sum ? a.add(*sum, part) : part;
  }
  const double alpha = c.real("alpha", 0.0001) / static_cast<double>(size);
  const Value base = a.add(a.mul(*sum, alpha), c.real("bias", 1));
  return {a.div(x, a.binary("pow", base, c.real("beta", 0.75)))};
}

// Inference form, or with the batch's own mean and variance.
Values batch_norm(NodeContext& c) {
  Arithmetic a(c.g);
  const double epsilon = c.real("epsilon", 1e-5);
  const Value& x = c.in(0);
  if (!c.integer("training_mode", 0)) {
    const bool plain = (x.dtype() == DType::kF32 || x.dtype() == DType::kF64) && x.rank() >= 2 &&
                       c.in(1).dtype() == x.dtype() && c.in(3).dtype() == x.dtype();
    if (plain)
      return {
          c.g.call("batch_norm", {x, c.in(1), c.in(2), c.in(3), c.in(4)}, {{"epsilon", epsilon}})};
  }
  const Value wide = a.widened(x);
  const auto row = [&](size_t i) { return a.cast(c.in(i), wide.dtype()); };
  const auto spread = [&](const Value& v) { return along_channels(a, v, x.rank()); };
  Value mean = row(3), variance = row(4);
  Values running;
  if (c.integer("training_mode", 0)) {
    Axes axes = {0};
    for (int64_t i = 2; i < x.rank(); ++i) axes.push_back(i);
    const double keep = c.real("momentum", 0.9f);
    const Value now = a.mean(wide, axes, false);
    const Value d = a.sub(wide, spread(now));
    const Value spreading = a.mean(a.mul(d, d), axes, false);
    running = {a.cast(a.add(a.mul(mean, keep), a.mul(now, 1 - keep)), c.in(3).dtype()),
               a.cast(a.add(a.mul(variance, keep), a.mul(spreading, 1 - keep)), c.in(4).dtype())};
    mean = now;
    variance = spreading;
  }
  const Value scale = a.div(row(1), a.sqrt(a.add(variance, epsilon)));
  Value y = a.mul(a.sub(wide, spread(mean)), spread(scale));
  y = a.add(y, spread(row(2)));
  Values out = {a.cast(y, x.dtype())};
  out.insert(out.end(), running.begin(), running.end());
  return out;
}

std::string check_batch_norm(const Node& n, int64_t opset) {
  return opset < 14 && wants_from(n, 1) ? "its outputs before opset 14 (training) are not supported"
                                        : "";
}

Values lp_norm(NodeContext& c) {
  Arithmetic a(c.g);
  const Value& x = c.in(0);
  const int64_t axis = c.axis(c.integer("axis", -1), x.rank()), p = c.integer("p", 2);
  if (p != 1 && p != 2) c.fail(fmt::format("p is {}, not 1 or 2", p));
  Value n = a.sum(p == 1 ? a.abs(x) : a.mul(x, x), {axis}, true);
  if (p == 2) n = a.sqrt(n);
  // Where all is 0, 0.
  return {a.div(x, a.where(a.equal(n, 0.0), 1.0, n))};
}

// -------------------------------------------------------------------------------- losses

// Minus the log probability of each target, weighted; what is ignored counts nothing.
Value likelihood_loss(NodeContext& c, const Value& log_p, const Value& target,
                      const std::optional<Value>& weight) {
  Arithmetic a(c.g);
  Value t = a.cast(target, DType::kI64);
  std::optional<Value> ignored;
  if (c.node.find("ignore_index")) {
    ignored = a.equal(t, static_cast<double>(c.integer("ignore_index")));
    t = a.where(*ignored, 0.0, t);
  }
  const Value picked =
      c.g.call("gather_elements", {log_p, a.unsqueeze(t, {1})}, {{"axis", int64_t{1}}});
  Value loss = a.neg(a.squeeze(picked, {1}));
  std::optional<Value> counts;
  if (weight) counts = a.gather(a.cast(*weight, loss.dtype()), t, 0);
  if (ignored) {
    const Value one = counts ? *counts : c.g.full(t.dims(), 1, loss.dtype());
    counts = a.where(*ignored, 0.0, one);
    loss = a.where(*ignored, 0.0, loss);
  }
  if (counts) loss = a.mul(loss, *counts);
  const std::string reduction = c.text("reduction", "mean");
  if (reduction == "none") return loss;
  const Axes all = axes_between(0, loss.rank());
  const Value sum = a.sum(loss, all, false);
  if (reduction == "sum") return sum;
  if (reduction != "mean") c.fail(fmt::format("reduction {} has no meaning", printable(reduction)));
  return counts ? a.div(sum, a.sum(*counts, all, false)) : a.mean(loss, all, false);
}

std::optional<Value> weights(NodeContext& c) {
  return c.has(2) ? std::optional(c.in(2)) : std::nullopt;
}

Values negative_log_likelihood(NodeContext& c) {
  Arithmetic a(c.g);
  const Value loss = likelihood_loss(c, a.widened(c.in(0)), c.in(1), weights(c));
  return {a.cast(loss, c.in(0).dtype())};
}

Values cross_entropy(NodeContext& c) {
  Arithmetic a(c.g);
  const Value log_p = c.g.call("log_softmax", {a.widened(c.in(0))}, {{"axis", int64_t{1}}});
  const Value loss = likelihood_loss(c, log_p, c.in(1), weights(c));
  return {a.cast(loss, c.in(0).dtype()), a.cast(log_p, c.in(0).dtype())};
}

}  // namespace

std::span<const Operator> normalising_operators() {
  static const Operator kRows[] = {
      {"LayerNormalization", layer_norm},
      {"RMSNormalization", rms_norm},
      {"InstanceNormalization", instance_norm},
      {"GroupNormalization", group_norm},
      {"MeanVarianceNormalization", mean_variance},
      {"LRN", local_response},
      {"BatchNormalization", batch_norm, check_batch_norm},
      {"LpNormalization", lp_norm},
      {"NegativeLogLikelihoodLoss", negative_log_likelihood},
      {"SoftmaxCrossEntropyLoss", cross_entropy},
  };
  return kRows;
}

}  // namespace nimble::frontend::onnx
