// Launches of kernels that are started at once: a CUDA graph in which each waits for the one before
// it. The host asks for it in one call, and the device goes from kernel to kernel by itself.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "vm/runtime/cuda_device.h"

namespace nimble::rt {

// A launch as a caller keeps it. `parameters` as those of CudaDevice::launch.
struct CudaLaunch {
  cuda::Function function = nullptr;
  std::array<uint32_t, 3> grid{};
  uint32_t threads = 0, shared_bytes = 0;
  void** parameters = nullptr;
};

class CudaGraph {
 public:
  // Whether the driver has what it needs.
  static bool available(const CudaDriver& driver);
  // Parameters are copied; the functions' modules must outlive it. Throws what the driver says.
  CudaGraph(CudaDevice& device, std::span<const CudaLaunch> launches);
  // What still runs of it is done first.
  ~CudaGraph();
  CudaGraph(const CudaGraph&) = delete;
  CudaGraph& operator=(const CudaGraph&) = delete;

  // Starts it behind all that was asked for before, itself included.
  void start();

 private:
  CudaDevice& device_;
  cuda::GraphExec exec_ = nullptr;
};

}  // namespace nimble::rt
