// A vendor's routine as one implementation of a kernel wants it, and what it has made ready.
//
// Making code, and weights as the library wants them, takes milliseconds to seconds. So both are
// made where a model is loaded, for the sizes that have entries of their own in the dispatch table,
// and a call finds what is ready or learns that nothing is: then another implementation serves it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace nimble::rt {

struct LibraryCall;
struct LibraryTensor;

// What serves calls of one shape. Any number of threads may run calls at a time.
class ReadyCall {
 public:
  virtual ~ReadyCall() = default;
  // The share of `thread` of `threads`, as LibraryKernel::run. Whatever the number of threads, the
  // result is the same: work is cut into the shares that it was made ready for.
  virtual void run(const LibraryCall& call, int32_t thread, int32_t threads) const = 0;
};

class VendorRoutine {
 public:
  virtual ~VendorRoutine() = default;

  // The constant weights' place among the tensors; nothing if they come with each call.
  virtual std::optional<size_t> weights() const = 0;
  // Makes a call on tensors of these shapes ready, cut into `shares`; of its data only the constant
  // weights' is read, now, and it must stay where it is. Returns the bytes that it keeps, 0 for
  // what was ready before. Error(kUnsupported) where the library has nothing for these sizes or
  // they are not what the routine is told to compute. Not while anyone runs or finds.
  virtual uint64_t make_ready(std::span<const LibraryTensor> tensors, int32_t shares) = 0;
  // What serves the call; nullptr if nothing was made ready for these shapes and weights.
  virtual const ReadyCall* find(std::span<const LibraryTensor> tensors) const = 0;
  // Drops all that is ready: the weights' place is about to hold others.
  virtual void forget() = 0;
};

}  // namespace nimble::rt
