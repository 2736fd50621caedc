// Runs kernel IR on memory with every access checked: the oracle for generated code.
//
// It faults (nimble::Error, Status::kFatal, naming kernel, buffer and index) on whatever code
// generation may assume away: an element outside a buffer, a write to an input, a read of memory
// or a register that nothing has written, a symbol outside its stated range, a base address
// without its stated alignment, more rows of a matrix register than it has, index arithmetic beyond
// 64 bits, a race (two threads touch one element between two barriers, one of them writing),
// threads that disagree about a barrier.
//
// Threads run one after another up to each barrier, in the order of their numbers, so runs are
// deterministic. f32 operations round as the machine's do; min, max, casts, shifts and divisions
// follow kernel_ir.h. An unrolled loop runs as a loop: what unroll.h makes of it is compared with
// that. Speed: some tens of millions of lane operations a second.
//
// Of a launch, blocks run one after the other, and so do the warps of a block up to each of its
// barriers; the lanes of a warp run each statement together, a branch that they take differently
// one side after the other. Besides the above these fault: threads of which one writes an element
// that the other touches with no barrier of both between them, a block that touches what another
// writes, a copy that is read or written before its group or signal has been waited for (copies
// take effect as late as that), a wait for a signal that nothing ends or whose phase its parity
// cannot tell, lanes that are missing where a warp meets, several elements that the printer
// accesses at once (gpu_access.h) at an address that is no multiple of them. A buffer's own
// alignment is not asked for: views lie anywhere.
//
// Of a launch with steps all blocks are there at once, each with its registers and shared memory,
// and do a step one after the other. What a step leaves there is undefined in the next one, but for
// what was made ready ahead of all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>

#include "compiler/kernels/kernel_ir.h"

namespace nimble::kir {

struct InterpreterCode;

// How the warps of a launch used one buffer; an access is one instruction of one warp, of up to 16
// neighbouring bytes a lane where addresses are multiples of that.
struct MemoryUse {
  int64_t accesses = 0;
  // Global memory: 32-byte sectors that the accesses touched, and how few would hold their bytes.
  int64_t sectors = 0, least_sectors = 0;
  // Shared memory: turns that its 32 banks of 4 bytes took, how few would do without conflicts, and
  // the most turns for what could have been one (1: no conflict).
  int64_t turns = 0, least_turns = 0;
  int worst_ways = 0;
};
struct LaunchStatistics {
  std::map<std::string, MemoryUse> buffers;
};

class Interpreter {
 public:
  struct Options {
    bool fused = true;   // kFma rounds once, as on targets with FMA
    uint64_t order = 0;  // of a launch's blocks and warps: 0 forwards, 1 backwards, or a seed
    bool apart = false;  // a launch for each step
  };
  // Resolves every name once; `f` must be well formed (verify).
  explicit Interpreter(const Function& f);
  Interpreter(const Function& f, Options options);
  ~Interpreter();
  Interpreter(Interpreter&&) noexcept;

  // `buffers`: the bytes of each tensor argument in order (at least its extent), the elements of
  // arguments that are not written count as defined; `symbols`: values of the contract's symbols.
  // Returns 0, or the status of the check that failed (vm/executable/check_status.h). A launch has
  // its own number of threads, and adds to `statistics` how it used memory.
  int32_t run(std::span<const std::span<std::byte>> buffers, std::span<const int64_t> symbols,
              int threads = 1, LaunchStatistics* statistics = nullptr) const;

 private:
  std::unique_ptr<const InterpreterCode> code_;
  Options options_;
};

}  // namespace nimble::kir
