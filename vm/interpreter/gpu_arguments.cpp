#include "vm/interpreter/gpu_arguments.h"

#include "vm/base/error.h"
#include "vm/interpreter/collapse.h"
#include "vm/interpreter/kernel_faults.h"

namespace nimble::rt {

BoxedTensor boxed_tensor(const PreparedKernel& kernel, const exec::TensorMap& map,
                         std::span<const Value> arguments, const KernelFrame& frame) {
  // The verifier has looked: the tensor is there, and so many axes are possible.
  size_t argument = 0;
  for (uint32_t n = 0;; ++argument)
    if (arguments[argument].is(ObjectKind::kTensor) && n++ == map.argument) break;
  BoxedTensor out;
  out.dtype = kernel.arguments[argument].dtype;
  out.address = frame.buffers[map.argument];
  out.rank = static_cast<uint32_t>(map.axes.size());
  const std::span<const int64_t> symbols(frame.symbols.data(), kernel.symbols);
  const uint64_t bytes = bytes_of(*static_cast<const Tensor*>(arguments[argument].object));
  uint64_t left = bytes / size_of(out.dtype);  // elements, divided by the extents so far
  bool empty = false, sound = true;
  for (size_t axis = 0; axis < out.rank; ++axis) {
    const int64_t extent = map.axes[axis].extent.evaluate1(symbols);
    out.extents[axis] = extent;
    out.box[axis] = map.axes[axis].box;
    empty |= extent == 0;
    sound &= extent >= 0;
    if (extent > 0) left /= static_cast<uint64_t>(extent);
  }
  if (!sound || (!empty && left == 0))
    throw Error(Status::kFatal, "",
                fmt::format("{}: the tensor map of its tensor {} describes {} elements, which that "
                            "has not",
                            kernel_text(kernel), map.argument,
                            fmt::join(out.extents.begin(), out.extents.begin() + out.rank, " x ")),
                "compile the model again");
  return out;
}

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
