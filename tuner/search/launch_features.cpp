// What a GPU's kernel keeps busy. Blocks that fit a multiprocessor at once are bounded by threads,
// shared memory and their number (registers are known once the kernel is compiled only); the rest
// waits for another round, and a last round of few blocks leaves most of the GPU idle.
#include <algorithm>
#include <cmath>

#include "tuner/search/features.h"

namespace nimble::tuner {
namespace {

// Of a multiprocessor of 8.0, 9.0 and 10.0. Others, which run the code of compute_80, have fewer
// (8.6: 1536 and 16): to the model it is a scale that all candidates share.
constexpr double kThreads = 2048, kBlocks = 32;

float lg(double x) {
  return static_cast<float>(std::log2(std::max(0.0, x) + 1));
}

}  // namespace

std::vector<float> launch_features(const kir::Function& f, std::span<const int64_t> symbols,
                                   const kernels::TargetInfo& target) {
  double blocks = 1;
  for (const ir::Dim& extent : f.launch->grid)
    blocks *=
        static_cast<double>(extent.evaluate([&](const std::string& name) -> std::optional<int64_t> {
          const auto at = std::find(f.contract.symbols.begin(), f.contract.symbols.end(), name);
          const auto i = static_cast<size_t>(at - f.contract.symbols.begin());
          if (i >= symbols.size()) return std::nullopt;
          return symbols[i];
        }));
  const auto threads = static_cast<double>(f.launch->threads);
  const auto shared = static_cast<double>(kir::shared_bytes(f));
  double at_once = std::min(kBlocks, std::floor(kThreads / threads));
  if (shared > 0)
    at_once = std::min(at_once, std::floor(static_cast<double>(target.shared_bytes) / shared));
  const double rounds =
      blocks / (std::max(1.0, at_once) * static_cast<double>(target.multiprocessors));
  return {lg(blocks), static_cast<float>(threads),
          lg(shared), static_cast<float>(std::max(1.0, at_once) * threads / kThreads),
          lg(rounds), static_cast<float>(rounds > 0 ? rounds / std::ceil(rounds) : 0)};
}

size_t kernel_columns(const kernels::TargetInfo& target) {
  return feature_names().size() + 1 + (target.is_gpu() ? kLaunchFeatures : 0);
}

}  // namespace nimble::tuner
