// A kernel prepared for calls: its contract compiled to a straight list of checks, its
// implementations resolved to code. A call binds the symbols, checks every dim, walks the
// dispatch tree and starts one parallel region; at a fixed shape it allocates nothing.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "vm/base/kernel_abi.h"
#include "vm/executable/executable.h"
#include "vm/interpreter/portable_kernel.h"
#include "vm/library/registry.h"
#include "vm/runtime/cuda_driver.h"
#include "vm/runtime/device.h"
#include "vm/runtime/object.h"
#include "vm/runtime/thread_pool.h"
#include "vm/runtime/work_meter.h"

namespace nimble::rt {

// How long a target's last region took, whoever ran it: what the next is cut by.
class LastTime {
 public:
  LastTime() = default;
  LastTime(const LastTime& other) : ns_(other.ns()) {}
  LastTime& operator=(const LastTime& other) {
    set(other.ns());
    return *this;
  }
  int64_t ns() const { return ns_.load(std::memory_order_relaxed); }
  void set(int64_t ns) const { ns_.store(ns, std::memory_order_relaxed); }

 private:
  mutable std::atomic<int64_t> ns_{0};
};

// One implementation as it will be run.
struct KernelTarget {
  nimble_kernel_fn native = nullptr;
  // Of a kernel on the GPU, and how it is started (gpu_launches.h).
  cuda::Function function = nullptr;
  const exec::Launch* launch = nullptr;
  int64_t blocks_at_once = 0;  // of a launch with steps; 0: its blocks cannot wait for each other
  const LibraryKernel* library = nullptr;
  // Of the library's kernels that are made ready before they run.
  std::shared_ptr<VendorRoutine> routine;
  // Of a GPU's library.
  std::shared_ptr<DeviceRoutine> device_routine;
  // Whether it may have nothing for a call.
  bool is_routine() const { return routine || device_routine; }
  bool portable = false;  // the kernel's portable form
  int32_t max_threads = 0;
  bool divisible = false;  // may be cut into more shares than threads
  LastTime last;           // if it is
  // What runs: itself, or the implementation that stands in for a vendor's that is missing. The
  // portable form, where it stands in, comes behind the last one.
  uint32_t implementation = 0;
};

struct PreparedKernel {
  const exec::Kernel* kernel = nullptr;
  const std::vector<std::string>* texts = nullptr;  // of the executable: messages of checks
  struct Argument {
    exec::KernelArgument::Kind kind;
    exec::Access access;
    DType dtype;
    uint8_t rank;
    bool collapse;       // surplus leading axes are multiplied into the first dim
    uint32_t first_dim;  // in `dims`
    uint32_t symbol;
    bool binds = false;  // a scalar that tells its symbol; another must agree with it
  };
  struct Dim {
    enum class Kind : uint8_t { kBind, kSymbol, kConstant, kProgram };
    Kind kind;
    uint32_t symbol;
    int64_t value;
    const exec::DimProgram* program;
  };
  std::vector<Argument> arguments;
  std::vector<Dim> dims;
  std::vector<KernelTarget> targets;
  // What serves a call for which a routine has nothing ready.
  std::optional<KernelTarget> stand_in;
  std::shared_ptr<const PortableProgram> portable;  // if any target needs it
  uint32_t tensors = 0;
  uint32_t symbols = 0;
  // For the operations of the contract's programs and the longest way through the tree: what a call
  // takes before the kernel runs.
  uint64_t contract_steps = 0;
  bool uses_scratch = true;
  bool library = false;      // any of the targets is the library's
  bool single = false;       // the tree is one leaf
  bool launches = false;     // its targets are a GPU's: code, or a library's routines
  uint32_t alignment = 1;    // of arguments of launches: a power of two
  Device* device = nullptr;  // where it runs
  uint64_t memory() const;   // bytes that it takes
};
// Of its code on a GPU: a word for each tensor and symbol, then for scratch memory and the status;
// of a launch with steps also for the first one, the one to end ahead of, and where blocks meet.
inline constexpr size_t kStepParameters = 3;
inline size_t launch_parameters(const PreparedKernel& k, const exec::Launch& launch) {
  return size_t{k.tensors} + k.symbols + 2 + (launch.steps ? kStepParameters : 0);
}

// Resolves a native symbol; nullptr if there is none. An empty function: no native code may run,
// nor a vendor's; host operators and portable forms run in their place.
using FindNative = std::function<nimble_kernel_fn(std::string_view)>;
// The same on the GPU, for launches with at most so many bytes of shared memory, so many parameters
// and tensor maps.
using FindOnDevice = std::function<cuda::Function(const std::string&, uint32_t shared_bytes,
                                                  size_t parameters, size_t maps)>;
struct NativeCode {
  FindNative host;
  FindOnDevice device;
};

// `kernel` must be verified and outlive the result. One with launches needs `code.device` or a
// portable form that the host runs in its place. An implementation of a vendor library that is
// not there, is of another version than was measured, or does not take this contract, is replaced
// by the first one of the kernel that is there, and `notes` says so of some; without any,
// Error(kIncompatible). A missing native symbol is Error(kCorrupt), a missing host operator
// Error(kUnsupported), a missing portable form that is needed Error(kIncompatible).
PreparedKernel prepare_kernel(const exec::Kernel& kernel, const NativeCode& code,
                              const std::string& place, std::vector<std::string>* notes);

using CollapsedShape = std::array<int64_t, kMaxRank>;

// Space for one call at a time, sized once for all kernels of a model.
struct KernelFrame {
  // The bytes of a tensor argument.
  struct Range {
    uintptr_t begin = 0, end = 0;
    size_t argument = 0;
    bool written = false;
  };
  std::vector<void*> buffers;
  std::vector<int64_t> symbols;  // and, last, the number of threads
  std::vector<LibraryTensor> tensors;
  std::vector<CollapsedShape>
      collapsed;  // shapes of `tensors`, where they are not the tensors' own
  std::vector<Range> ranges;
  std::vector<PortableBuffer> portable_buffers;
  PortableFrame portable;
  WorkMeter meter;  // of portable code and host operators; the caller sets and reads it
  std::vector<int64_t> scalars;
  std::vector<const Cell*> values;
  void reserve(std::span<const PreparedKernel> kernels);
  // Bytes that reserve() takes.
  static uint64_t memory(std::span<const PreparedKernel> kernels);
};

// What a call did, for the profiler.
struct KernelCallResult {
  uint32_t implementation = 0;
  int32_t threads = 1;
  int32_t shares_per_thread = 1;
  const ReadyCall* ready = nullptr;  // of a vendor's routine, if one ran
};

// Scratch memory that a session keeps from call to call.
class Scratch {
 public:
  explicit Scratch(StoragePool& pool) : pool_(pool) {}
  ~Scratch() { pool_.release(block_); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  void* at_least(uint64_t bytes);
  void drop();

 private:
  StoragePool& pool_;
  Block block_;
};

// Binds and checks `arguments` against the contract: Error(kFatal) naming kernel, operator,
// argument, expected and actual extents (or devices). Fills frame.buffers and frame.symbols.
void bind_arguments(const PreparedKernel& kernel, std::span<const Value> arguments,
                    KernelFrame* frame);
// Makes the kernel's routines ready for a call of these arguments, which are bound, in so many
// shares; returns the bytes that they keep for it. Error(kUnsupported) if one has nothing for them.
// Not while anyone runs the kernel, and nothing that is ready may outlive the arguments' weights:
// forget_ready() drops it.
uint64_t make_ready(const PreparedKernel& kernel, std::span<const Value> arguments, int32_t shares,
                    KernelFrame* frame);
void forget_ready(const PreparedKernel& kernel);
// Runs a bound kernel on up to `threads` threads of `pool`. Where dispatch chooses a routine that
// has nothing ready for the call, the kernel's stand-in runs.
KernelCallResult run_kernel(const PreparedKernel& kernel, std::span<const Value> arguments,
                            int32_t threads, ThreadPool& pool, Scratch& scratch,
                            KernelFrame* frame);

}  // namespace nimble::rt
