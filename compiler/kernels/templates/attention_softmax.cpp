#include "compiler/kernels/templates/attention_softmax.h"

#include <fmt/format.h>

#include <limits>
#include <utility>

#include "compiler/kernels/math.h"

namespace nimble::kernels {

namespace kb = kir::build;
namespace km = kir::math;
using kir::BinaryOp;
using kir::Dim;
using kir::LoopKind;
using kir::Scope;
using kir::StmtRef;
using kir::ValueRef;

constexpr int64_t kShortRow = 8;  // vectors of scores that stay in registers

AttentionSoftmax::AttentionSoftmax(const AttentionOperands& p, int lanes, int rows,
                                   const Dim& padded, Mask mask)
    : p_(p), lanes_(lanes), rows_(rows), padded_(padded), mask_(std::move(mask)) {
  // A cache line more than the keys, lest rows a multiple of 4 KiB apart share cache sets.
  stride_ = weight_stride_ = padded + lanes;
  scores_ = kb::buffer("scores", Scope::kThread, p.result, stride_ * rows);
  weights_ = scores_;
  scale_ = kb::buffer("scale", Scope::kThread, p.result, rows);
  maxima_ = kb::buffer("maxima", Scope::kRegister, p.result, kChains, lanes);
  sums_ = kb::buffer("sums", Scope::kRegister, p.result, 1, kChains * lanes);
  rest_ = kb::buffer("rest", Scope::kRegister, p.result, 1, lanes);
}

void AttentionSoftmax::round_weights(int64_t whole) {
  // Vectors of weights have zeros behind the last key as they are.
  whole_ = whole > lanes_ ? whole : 0;
  weight_stride_ = padded_ + whole_ + 2 * lanes_;
  weights_ = kb::buffer("weights", Scope::kThread, p_.type, weight_stride_ * rows_);
}

std::vector<kir::BufferRef> AttentionSoftmax::scratch() const {
  std::vector<kir::BufferRef> all = {scores_, scale_};
  if (weights_ != scores_) all.push_back(weights_);
  return all;
}

ValueRef AttentionSoftmax::factor(const Dim& row, int lanes) const {
  return kb::broadcast(kb::load(scale_, row), lanes);
}

StmtRef AttentionSoftmax::rows(const Dim& first, const Dim& count, const Dim& query) {
  first_ = first;
  query_ = query;
  const auto keys = p_.m.as_constant();
  const bool is_short = keys && *keys > 0 && *keys <= kShortRow * lanes_;
  return kb::loop(LoopKind::kSerial, "xr", 0, count,
                  kb::seq(is_short ? short_row(*keys) : long_row()));
}

Dim AttentionSoftmax::row() const {
  return first_ + Dim::symbol("xr");
}

ValueRef AttentionSoftmax::let(std::vector<StmtRef>& out, ValueRef v) {
  const std::string name = fmt::format("x{}", names_++);
  out.push_back(kb::let(name, v));
  return kb::local(name, v->dtype, v->lanes);
}

ValueRef AttentionSoftmax::number(double v, int lanes) const {
  return kb::number(p_.result, v, lanes);
}

ValueRef AttentionSoftmax::lowest() const {
  return number(-std::numeric_limits<double>::infinity(), lanes_);
}

// The scores of a row at a slice, scaled and masked, the lowest where no key is: their weights
// are zeros then, and a row's sum needs no mask. The buffer has room for whole vectors.
ValueRef AttentionSoftmax::scored(const Slice& s, std::vector<StmtRef>& out) {
  ValueRef x = kb::load(scores_, score(row(), s.at), lanes_);
  const ValueRef scale = number(p_.scale, lanes_);
  if (mask_) {
    const ValueRef bias = mask_(query_ + Dim::symbol("xr"), s.at, s.valid, out);
    x = kb::fma(x, scale, bias);
  } else if (!fold_scale()) {
    x = kb::mul(x, scale);
  }
  if (s.valid) x = kb::select(lane_mask(*s.valid, lanes_), x, lowest());
  return let(out, x);
}

// exp(score - maximum) from what scored() gave; `shift` is the maximum, scaled.
ValueRef AttentionSoftmax::exponential(ValueRef x, const ValueRef& shift,
                                       std::vector<StmtRef>& out) {
  const ValueRef maximum = kb::broadcast(shift, x->lanes);
  const ValueRef scale = number(p_.scale, x->lanes);
  x = fold_scale() ? kb::fma(x, scale, kb::unary(kir::UnaryOp::kNeg, maximum))
                   : kb::sub(x, maximum);
  return let(out, km::exp_flushed(let(out, x)));
}

ValueRef AttentionSoftmax::shift_of(const ValueRef& maximum, std::vector<StmtRef>& out) {
  const ValueRef all = let(out, kb::reduce(BinaryOp::kMax, maximum));
  return fold_scale() ? let(out, kb::mul(all, number(p_.scale, 1))) : all;
}

StmtRef AttentionSoftmax::store_weights(const Dim& key, const ValueRef& x) const {
  return kb::store(weights_, weight(row(), key), kb::cast(weights_->dtype, x));
}

// A row of so few keys that it stays in registers, without a loop.
std::vector<StmtRef> AttentionSoftmax::short_row(int64_t keys) {
  std::vector<StmtRef> out;
  std::vector<ValueRef> row_of;
  for (int64_t c = 0; c < keys; c += lanes_) {
    const auto valid = c + lanes_ > keys ? std::optional<Dim>(keys - c) : std::nullopt;
    row_of.push_back(scored({c, valid, 0}, out));
  }
  const auto total = [](std::vector<ValueRef> v, BinaryOp op) {
    for (; v.size() > 1; v.resize((v.size() + 1) / 2))
      for (size_t i = 0; i < v.size() / 2; ++i) v[i] = kb::binary(op, v[i], v[v.size() - 1 - i]);
    return v[0];
  };
  const ValueRef shift = shift_of(total(row_of, BinaryOp::kMax), out);
  for (size_t i = 0; i < row_of.size(); ++i) {
    row_of[i] = exponential(row_of[i], shift, out);
    out.push_back(store_weights(static_cast<int64_t>(i) * lanes_, row_of[i]));
  }
  const auto written = static_cast<int64_t>(row_of.size()) * lanes_;
  for (int64_t c = written; whole_ > 0 && c % whole_ != 0; c += lanes_)
    out.push_back(store_weights(c, number(0, lanes_)));
  // At least 1: the largest score's weight.
  const ValueRef sum = kb::reduce(BinaryOp::kAdd, total(row_of, BinaryOp::kAdd));
  out.push_back(kb::store(scale_, row(), kb::div(number(1, 1), sum)));
  return out;
}

std::vector<StmtRef> AttentionSoftmax::long_row() {
  std::vector<StmtRef> body;
  // What of the last `whole_` is not overwritten below.
  const Dim last = whole_ > 0 ? ir::floordiv(p_.m, whole_) * whole_ : Dim(0);
  for (int64_t c = 0; c < whole_; c += lanes_)
    body.push_back(store_weights(last + c, number(0, lanes_)));
  for (int u = 0; u < kChains; ++u) body.push_back(kb::set_reg(maxima_, u, lowest()));
  body.push_back(vector_loop("xc", 0, p_.m, lanes_, kChains, [&](const Slice& s) {
    std::vector<StmtRef> all;
    const ValueRef x = scored(s, all);
    if (!fold_scale() || s.valid) all.push_back(kb::store(scores_, score(row(), s.at), x));
    all.push_back(kb::set_reg(maxima_, s.slot, kb::max(kb::reg(maxima_, s.slot), x)));
    return all;
  }));
  ValueRef maximum = kb::reg(maxima_, 0);
  for (int u = 1; u < kChains; ++u) maximum = kb::max(maximum, kb::reg(maxima_, u));
  const ValueRef shift = shift_of(maximum, body);
  for (const kir::BufferRef& sum : {sums_, rest_})
    body.push_back(kb::set_reg(sum, 0, number(0, sum->lanes)));
  const SliceBody weights = [&](const Slice& s) {
    std::vector<StmtRef> all;
    const ValueRef x = exponential(kb::load(scores_, score(row(), s.at), s.lanes), shift, all);
    all.push_back(store_weights(s.at, x));
    const kir::BufferRef& sum = s.lanes == lanes_ ? rest_ : sums_;
    all.push_back(kb::set_reg(sum, 0, kb::add(kb::reg(sum, 0), x)));
    return all;
  };
  body.push_back(vector_loop("xc", 0, p_.m, lanes_, kChains, weights, Unrolled::kTurns));
  const auto total = [](const kir::BufferRef& b) {
    return kb::reduce(BinaryOp::kAdd, kb::reg(b, 0));
  };
  // Without any key the sum is empty, and so is the one that it scales: 0, not NaN.
  const ValueRef sum = let(body, kb::add(total(sums_), total(rest_)));
  const ValueRef none = kb::compare(kir::CompareOp::kEq, sum, number(0, 1));
  body.push_back(
      kb::store(scale_, row(), kb::select(none, number(0, 1), kb::div(number(1, 1), sum))));
  return body;
}

}  // namespace nimble::kernels
