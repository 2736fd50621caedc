// Kernel IR to CUDA C++, and by NVRTC to a GPU's machine code, or to assembly (PTX), which a GPU's
// driver compiles where it is loaded. No header of CUDA's is included: NVRTC is opened at run time,
// and where it is missing only this is.
//
// A kernel is `extern "C" __global__ void NAME(buffers…, long long symbols…, void* scratch,
// int* status)`: pointers of the contract's tensors in order, then its symbols in order, then the
// call's scratch memory and where a failed check writes its status (the first one stays). One with
// steps of the whole grid takes three words more: its first step, the one that it ends ahead of,
// and where its blocks meet between steps, a u32 of the device's that is 0 ahead of the first
// launch. Tensor maps come last, as a driver encodes them, by value.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "compiler/codegen/code_cache.h"
#include "compiler/codegen/codegen.h"
#include "compiler/kernels/kernel_ir.h"
#include "compiler/kernels/target.h"

namespace nimble::codegen {

// Why no code for GPUs can be made here; "" if it can.
std::string why_no_cuda();
// Error(kUnsupported) if none can.
void require_cuda(const kernels::TargetInfo& target);
// "NVRTC 13.0"; "" where it is missing.
std::string cuda_backend_version();
// Its options, whatever the target.
std::string cuda_flags();

// As of CudaObject, without NVRTC.
uint32_t argument_alignment(const kir::Function& f, const kernels::TargetInfo& target);

// The CUDA C++ of one function, which unroll.h has left. Error(kUnsupported) for a CPU's function.
std::string cuda_source(const kir::Function& f, const kernels::TargetInfo& target);

// What the assembler says of a kernel; nothing of what a driver will assemble.
struct CudaResources {
  int registers = 0;         // of a thread
  int64_t spill_bytes = 0;   // of a thread, stores and loads
  int64_t shared_bytes = 0;  // static ones, beside the launch's
};

// A function's cubin, or of "compute_80" its PTX, which has it alone.
struct CudaObject {
  CompiledFunction function;
  std::vector<uint8_t> bytes;
  CudaResources resources;
  // What the assembler says where it waits behind products of a group of warps (assembler_log.h);
  // "" if it lets them go on side by side, or a driver will assemble the kernel. Whether such a
  // kernel will do, who asked for it knows: it is right, and as slow as this compiler makes it.
  std::string serialized;
  // Bytes of the widest access to an argument: a multiple of them is each one's address to be,
  // whatever its buffer claims. At most 16.
  uint32_t argument_alignment = 1;
  bool cached = false;  // it was compiled before
};

// Functions as for compile(), all of a GPU, in their order, by up to `threads` threads. Equal input
// gives equal bytes. What is in the cache is taken from there; null: nothing is.
std::vector<CudaObject> compile_cuda(std::span<const kir::Function> functions,
                                     const kernels::TargetInfo& target, int threads = 1,
                                     CodeCache* cache = nullptr);
// The assembly (SASS is not to be had without the toolkit: PTX).
std::string cuda_assembly(const kir::Function& f, const kernels::TargetInfo& target);

}  // namespace nimble::codegen
