// The expected result of a workload at a shape, from the reference interpreter.
#pragma once

#include <cstdint>
#include <vector>

#include "tuner/service/workloads.h"

namespace nimble::tuner {

struct Expectation {
  std::vector<std::vector<uint8_t>> outputs;  // bytes of each result
  double tolerance = 0;                       // for compare_tensors
};

// Seed of the test data of one shape of one workload: the same in every run.
uint64_t data_seed(const TuningTask& task, const WorkloadPoint& point);
// Thread safe. Errors of the reference (an operator that it lacks) are passed on.
Expectation expected_result(const TuningTask& task, const WorkloadPoint& point);

}  // namespace nimble::tuner
