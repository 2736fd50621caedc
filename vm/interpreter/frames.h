// The machine's call stack: the registers of all frames in one array, and a record for each.
//
// It lies in memory that counts against the session's limit and never on C++'s stack, so that
// recursion is bounded by the depth limit and nothing else. A frame is contiguous, its registers
// empty but for the arguments. The array doubles when it is full. A run may leave it large: it is
// kept for the next one as long as recent runs came near, for a model that recurses deeply does
// so every time, and shrinks once they don't.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "vm/interpreter/program.h"
#include "vm/runtime/object.h"

namespace nimble::rt {

struct Frame {
  const DecodedFunction* function;
  uint32_t base;    // of its registers in the array
  uint32_t result;  // register of the caller
  uint32_t pc;      // while a callee runs: where it was called; while suspended: where to go on
};

class FrameStack {
 public:
  // `depth`: calls that may be nested inside the first.
  FrameStack(Heap& heap, uint32_t depth) : heap_(heap), depth_limit_(depth) {}
  ~FrameStack();
  FrameStack(const FrameStack&) = delete;
  FrameStack& operator=(const FrameStack&) = delete;

  bool empty() const { return frames_.empty(); }
  size_t depth() const { return frames_.size(); }
  Frame& top() { return frames_.back(); }
  const Frame& top() const { return frames_.back(); }
  // Of the top frame; moves when a frame is pushed.
  Value* registers() { return stack_.data() + frames_.back().base; }

  // Puts a frame of `function` on top and takes over the references in `arguments`, also when it
  // fails: Error(kExhausted) beyond the depth or memory limit.
  void push(const DecodedFunction& function, std::span<const Value> arguments, uint32_t result);
  // The same in the place of the top frame, whose registers are cleared.
  void replace(const DecodedFunction& function, std::span<const Value> arguments);
  // Clears the top frame's registers and drops it.
  void pop();
  void unwind();

  // Marks the end of a run: gives memory back that recent runs did not come near to using.
  void end_run();
  // Gives all of it back. Between runs.
  void trim();

 private:
  void clear_registers(const Frame& frame);
  void need(size_t registers);
  void set_size(size_t registers);

  Heap& heap_;
  const uint32_t depth_limit_;
  std::vector<Value> stack_;
  std::vector<Frame> frames_;
  size_t top_ = 0;  // registers in use
  size_t run_peak_ = 0, recent_peak_ = 0;
  uint64_t charged_ = 0;  // bytes of both arrays that the pool counts
};

}  // namespace nimble::rt
