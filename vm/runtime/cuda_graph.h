// Launches of kernels that are started at once: a CUDA graph in which each waits for the one before
// it. The host asks for it in one call, and the device goes from kernel to kernel by itself. What a
// library starts, whose kernels nobody else knows, is captured from a stream as a graph within it.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <span>

#include "vm/runtime/cuda_device.h"

namespace nimble::rt {

// A launch as a caller keeps it. `parameters` as those of CudaDevice::launch.
struct CudaLaunch {
  // Asks for something in a stream, with the addresses that it is to have whenever the graph runs,
  // and for nothing else of the device.
  using Captured = std::function<void(cuda::Stream)>;
  cuda::Function function = nullptr;
  std::array<uint32_t, 3> grid{};
  uint32_t threads = 0, shared_bytes = 0;
  void** parameters = nullptr;
  const Captured* captured = nullptr;  // instead of a function
};

class CudaGraph {
 public:
  // Whether the driver has what it needs.
  static bool available(const CudaDriver& driver);
  // And for what is captured.
  static bool captures(const CudaDriver& driver);
  // Parameters are copied; the functions' modules, and what is captured, must outlive it. Throws
  // what the driver says, and what capturing throws.
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
