#include "vm/runtime/cuda_facts.h"

#include "vm/runtime/cuda_device.h"

namespace nimble::rt {
namespace {

// Attributes of a device (CUDA Driver API, CUdevice_attribute).
constexpr int kMemoryKhz = 36, kBusBits = 37, kL2Bytes = 38;

}  // namespace

GpuFacts cuda_facts() {
  const CudaDriver& driver = CudaDriver::open();
  const CudaDeviceInfo info = cuda_device_info(driver);
  int device = 0;
  driver.check(driver.cuDeviceGet(&device, info.ordinal), "cuDeviceGet");
  // What only describes it may be missing.
  const auto attribute = [&](int which) {
    int value = 0;
    return driver.cuDeviceGetAttribute(&value, which, device) == cuda::kSuccess ? value : 0;
  };
  GpuFacts out;
  out.name = info.name;
  out.capability = info.capability;
  out.multiprocessors = info.multiprocessors;
  out.shared_bytes = info.shared_bytes;
  out.l2_bytes = attribute(kL2Bytes);
  out.memory_bytes = info.memory_bytes;
  out.memory_khz = attribute(kMemoryKhz);
  out.bus_bits = attribute(kBusBits);
  return out;
}

}  // namespace nimble::rt
