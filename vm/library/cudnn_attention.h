// cuDNN's attention (cudnn_attention.cpp), for the library's other file. Internal to vm/library.
#pragma once

#include <memory>
#include <string>

#include "vm/executable/contract.h"
#include "vm/library/device_routine.h"

namespace nimble::rt {

// As LibraryKernel::prepare_on_gpu.
std::shared_ptr<DeviceRoutine> prepare_cudnn_attention(const std::string& configuration,
                                                       const exec::KernelContract& contract,
                                                       CudaDevice& device);

}  // namespace nimble::rt
