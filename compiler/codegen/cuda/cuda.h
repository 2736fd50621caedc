// Kernel IR to CUDA C++, and by NVRTC to a GPU's machine code. No header of CUDA's is included:
// NVRTC is opened at run time, and where it is missing only this is.
//
// A kernel is `extern "C" __global__ void NAME(buffers…, long long symbols…, void* scratch,
// int* status)`: pointers of the contract's tensors in order, then its symbols in order, then the
// call's scratch memory and where a failed check writes its status (the first one stays).
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "compiler/codegen/codegen.h"
#include "compiler/kernels/kernel_ir.h"
#include "compiler/kernels/target.h"

namespace nimble::codegen {

// Why no code for GPUs can be made here; "" if it can.
std::string why_no_cuda();
// "NVRTC 13.0"; "" where it is missing.
std::string cuda_backend_version();

// The CUDA C++ of one function, which unroll.h has left. Error(kUnsupported) for a CPU's function.
std::string cuda_source(const kir::Function& f, const kernels::TargetInfo& target);

// What the assembler says of a kernel.
struct CudaResources {
  int registers = 0;         // of a thread
  int64_t spill_bytes = 0;   // of a thread, stores and loads
  int64_t shared_bytes = 0;  // static ones, beside the launch's
};

struct CudaModule {
  std::vector<uint8_t> bytes;  // a cubin
  std::vector<CompiledFunction> functions;
  std::map<std::string, CudaResources> resources;
};

// Functions as for compile(), all of a GPU, in one module. Equal input gives equal bytes; a
// function's code hash does not depend on the others.
CudaModule compile_cuda(std::span<const kir::Function> functions,
                        const kernels::TargetInfo& target);
// The assembly (SASS is not to be had without the toolkit: PTX).
std::string cuda_assembly(const kir::Function& f, const kernels::TargetInfo& target);

}  // namespace nimble::codegen
