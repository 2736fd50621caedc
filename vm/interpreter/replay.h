// The kernel calls of a run, made again without the machine: in their order, on the arguments that
// they had, from memory of their own that is there before. What a run takes beyond that is the
// machine's: bytecode, shape functions, allocation, checks of contracts, dispatch.
//
// A log notes what a call was given at the moment it was made. Memory of a pool moves from tensor
// to tensor in a run; a replay gives each stretch of it that the calls touched a place of its own
// and keeps how tensors shared it, so that caches are met as in the run. Constants and inputs stay
// where they are. Memory of a pool that no kernel had written before it was read (a default input,
// a copied scalar) is kept as it was.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "vm/interpreter/kernel.h"

namespace nimble::rt {

class KernelLog {
 public:
  // A call that has just been made of `kernel`: `frame` as it left it. Error(kUnsupported) for a
  // portable kernel, for one that takes values of data types and for one of another device.
  void add(const PreparedKernel& kernel, std::span<const Value> arguments, const KernelFrame& frame,
           const KernelCallResult& result);
  size_t size() const { return calls_.size(); }
  void clear();

 private:
  friend class KernelReplay;
  struct Buffer {
    const uint8_t* data = nullptr;
    uint64_t bytes = 0;
    bool moves = false;  // memory of a pool
    DType dtype = DType::kF32;
    std::vector<int64_t> shape;  // of library kernels
  };
  struct Call {
    nimble_kernel_fn native = nullptr;
    const LibraryKernel* library = nullptr;
    const ReadyCall* ready = nullptr;  // of the library's, if it is a vendor's routine
    int32_t threads = 1, shares_per_thread = 1;
    uint64_t scratch = 0;
    std::vector<Buffer> buffers;
    std::vector<int64_t> symbols, scalars;
  };
  // Whether kernels have written all of it, one after the other.
  bool written(const uint8_t* data, uint64_t bytes) const;
  void note_written(const uint8_t* data, uint64_t bytes);

  std::vector<Call> calls_;
  std::map<const uint8_t*, const uint8_t*> written_;  // stretches, from begin to end, apart
  std::deque<std::vector<uint8_t>> kept_;             // what something else had written
};

class KernelReplay {
 public:
  // `log` as one run left it; constants and inputs of that run must outlive this.
  KernelReplay(const KernelLog& log, ThreadPool& pool);
  ~KernelReplay();
  KernelReplay(const KernelReplay&) = delete;
  KernelReplay& operator=(const KernelReplay&) = delete;

  // Makes all calls in their order. Error(kFatal) if a kernel refuses.
  void run();
  // Where the replay has what the run had at this address, such as an output; nullptr if no call
  // touched it.
  const uint8_t* at(const void* recorded) const;
  // Bytes that it holds besides constants and inputs.
  uint64_t bytes() const { return bytes_; }

 private:
  struct Prepared;
  struct Stretch {
    const uint8_t* end = nullptr;  // of what was recorded
    uint8_t* data = nullptr;       // here
  };
  std::map<const uint8_t*, Stretch> stretches_;  // by where they began
  std::vector<std::unique_ptr<Prepared>> calls_;
  ThreadPool& pool_;
  uint8_t* memory_ = nullptr;
  uint64_t bytes_ = 0;
};

}  // namespace nimble::rt
