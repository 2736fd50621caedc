#include "vm/interpreter/gpu_arguments.h"

#include "vm/interpreter/collapse.h"

namespace nimble::rt {

void GpuArguments::move(const PreparedKernel& kernel, std::span<const Value> arguments,
                        KernelFrame* frame) {
  moved_.reserve(kernel.tensors);
  size_t n = 0;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (!arguments[i].is(ObjectKind::kTensor)) continue;
    void*& at = frame->buffers[n++];
    if (reinterpret_cast<uintptr_t>(at) % kernel.alignment == 0) continue;
    const Tensor& t = *static_cast<const Tensor*>(arguments[i].object);
    const uint64_t bytes = bytes_of(t);
    moved_.push_back(
        {pool_.allocate(bytes), at, bytes, kernel.arguments[i].access != exec::Access::kIn});
    // What is written, too: a kernel may leave elements as they are.
    if (bytes > 0) kernel.device->copy_within(moved_.back().block.data, at, bytes);
    at = moved_.back().block.data;
  }
}

void GpuArguments::copy_back() {
  for (const Moved& m : moved_)
    if (m.written && m.bytes > 0) pool_.device().copy_within(m.from, m.block.data, m.bytes);
}

GpuArguments::~GpuArguments() {
  for (const Moved& m : moved_) pool_.release(m.block);
}

}  // namespace nimble::rt
