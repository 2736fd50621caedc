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
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "compiler/kernels/kernel_ir.h"

namespace nimble::kir {

struct InterpreterCode;

class Interpreter {
 public:
  struct Options {
    bool fused = true;  // kFma rounds once, as on targets with FMA
  };
  // Resolves every name once; `f` must be well formed (verify).
  explicit Interpreter(const Function& f);
  Interpreter(const Function& f, Options options);
  ~Interpreter();
  Interpreter(Interpreter&&) noexcept;

  // `buffers`: the bytes of each tensor argument in order (at least its extent), the elements of
  // arguments that are not written count as defined; `symbols`: values of the contract's symbols.
  // Returns 0, or the status of the check that failed (vm/executable/check_status.h).
  int32_t run(std::span<const std::span<std::byte>> buffers, std::span<const int64_t> symbols,
              int threads = 1) const;

 private:
  std::unique_ptr<const InterpreterCode> code_;
  Options options_;
};

}  // namespace nimble::kir
