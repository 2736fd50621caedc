// Runs the portable form of a kernel (vm/executable/portable_kernel.h) with every access checked:
// for files whose native code nobody vouches for, for machines of another instruction set, and
// for tests that pit it against native code.
//
// Safe for any code that exec::verify_portable accepts: whatever the code does, it reads and
// writes only its buffers' bytes and its own registers, computes without undefined behaviour, and
// ends within its budget. It runs on the calling thread, and equal inputs give equal bits on every
// machine. Against native code, results differ by rounding: multiply-adds round twice here
// (as on x86-64-v2), and sums may be split otherwise.
//
// Method: the code is turned once into an array of operations, each with a function for its
// operand types and number of lanes, register offsets and jump targets. A run is a chain of calls
// through that array over one frame. The unit of work is a vector register, so that the cost of
// a call is shared by its lanes.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "vm/executable/portable_kernel.h"
#include "vm/runtime/work_meter.h"

namespace nimble::rt {

struct PortableBuffer {
  uint8_t* data = nullptr;
  uint64_t bytes = 0;
};

// The same in elements, scratch included, as a run sees it.
struct PortableMemory {
  uint8_t* data = nullptr;
  int64_t extent = 0;
};

// Memory of one run at a time, kept between runs.
class PortableFrame {
 public:
  PortableFrame();
  ~PortableFrame();
  PortableFrame(PortableFrame&&) = default;
  PortableFrame& operator=(PortableFrame&&) = default;

 private:
  friend class PortableProgram;
  // At least `bytes` bytes, all zero, aligned to 64.
  uint8_t* registers(size_t bytes);

  Charge charged_;  // for the vectors

  std::vector<PortableMemory> buffers_;
  std::vector<int64_t> indices_, trips_;
  struct alignas(64) Line {
    uint8_t bytes[64];
  };
  std::vector<Line> lines_;
};

class PortableProgram {
 public:
  // `kernel` must be verified for `contract`; both may die after this. `name` is for messages.
  PortableProgram(const exec::PortableKernel& kernel, const exec::KernelContract& contract,
                  std::string name);
  ~PortableProgram();

  // Bytes that the program takes.
  uint64_t memory() const;
  // Bytes of scratch at these symbols. Error(kExhausted) beyond kMaxScratchBytes, Error(kFatal) if
  // an extent is negative or overflows.
  uint64_t scratch_bytes(std::span<const int64_t> symbols) const;
  // `buffers`: the tensor arguments in the contract's order; `scratch` has scratch_bytes. Returns
  // 0, or the status of a check that failed. Error(kFatal) for an access outside of a buffer,
  // Error(kExhausted) when the steps are used up, Error(kCancelled). A step is one operation of the
  // code as written: entering a block costs the operations directly in it, whether they are skipped
  // or not.
  int32_t run(std::span<const PortableBuffer> buffers, std::span<const int64_t> symbols,
              uint8_t* scratch, PortableFrame* frame, WorkMeter* meter) const;

  static constexpr uint64_t kMaxScratchBytes = uint64_t{1} << 32;

 private:
  struct Code;
  std::unique_ptr<const Code> code_;
};

}  // namespace nimble::rt
