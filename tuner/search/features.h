// What the cost model sees of a kernel: numbers of its loop nest at one shape.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "compiler/kernels/kernel_ir.h"
#include "compiler/kernels/target.h"

namespace nimble::tuner {

// Raised whenever a feature changes what it means, is added or goes: a stored model knows no other.
inline constexpr uint32_t kFeatureVersion = 1;

// Features of `f` at the given values of its contract's symbols, run by `threads` threads; of a
// GPU's, of one thread of its first block. The length is feature_names().size() for every kernel.
std::vector<float> features_of(const kir::Function& f, std::span<const int64_t> symbols,
                               int threads, const kernels::TargetInfo& target);
const std::vector<std::string>& feature_names();
// Of a GPU's kernel besides: how many blocks it has, and how they fill the GPU. As many for each.
std::vector<float> launch_features(const kir::Function& f, std::span<const int64_t> symbols,
                                   const kernels::TargetInfo& target);
inline constexpr size_t kLaunchFeatures = 6;
// How many features a point of a space has ahead of its coordinates, be it a schedule or a vendor's
// routine: those of its kernel, the number of functions, and on a GPU those of its launch.
size_t kernel_columns(const kernels::TargetInfo& target);

}  // namespace nimble::tuner
