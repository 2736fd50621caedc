// The dispatch loop: runs decoded bytecode over frames of registers.
//
// Calls push frames on the machine's own stack, never on C++'s, so that recursion is bounded by
// the depth limit and nothing else; a call whose result is returned at once reuses its frame, so
// that a loop written as recursion runs in constant space. The verifier has proved what does not
// depend on values; the kinds of values, sizes and contracts are checked here, and every failure
// is an Error whose place names function, instruction and source operator.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

#include "vm/interpreter/kernel.h"
#include "vm/interpreter/model.h"
#include "vm/interpreter/profiler.h"
#include "vm/runtime/object.h"

namespace nimble::rt {

struct Limits {
  uint64_t fuel = 0;  // instructions of one run; 0: no limit
  uint32_t depth = 100'000;
};

class Machine {
 public:
  Machine(const Model& model, Heap& heap, ThreadPool& pool, int32_t threads, Limits limits);
  ~Machine();
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  // Runs a function on arguments whose references move in, and returns a value whose reference
  // the caller owns. `cancelled` is looked at before each jump, call and kernel. `profiler` may
  // be nullptr.
  Value execute(uint32_t function, std::span<const Value> arguments,
                const std::atomic<bool>& cancelled, Profiler* profiler);
  void trim() { scratch_.drop(); }

 private:
  struct Frame {
    const DecodedFunction* function;
    uint32_t base;    // of its registers in stack_
    uint32_t result;  // register of the caller
    uint32_t pc;      // while a callee runs: where it was called
  };

  Value loop(const std::atomic<bool>& cancelled, Profiler* profiler);
  // Makes a frame for `function` and takes over the references in `arguments`.
  void push_frame(const DecodedFunction& function, std::span<const Value> arguments,
                  uint32_t result);
  // Puts `function` in the place of the top frame.
  void replace_frame(const DecodedFunction& function, std::span<const Value> arguments);
  void clear_registers(const Frame& frame);
  void unwind();
  void need_stack(size_t registers);

  // Fills call_ with a call's values, counted anew: captured ones first.
  void gather(const Value* registers, std::span<const uint32_t> list, const Cell* closure);
  void invoke_scalar(const exec::ScalarFunction& function, Value* results, const Value* registers,
                     std::span<const uint32_t> list);
  void invoke_packed(uint32_t kernel, const Value* registers, std::span<const uint32_t> list,
                     Profiler* profiler);
  Value alloc_tensor(const DecodedFunction& f, const DecodedInstruction& in,
                     const Value* registers);
  Value reshape(const DecodedFunction& f, const DecodedInstruction& in, const Value* registers);
  Value device_copy(const DecodedInstruction& in, const Value* registers);

  const Model& model_;
  Heap& heap_;
  ThreadPool& pool_;
  const int32_t threads_;
  const Limits limits_;
  Scratch scratch_;
  KernelFrame kernel_frame_;
  std::vector<Tensor*> constants_;
  std::vector<Value> stack_;
  std::vector<Frame> frames_;
  size_t top_ = 0;           // registers in use
  uint32_t pc_ = 0;          // of the instruction in progress, for messages
  std::vector<Value> call_;  // arguments on their way
  std::vector<int64_t> scalars_, results_;
};

}  // namespace nimble::rt
