// What a GPU's kernel keeps busy. Blocks that fit a multiprocessor at once are bounded by threads,
// shared memory and their number (registers are known once the kernel is compiled only); the rest
// waits for another round, and a last round of few blocks leaves most of the GPU idle.
#include <algorithm>
#include <cmath>

#include "tuner/search/features.h"
#include "tuner/search/occupancy.h"

namespace nimble::tuner {
namespace {

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
  const GpuCode code{f.launch->threads, kir::shared_bytes(f)};
  const auto at_once = static_cast<double>(std::max<int64_t>(1, blocks_at_once(code, target)));
  const double rounds = blocks / (at_once * static_cast<double>(target.multiprocessors));
  return {lg(blocks), static_cast<float>(threads),
          lg(shared), static_cast<float>(at_once * threads / double{kMultiprocessorThreads}),
          lg(rounds), static_cast<float>(rounds > 0 ? rounds / std::ceil(rounds) : 0)};
}

size_t kernel_columns(const kernels::TargetInfo& target) {
  return feature_names().size() + 1 + (target.is_gpu() ? kLaunchFeatures : 0);
}

}  // namespace nimble::tuner
