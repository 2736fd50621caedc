// Arguments of a GPU's kernel that lie where its vectors can't: views of rows, at any offset. They
// are copied to memory of their own before the launch, and back after it where they are written.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "vm/interpreter/kernel.h"
#include "vm/runtime/storage_pool.h"
#include "vm/runtime/tensor_maps.h"

namespace nimble::rt {

// What a map of a kernel's describes in a call whose arguments are bound in `frame`, copies of them
// included. Error(kFatal) if it were more than its tensor.
BoxedTensor boxed_tensor(const PreparedKernel& kernel, const exec::TensorMap& map,
                         std::span<const Value> arguments, const KernelFrame& frame);

class GpuArguments {
 public:
  // Of a kernel whose `arguments` are bound in `frame`, which is told where the copies are; `pool`
  // is the kernel's device's. Error(kExhausted) beyond its limit.
  GpuArguments(const PreparedKernel& kernel, std::span<const Value> arguments, KernelFrame* frame,
               StoragePool& pool)
      : GpuArguments(pool) {  // what is made before an error goes back
    uintptr_t bits = 0;
    for (uint32_t i = 0; i < kernel.tensors; ++i)
      bits |= reinterpret_cast<uintptr_t>(frame->buffers[i]);
    if (bits & (kernel.alignment - 1)) [[unlikely]]
      move(kernel, arguments, frame);
  }
  // The device does one thing after the other: memory may go back before it has been read.
  ~GpuArguments();
  GpuArguments(const GpuArguments&) = delete;
  GpuArguments& operator=(const GpuArguments&) = delete;

  // Behind the launch.
  void copy_back();

 private:
  explicit GpuArguments(StoragePool& pool) : pool_(pool) {}

  struct Moved {
    Block block;
    void* from = nullptr;
    uint64_t bytes = 0;
    bool written = false;
  };
  void move(const PreparedKernel& kernel, std::span<const Value> arguments, KernelFrame* frame);

  StoragePool& pool_;
  std::vector<Moved> moved_;
};

}  // namespace nimble::rt
