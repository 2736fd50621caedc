#include "vm/runtime/cuda_facts.h"

#include "vm/runtime/cuda_device.h"

namespace nimble::rt {

GpuFacts cuda_facts() {
  return cuda_device_info(CudaDriver::open());
}

}  // namespace nimble::rt
