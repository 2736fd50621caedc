#include "vm/interpreter/kernel.h"

#include <algorithm>

#include "vm/interpreter/collapse.h"
#include "vm/interpreter/kernel_faults.h"

namespace nimble::rt {
namespace {

using exec::Access;
using exec::KernelArgument;
using Dim = PreparedKernel::Dim;

// The most that one kernel of a model has of each.
struct Most {
  explicit Most(std::span<const PreparedKernel> kernels) {
    for (const PreparedKernel& k : kernels) {
      if (k.library) of_library = std::max<size_t>(of_library, k.tensors);
      tensors = std::max<size_t>(tensors, k.tensors);
      symbols = std::max<size_t>(symbols, k.symbols);
      others = std::max(others, k.arguments.size() - k.tensors);
    }
  }
  size_t tensors = 0, of_library = 0, symbols = 0, others = 0;
};

}  // namespace

void KernelFrame::reserve(std::span<const PreparedKernel> kernels) {
  const Most most(kernels);
  buffers.resize(most.tensors);
  tensors.resize(most.of_library);
  ranges.resize(most.of_library);
  collapsed.resize(most.of_library);
  portable_buffers.resize(most.tensors);
  scalars.resize(most.others);
  values.resize(most.others);
  symbols.resize(most.symbols + 1);
}

uint64_t KernelFrame::memory(std::span<const PreparedKernel> kernels) {
  const Most most(kernels);
  return most.tensors * (sizeof(void*) + sizeof(PortableBuffer)) +
         most.of_library * (sizeof tensors[0] + sizeof ranges[0] + sizeof collapsed[0]) +
         most.others * (sizeof(int64_t) + sizeof(const Cell*)) +
         (most.symbols + 1) * sizeof(int64_t);
}

void* Scratch::at_least(uint64_t bytes) {
  if (bytes > block_.bytes) {
    drop();
    block_ = pool_.allocate(bytes);
  }
  return block_.data;
}

void Scratch::drop() {
  pool_.release(block_);
  block_ = {};
}

void bind_arguments(const PreparedKernel& k, std::span<const Value> arguments, KernelFrame* frame) {
  int64_t* symbols = frame->symbols.data();
  void** buffer = frame->buffers.data();
  for (size_t i = 0; i < arguments.size(); ++i) {
    const PreparedKernel::Argument& a = k.arguments[i];
    const Value& v = arguments[i];
    if (a.kind == KernelArgument::Kind::kScalar) {
      if (!v.is_scalar()) [[unlikely]]
        fail_kind(k, i, "scalar", v);
      if (!a.binds && symbols[a.symbol] != v.scalar) [[unlikely]]
        fail_scalar(k, i, symbols[a.symbol], v.scalar);
      symbols[a.symbol] = v.scalar;
      continue;
    }
    if (a.kind == KernelArgument::Kind::kData) {
      if (!v.is(ObjectKind::kAdt)) [[unlikely]]
        fail_kind(k, i, "data-type value", v);
      continue;
    }
    if (!v.is(ObjectKind::kTensor)) [[unlikely]]
      fail_kind(k, i, "tensor", v);
    const Tensor& t = *static_cast<const Tensor*>(v.object);
    const int surplus = t.rank - a.rank;
    if (t.dtype != a.dtype || surplus < 0 || (surplus > 0 && !a.collapse)) [[unlikely]]
      fail_tensor(k, i, t, frame->symbols);
    const Dim* dim = k.dims.data() + a.first_dim;
    for (int d = 0; d < a.rank; ++d, ++dim) {
      int64_t expected = 0;
      int64_t extent = t.extents[d + surplus];
      // Only the product of an empty tensor's other extents can exceed 63 bits.
      if (d == 0 && surplus > 0 && !try_collapse(t, surplus, &extent)) [[unlikely]]
        fail_tensor(k, i, t, frame->symbols);
      switch (dim->kind) {
        case Dim::Kind::kBind:
          symbols[dim->symbol] = extent;
          continue;
        case Dim::Kind::kSymbol:
          expected = symbols[dim->symbol];
          break;
        case Dim::Kind::kConstant:
          expected = dim->value;
          break;
        case Dim::Kind::kProgram:
          expected = dim->program->evaluate1(frame->symbols);
          break;
      }
      if (extent != expected) [[unlikely]]
        fail_tensor(k, i, t, frame->symbols);
    }
    uint8_t* data = t.data();
    if (!data || (a.access != Access::kIn && !t.storage->writable())) [[unlikely]]
      fail_memory(k, i, t);
    if (t.storage->device != k.device->number() && device_checks()) [[unlikely]]
      fail_device(k, i, t);
    *buffer++ = data;
  }
  for (const exec::DimProgram& p : k.kernel->contract.requirements)
    if (p.evaluate1(frame->symbols) == 0) [[unlikely]]
      fail_requirement(k, p, frame->symbols);
}

}  // namespace nimble::rt
