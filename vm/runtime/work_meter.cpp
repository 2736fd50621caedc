#include "vm/runtime/work_meter.h"

#include <algorithm>

#include "vm/base/error.h"

namespace nimble::rt {

[[gnu::cold]] void WorkMeter::fail_exhausted() {
  steps = 0;
  throw Error(Status::kExhausted, "", "it takes more steps than the run has fuel left",
              "raise the fuel of the session or use smaller inputs");
}

[[gnu::cold]] void WorkMeter::fail_cancelled() {
  throw Error(Status::kCancelled, "", "the run was cancelled");
}

[[gnu::noinline]] void StepCounter::refill(uint64_t cost) {
  meter_.steps += taken_;
  taken_ = 0;
  const uint64_t wanted = std::max(cost, std::min(meter_.steps, WorkMeter::kPollSteps));
  meter_.charge(wanted);
  taken_ = wanted;
}

}  // namespace nimble::rt
