// Kernels that are not machine code inside the executable: host operators, written in C++ here,
// and routines of vendor libraries, opened at run time. Bytecode reaches them through the
// implementations of a kernel (kind kHost or kVendor) by name. Both run like native kernels: once
// per thread of a region, after the VM has checked the kernel's contract. A vendor's routine is
// told by its implementation's configuration what to compute, and made ready at load
// (vendor_routine.h). One of a GPU's library is started like a launch, and made ready where a call
// first needs it (device_routine.h).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "vm/base/dtype.h"
#include "vm/base/kernel_abi.h"
#include "vm/executable/contract.h"
#include "vm/executable/executable.h"
#include "vm/library/device_routine.h"
#include "vm/library/vendor_routine.h"
#include "vm/runtime/object.h"
#include "vm/runtime/work_meter.h"

namespace nimble::rt {

// A dense row-major tensor as a library kernel sees it: of the contract's rank, with extents that
// the VM has compared with the contract's.
struct LibraryTensor {
  DType dtype = DType::kF32;
  std::span<const int64_t> shape;
  void* data = nullptr;
};

// A tensor that the kernel may write shares no byte with another of the call. Parts of data-type
// values may lie anywhere.
struct LibraryCall {
  std::span<const LibraryTensor> tensors;  // the contract's tensor arguments, in order
  std::span<const int64_t> symbols;        // the contract's symbols
  std::span<const int64_t> scalars;        // the values of its scalar arguments, in order
  void* scratch = nullptr;                 // as the contract asks
  std::span<const Cell* const> values{};   // its data-type values, in order
  // What the call takes of the run, by its first thread; others only poll. Never nullptr in a call
  // of the VM's.
  WorkMeter* meter = nullptr;
};

// What a contract must say of one tensor for a kernel to serve it.
struct TensorRule {
  // kFixed: `dtype`. kSame: the same for all tensors of the kernel whose rule says so. kAny: any.
  enum class Type : uint8_t { kFixed, kSame, kAny };
  exec::Access access = exec::Access::kIn;
  Type type = Type::kSame;
  DType dtype = DType::kF32;
  int min_rank = 0, max_rank = kMaxRank;
  bool rank_of_first = false;  // as many dims as the first tensor
};

// What a contract must look like as far as its arguments tell one by one.
struct ContractRule {
  std::vector<TensorRule> tensors;  // in the contract's order
  bool more = false;                // there may be more like the last, or none of it
  size_t scalars = 0;               // at least; what follows are extents of results
  size_t values = 0;                // of data types, exactly
  // "" if the contract keeps the rule, else what breaks it.
  std::string broken_by(const exec::KernelContract& contract) const;
};

struct LibraryKernel {
  std::string name;  // "host.copy", "onednn.matmul"
  exec::ImplementationKind kind = exec::ImplementationKind::kHost;
  std::string signature;  // "x f32 (m, k), w f32 (k, n) [, bias f32 (n)] -> y f32 (m, n)"
  std::string summary;    // a sentence
  // What `rule` leaves open: "" if a kernel of this contract may be served, else what does not fit.
  // Called at load; nullptr: nothing.
  std::string (*check)(const exec::KernelContract& contract) = nullptr;
  // "" if it can run on this machine now, else why not (a library that is not installed).
  // Called at load; nullptr: always.
  std::string (*unavailable)() = nullptr;
  // Once per thread. Failures are nimble::Error, thrown on any thread before its first barrier
  // or after its last. A host operator charges the meter for what it does before or while it does
  // it; whatever the tensors hold, it writes where they are and ends.
  void (*run)(const LibraryCall& call, int32_t thread, int32_t threads,
              nimble_barrier* barrier) = nullptr;
  std::optional<ContractRule> rule{};  // every host operator has one
  // The library behind it and its version ("oneDNN 2.6.3"): what was measured of one version tells
  // nothing sure of another. "" where the library is not installed; nullptr: part of nimble.
  std::string (*version)() = nullptr;
  // A routine that is made ready before it runs; then `run` is nullptr. Error(kCorrupt,
  // kUnsupported, kIncompatible): this implementation cannot be used here. nullptr: it needs none.
  std::unique_ptr<VendorRoutine> (*prepare)(const std::string& configuration,
                                            const exec::KernelContract& contract) = nullptr;
  // The same of a routine of a GPU's library, which computes there alone.
  std::shared_ptr<DeviceRoutine> (*prepare_on_gpu)(const std::string& configuration,
                                                   const exec::KernelContract& contract,
                                                   CudaDevice& device) = nullptr;

  // "" if a kernel of this contract may be served: `rule` and `check`.
  std::string refusal(const exec::KernelContract& contract) const;
};

// The kernel of a name; nullptr if there is none. Valid for the life of the process.
const LibraryKernel* find_library_kernel(exec::ImplementationKind kind, std::string_view name);
// All of them, by name: for tests of each and the documentation.
std::vector<const LibraryKernel*> library_kernels();
// Adds a kernel: an extension or a test. Error(kInvalidArgument) if the name is taken.
void add_library_kernel(LibraryKernel kernel);

}  // namespace nimble::rt
