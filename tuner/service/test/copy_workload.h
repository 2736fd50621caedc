// What tests of campaigns and of the service share.
#pragma once

#include <atomic>

namespace nimble::tuner {

// A workload that computes its input: the product of the fault worker's kernels.
inline constexpr char kCopy[] =
    "fn @main(%x: Tensor[(n), f32]) -> Tensor[(n), f32] { let %y = relu(%x); %y }";

// For what nobody cancels.
inline const std::atomic<bool> kNever{false};

}  // namespace nimble::tuner
