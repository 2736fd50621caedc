#include "tuner/service/test/copy_workload.h"

#include <cstdint>
#include <vector>

#include "tuner/measure/inputs.h"

namespace nimble::tuner {

Expectation CopyingBackend::expect(const TuningTask& task, const WorkloadPoint& point,
                                   const tuned::Candidate&, const DefaultResult&) {
  std::vector<uint8_t> x(static_cast<size_t>(point.symbols[0]) * 4);
  fill_tensor(task.fills[0], DType::kF32, data_seed(task, point), 0, x);
  return {{x}, 1e-6};
}

}  // namespace nimble::tuner
