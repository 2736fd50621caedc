// The softmax between the two products of attention on a CPU.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "compiler/kernels/templates/attention_operands.h"
#include "compiler/kernels/templates/loops.h"

namespace nimble::kernels {

// Turns rows of scores, in a thread's scratch, into weights exp(score - maximum) and keeps 1 / sum
// of each. The softmax is exact, not an online one: a tile's scores fit the cache up to several
// thousand keys, and rescaling partial results would cost more than the second pass. A row of few
// keys, as windows of an image have, stays in registers from its scores to its weights. Weights too
// small for a normal number are zeros (math.h: exp_flushed): masks of -100 make many.
//
// The exponentials of a longer row are computed kChains vectors at a time, in turns, as one of as
// many lanes (Unrolled::kTurns): a loop of them alone takes 29 % less time on a Zen 3 than one by
// one. These lanes are summed at the end of the row, by halves; the vectors that remain have a sum
// of their own. A short row's stand side by side as they are, and gain nothing.
class AttentionSoftmax {
 public:
  // What is added to the scaled scores of query row `row` at the keys from `key` on, of which
  // `valid` exist; statements that it needs go to `out`.
  using Mask = std::function<kir::ValueRef(const kir::Dim& row, const kir::Dim& key,
                                           const std::optional<kir::Dim>& valid,
                                           std::vector<kir::StmtRef>& out)>;

  // Of `rows` rows at most, with room for `padded` scores each, whole vectors of the keys. The mask
  // may be null.
  AttentionSoftmax(const AttentionOperands& p, int lanes, int rows, const kir::Dim& padded,
                   Mask mask);

  // Weights are rounded to the type of the operands and stand in a buffer of their own, each row
  // with zeros behind the last key up to a multiple of `whole`. The sums are those of the weights
  // as they were.
  void round_weights(int64_t whole);

  // Where score `key` of a tile's row lies, and the same of its weight.
  kir::Dim score(const kir::Dim& row, const kir::Dim& key) const { return row * stride_ + key; }
  kir::Dim weight(const kir::Dim& row, const kir::Dim& key) const {
    return row * weight_stride_ + key;
  }
  const kir::BufferRef& scores() const { return scores_; }
  const kir::BufferRef& weights() const { return weights_; }
  const kir::Dim& stride() const { return stride_; }
  const kir::Dim& weight_stride() const { return weight_stride_; }
  // 1 / sum of the weights, of each row; 0 without keys.
  kir::ValueRef factor(const kir::Dim& row, int lanes) const;

  // Rows [first, first + count) of the scratch, which are the query rows from `query` on.
  kir::StmtRef rows(const kir::Dim& first, const kir::Dim& count, const kir::Dim& query);

  std::vector<kir::BufferRef> scratch() const;
  std::vector<kir::BufferRef> registers() const { return {maxima_, sums_, rest_}; }

 private:
  // Vectors of a row whose maxima are found side by side, and whose exponentials in turns.
  static constexpr int kChains = 4;

  // Without a mask scaling keeps the order of the scores, so it is done last.
  bool fold_scale() const { return !mask_ && p_.scale > 0; }
  kir::ValueRef let(std::vector<kir::StmtRef>& out, kir::ValueRef v);
  kir::ValueRef lowest() const;
  kir::ValueRef number(double v, int lanes) const;
  kir::ValueRef scored(const Slice& s, std::vector<kir::StmtRef>& out);
  kir::ValueRef exponential(kir::ValueRef x, const kir::ValueRef& shift,
                            std::vector<kir::StmtRef>& out);
  kir::ValueRef shift_of(const kir::ValueRef& maximum, std::vector<kir::StmtRef>& out);
  kir::StmtRef store_weights(const kir::Dim& key, const kir::ValueRef& x) const;
  std::vector<kir::StmtRef> short_row(int64_t keys);
  std::vector<kir::StmtRef> long_row();
  // Of the row that "xr" counts, in the scratch.
  kir::Dim row() const;

  const AttentionOperands& p_;
  int lanes_;
  int rows_;
  kir::Dim padded_;
  Mask mask_;
  int64_t whole_ = 0;  // of round_weights()
  int names_ = 0;
  kir::Dim stride_, weight_stride_, first_, query_;
  kir::BufferRef scores_, weights_, scale_, maxima_, sums_, rest_;
};

}  // namespace nimble::kernels
