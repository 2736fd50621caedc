// Learns how fast configurations are from those that were measured: gradient-boosted trees
// (XGBoost) on features of the loop nest, as in the paper and in Chen et al., "Learning to
// optimize tensor programs", NeurIPS 2018.
//
// The target is log2 of the time relative to the fastest known; squared error on it weighs
// ratios, which is what ranking needs. Few points are the rule, so trees are shallow and rows and
// columns are sampled. Equal data and seed give equal models (one thread).
#pragma once

#include <cstdint>
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
  // Predicted time in ns of each.
  std::vector<double> predict(const std::vector<std::vector<float>>& features) const;
  // XGBoost's own format (UBJSON).
  const std::vector<uint8_t>& serialised() const { return model_; }

 private:
  uint64_t seed_;
  std::vector<uint8_t> model_;
  double best_ns_ = 1;
};

}  // namespace nimble::tuner
