// NVIDIA's driver, opened at run time: nothing of CUDA is linked or included, and a machine without
// it loses nothing but the device. What is called is in CudaFunctions.def.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace nimble::rt {

// The driver's types, as far as they cross its border.
namespace cuda {
using Address = unsigned long long;  // in the GPU's memory
using Context = struct ContextOf*;
using Stream = struct StreamOf*;
using Event = struct EventOf*;
using Module = struct ModuleOf*;
using Function = struct FunctionOf*;
using Graph = struct GraphOf*;
using GraphExec = struct GraphExecOf*;
using GraphNode = struct GraphNodeOf*;
// CUDA_KERNEL_NODE_PARAMS_v2.
struct KernelNode {
  Function function = nullptr;
  unsigned grid[3] = {1, 1, 1}, block[3] = {1, 1, 1}, shared_bytes = 0;
  void** parameters = nullptr;
  void** extra = nullptr;
  void* kernel = nullptr;     // instead of the function
  Context context = nullptr;  // nullptr: the current one
};

inline constexpr int kSuccess = 0;
inline constexpr int kOutOfMemory = 2;
inline constexpr int kNotFound = 500;
inline constexpr int kTooManyBlocks = 720;  // CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE
// Attributes of a device (CUDA Driver API, CUdevice_attribute).
inline constexpr int kMultiprocessors = 16;
inline constexpr int kPciBus = 33, kPciSlot = 34, kPciDomain = 50;
inline constexpr int kMemoryKhz = 36, kBusBits = 37, kL2Bytes = 38;
inline constexpr int kCapabilityMajor = 75, kCapabilityMinor = 76;
inline constexpr int kCooperativeLaunch = 95;
inline constexpr int kMostSharedBytes = 97;  // of a block that asks for it
// Attributes of a function.
inline constexpr int kDynamicSharedBytes = 8;
// Flags.
inline constexpr unsigned kNonBlocking = 1;            // of a stream: not tied to the default one
inline constexpr unsigned kTimes = 0, kNoTimes = 2;    // of an event
inline constexpr unsigned kPortable = 1, kMapped = 2;  // of pinned memory
inline constexpr int kOfThread = 1;  // of a capture: what other threads ask for does not disturb it
inline constexpr int kErrorLog = 5, kErrorLogBytes = 6;  // options of loading a module
}  // namespace cuda

class CudaDriver {
 public:
  // Functions as of CUDA 12.0 are called.
  static constexpr int kOldest = 12000;

  // The library that NIMBLE_CUDA_DRIVER names, else libcuda.so.1; it is opened once and stays open.
  // Error(kUnsupported) if it is missing or too old; tried again at the next call.
  static const CudaDriver& open();

#define NIMBLE_CUDA_FUNCTION(name, parameters) int(*name) parameters = nullptr;
#define NIMBLE_CUDA_OPTIONAL(name, parameters) int(*name) parameters = nullptr;
#include "vm/runtime/CudaFunctions.def"

  // 12040 for 12.4: the newest CUDA whose programs it runs.
  int version() const {
    return version_;
  }
  std::string version_text() const;
  // "CUDA_ERROR_ILLEGAL_ADDRESS (an illegal memory access was encountered)".
  std::string text_of(int result) const;
  // Whether the process has no use of the GPU after it.
  static bool loses_device(int result);
  // Throws the error of a call's result, unless it is a success. `more`: of the user's, or "".
  void check(int result, std::string_view call, std::string_view more = {}) const;

 private:
  explicit CudaDriver(const std::string& file);
  int version_ = 0;
};

}  // namespace nimble::rt
