// A routine of a GPU's library as one implementation of a kernel wants it, and its calls.
//
// What a library wants to know of a call before it is made (which of its kernels serves, how much
// memory that takes) hangs on extents and on how the tensors lie, and takes a fraction of a
// millisecond, rarely more. So it is found out where a call of new sizes first comes, and kept: any
// size is served, and a session's third run of one finds everything. Tensors come as the VM has
// bound them to the contract; what the configuration says of them is compared with their extents
// then, so that the library touches nothing but whole tensors.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "vm/runtime/cuda_driver.h"

namespace nimble::rt {

class CudaDevice;
struct LibraryTensor;

// What serves calls of one kind: of these extents, with addresses that are multiples of as much.
class DeviceCall {
 public:
  virtual ~DeviceCall() = default;
  // Of the device's memory, for the time of the call.
  virtual uint64_t workspace_bytes() const = 0;
  // Whether there is nothing to start.
  virtual bool empty() const { return false; }
  // Starts it on a stream: the device's, or one that is captured into a graph, which then does the
  // same again and must not outlive this. `data`: where the call's tensors lie, in their order, at
  // addresses that find() would tell no difference of. It asks the device for nothing else. The
  // context is the thread's, and nothing is put off (CudaDevice::enter()). From any thread.
  virtual void start(std::span<void* const> data, void* workspace, cuda::Stream stream) const = 0;
};

class DeviceRoutine {
 public:
  virtual ~DeviceRoutine() = default;
  // What serves the call, from any thread. nullptr, and the reason in `why`, where the library has
  // nothing for these tensors or they are not what the routine is told to compute. The context is
  // the thread's.
  virtual std::shared_ptr<const DeviceCall> find(std::span<const LibraryTensor> tensors,
                                                 std::string* why) = 0;
};

}  // namespace nimble::rt
