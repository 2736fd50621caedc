// The data with which a workload's kernels are run: compared with the reference, and timed.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <vector>

#include "compiler/kernels/workload.h"
#include "tuner/measure/inputs.h"

namespace nimble::tuner {

// Of the tensors that the workload reads, in order. `terms` says how many a sum of the group has,
// at a shape that stands for all. Indices into a symbolic extent are 0; `indexed` gets which of the
// fills they are, and the extent.
std::vector<Fill> fills_of(const kernels::Workload& w,
                           const std::function<double(const ir::Binding&)>& terms,
                           std::map<size_t, ir::Dim>* indexed);

}  // namespace nimble::tuner
