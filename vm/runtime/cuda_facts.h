// This machine's GPU, for records of what is measured on it. It is asked without a context: who
// asks takes no memory of it.
#pragma once

#include "vm/base/gpu_facts.h"

namespace nimble::rt {

// Of the GPU that NIMBLE_CUDA_DEVICE names, else the first. Error(kUnsupported) without a driver or
// a GPU.
GpuFacts cuda_facts();

}  // namespace nimble::rt
