// The dispatch loop: runs decoded bytecode over frames of registers.
//
// Calls push frames on the machine's own stack (frames.h), never on C++'s; a call whose result is
// returned at once reuses its frame, so that a loop written as recursion runs in constant space.
// The verifier has proved what does not depend on values; the kinds of values, sizes and contracts
// are checked here, and every failure is an Error whose place names function, instruction and
// source operator.
//
// Since all state of a run lies in frames, a run can stop between any two instructions and go on
// later, on any thread: after a number of instructions, or when another thread asks for it. Such
// requests are looked at before each jump, call, return and kernel; a kernel is never interrupted.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "vm/interpreter/frames.h"
#include "vm/interpreter/gpu_launches.h"
#include "vm/interpreter/kernel.h"
#include "vm/interpreter/model.h"
#include "vm/interpreter/profiler.h"
#include "vm/runtime/object.h"
#include "vm/runtime/run_control.h"

namespace nimble::rt {

struct Limits {
  // Steps of one run; 0: no limit. An instruction takes one, and one more for each
  // WorkMeter::kItemsPerStep registers, fields or operations of dim programs that it goes through,
  // and each WorkMeter::kBytesPerStep bytes that it clears or copies. Portable kernels and host
  // operators take what they do; native kernels nothing.
  uint64_t fuel = 0;
  uint32_t depth = 100'000;  // calls nested inside the first
};

// Where a suspended run stands.
struct Position {
  uint32_t function = 0, instruction = 0;  // what it will execute next
  uint32_t depth = 0;                      // frames, the first included
  uint64_t instructions = 0;               // of the fuel, taken so far
};

class Machine {
 public:
  Machine(const Model& model, Heap& heap, ThreadPool& pool, int32_t threads, Limits limits);
  ~Machine();
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  // Begins a run of `function` on arguments whose references move in. Nothing is executed yet, but
  // `steps` were taken by what made the arguments.
  void start(uint32_t function, std::span<const Value> arguments, uint64_t steps = 0);
  // Goes on until the run is done, and returns a value whose reference the caller owns, or until
  // `slice` instructions are executed (0: no limit) or `control` asks to suspend, and returns
  // nothing. An Error ends the run. `profiler` may be nullptr.
  std::optional<Value> resume(uint64_t slice, const RunControl& control, Profiler* profiler);
  // Whether a run has been started and not ended.
  bool active() const { return !frames_.empty(); }
  Position position() const;
  // What this run has left, once resume() has returned, or before start() of the next one.
  WorkMeter meter(const RunControl& control, bool next_run) const;
  // Drops the run that was started.
  void abandon() { frames_.unwind(); }
  // Marks the end of a run: gives memory back that runs do not need.
  void end_run() { frames_.end_run(); }
  // Gives back all memory kept for the next run.
  void trim();

 private:
  using Extents = std::array<int64_t, kMaxRank + 1>;  // one more than there may be

  // `kCounted`: with fuel, a slice or a profiler.
  template <bool kCounted>
  std::optional<Value> loop(uint64_t slice, const RunControl& control, Profiler* profiler);
  // The values of registers one after the other, until the next call of either: counted anew for a
  // callee, captured ones first, or not counted.
  std::span<const Value> gather(const Value* registers, std::span<const uint32_t> list,
                                const Cell* closure);
  std::span<const Value> borrow(const Value* registers, std::span<const uint32_t> list);
  // Those of scalar registers.
  static std::span<const int64_t> extents(const Value* registers, std::span<const uint32_t> list,
                                          Extents* out);
  void invoke_scalar(const exec::ScalarFunction& function, Value* results, const Value* registers,
                     std::span<const uint32_t> list);
  void invoke_packed(const PreparedKernel& kernel, std::span<const Value> arguments, uint32_t index,
                     Profiler* profiler);
  // `in`: a storage, or a tensor of which this is a part.
  Tensor* alloc_tensor(const Value& in, int64_t offset, DType dtype,
                       std::span<const int64_t> shape);
  Tensor* reshape(const Value& in, std::span<const int64_t> wanted);
  Tensor* device_copy(const Tensor& t, int32_t to, const RunControl& control, Profiler* profiler);
  Scratch& scratch(int32_t device);
  // Waits for what the run that gave `result` has started.
  void finish(const Value& result, Profiler* profiler);
  // Tells a trace of the instruction that is about to run.
  void trace_instruction(Trace* trace, const DecodedFunction& f, uint32_t pc,
                         const Value* registers);
  void trace_memory(Trace* trace);

  const Model& model_;
  Heap& heap_;
  ThreadPool& pool_;
  const int32_t threads_;
  const Limits limits_;
  // By device; made when a kernel there first needs it.
  std::array<std::unique_ptr<Scratch>, kDeviceCount> scratch_;
  KernelFrame kernel_frame_;
  GpuLaunches launches_;
  std::vector<Tensor*> constants_;
  FrameStack frames_;
  uint64_t executed_ = 0;    // instructions of this run in earlier slices
  uint32_t pc_ = 0;          // of the instruction that failed, for messages
  std::vector<Value> call_;  // gather() and borrow()
  std::vector<int64_t> scalars_, results_;
  Charge charged_;  // for the vectors above, which don't grow
};

}  // namespace nimble::rt
