// What a workload should compute at a shape.
//
// The reference interpreter computes small workloads as a whole. Large ones would take it minutes,
// longer than a campaign may last, so there the default schedule's own result is what every
// candidate is compared with, element by element, once it has been checked:
//
//   - at samples, each computed by the reference's operators from just what it needs (region.h):
//     corners and both sides of every edge of a tile, of a thread's share and of the rest behind
//     the last whole tile, with random elements in between;
//   - a product also by Freivalds' projection (Probabilistic machines can use less running time,
//     1977): a random combination of the result's rows must be the product of the same combination
//     of the operand's rows, which every element takes part in.
//
// Neither sees one wrong element far from an edge of an epilogue that is not linear. Candidates do:
// they were not made by the same schedule. Where one disagrees, the very element at which it
// disagrees most is computed by the reference, so that the default is not right by definition.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "tuner/service/workloads.h"

namespace nimble::tuner {

struct Expectation {
  std::vector<std::vector<uint8_t>> outputs;  // bytes of each result
  double tolerance = 0;                       // for compare_tensors
  bool sampled = false;                       // the default schedule's, checked at samples
};

// What the default schedule computes at the shape; nothing if it fails there.
using DefaultResult = std::function<std::optional<std::vector<std::vector<uint8_t>>>()>;

// Seed of the test data of one shape of one workload: the same in every run.
uint64_t data_seed(const TuningTask& task, const WorkloadPoint& point);
// Thread safe. `edges`: extents of tiles that the default schedule works in; empty: of any usual
// size. Errors of the reference (an operator that it lacks, an index out of range) are passed on;
// Error(kInternal) if the default schedule is wrong.
Expectation expected_result(const TuningTask& task, const WorkloadPoint& point,
                            const std::vector<int64_t>& edges, const DefaultResult& run);
// Whether `e` is right at one element, by the reference.
bool is_right(const TuningTask& task, const WorkloadPoint& point, const Expectation& e,
              uint32_t output, int64_t element);

}  // namespace nimble::tuner
