// Learns how fast configurations are from those that were measured: gradient-boosted trees
// (XGBoost) on features of the loop nest, as in the paper and in Chen et al., "Learning to
// optimize tensor programs", NeurIPS 2018.
//
// The target is log2 of the time relative to the fastest known; squared error on it weighs
// ratios, which is what ranking needs. Few points are the rule, so trees are shallow and rows and
// columns are sampled. Equal data and seed give equal models (one thread).
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace nimble::tuner {

class CostModel {
 public:
  explicit CostModel(uint64_t seed) : seed_(seed) {}

  // Learns anew from all points. `features` have one length; times are in ns and positive. Fewer
  // than four points teach nothing: the model stays what it was.
  void train(const std::vector<std::vector<float>>& features, std::span<const double> times_ns);
  bool trained() const { return !model_.empty(); }
  size_t columns() const { return columns_; }  // features of a row; 0 before it is trained
  // Predicted time in ns of each.
  std::vector<double> predict(const std::vector<std::vector<float>>& features) const;
  // All that predict() needs: the features' version and number, the scale of time and XGBoost's own
  // format (UBJSON). Empty before it is trained.
  std::vector<uint8_t> serialised() const;
  // The inverse, of bytes that somebody answers for: `vouch` is asked before the first is read and
  // throws for bytes of unknown origin (tuner/trust), since XGBoost's reader is not made for those.
  // Error(kCorrupt) for what serialised() did not write, Error(kIncompatible) for a model of other
  // features than this program computes.
  using Vouch = std::function<void(std::span<const uint8_t> bytes)>;
  static CostModel load(std::span<const uint8_t> bytes, const Vouch& vouch);

 private:
  uint64_t seed_;
  std::vector<uint8_t> model_;
  size_t columns_ = 0;  // features that it was trained with
  double best_ns_ = 1;  // the time that labels are relative to
};

}  // namespace nimble::tuner
