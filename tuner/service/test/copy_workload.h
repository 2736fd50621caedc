// What tests of campaigns and of the service share: a workload that copies, and what is expected of
// its candidates.
#pragma once

#include <atomic>

#include "tuner/service/backend.h"

namespace nimble::tuner {

// A workload that computes its input: the product of the fault worker's kernels.
inline constexpr char kCopy[] =
    "fn @main(%x: Tensor[(n), f32]) -> Tensor[(n), f32] { let %y = relu(%x); %y }";

// For what nobody cancels.
inline const std::atomic<bool> kNever{false};

// Whatever is built for kCopy, its input comes out.
class CopyingBackend : public Backend {
 public:
  Expectation expect(const TuningTask& task, const WorkloadPoint& point, const tuned::Candidate&,
                     const DefaultResult&) override;
};

}  // namespace nimble::tuner
