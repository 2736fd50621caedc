// A session: what one user needs to run a model again and again — memory, registers, limits,
// a share in the thread pool. One run at a time; sessions of a model are independent.
//
// A run is either one call, or begun by start() and carried on by resume() until it is done.
// Between two calls of resume() the run is suspended: its thread and the thread pool are free for
// another model that is more urgent (the paper's section 4 names this as what a virtual machine
// makes possible), and any thread may take it up again.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "vm/interpreter/entry.h"
#include "vm/interpreter/machine.h"
#include "vm/interpreter/model.h"
#include "vm/interpreter/profiler.h"
#include "vm/runtime/object.h"
#include "vm/runtime/thread_pool.h"

namespace nimble::rt {

struct SessionOptions {
  int32_t threads = 0;  // 0: ThreadPool::default_threads()
  bool pin = false;
  uint64_t memory_limit = 0;  // bytes, on each device; 0: none
  uint64_t fuel = 0;          // as in Limits; 0: no limit
  uint32_t depth = 0;         // calls nested inside the first; 0: the default of Limits
  bool profile = false;
};

// A result. Its memory is the user's until it dies: no later run touches it.
class OutputTensor {
 public:
  OutputTensor() = default;
  ~OutputTensor() { release(); }
  OutputTensor(OutputTensor&& other) noexcept { *this = std::move(other); }
  OutputTensor& operator=(OutputTensor&& other) noexcept;
  void release();

  // In: where to write the result, if not to memory of the session's own.
  void* destination = nullptr;
  uint64_t capacity = 0;  // bytes there
  // Out:
  DType dtype = DType::kF32;
  int32_t rank = 0;
  std::array<int64_t, kMaxRank> extents{};
  std::array<int64_t, kMaxRank> strides{};
  void* data = nullptr;
  HostValueRef value;  // instead of the above, where the port has a data type
  std::span<const int64_t> shape() const { return {extents.data(), static_cast<size_t>(rank)}; }

 private:
  friend class Session;
  BlockHold* hold_ = nullptr;
};

class Session {
 public:
  Session(std::shared_ptr<const Model> model, const SessionOptions& options);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // Holds the session while one thread starts, runs or resumes. Error(kInvalidArgument) if another
  // thread holds it, or if a run is suspended (kResume: if none is).
  class Lock {
   public:
    enum class Purpose : uint8_t { kRun, kResume };
    explicit Lock(Session& session, Purpose purpose = Purpose::kRun);
    ~Lock();
    Lock(const Lock&) = delete;
    Lock& operator=(const Lock&) = delete;

   private:
    Session& session_;
  };

  // The index of an entry point; Error(kNotFound).
  size_t find_entry(std::string_view name) const;
  // Error(kInvalidArgument) if the entry point gives fewer outputs.
  void check_outputs(size_t entry, size_t outputs) const;
  // What a user's names and tensors are checked against.
  const EntryPlan& plan(size_t entry) const { return plans_[entry]; }
  // Runs an entry point. `inputs` in its order, one each; of its outputs the first
  // outputs.size() are returned. Errors leave `outputs` empty and the session usable.
  void run(const Lock& lock, size_t entry, std::span<const InputTensor> inputs,
           std::span<OutputTensor> outputs);
  void run(size_t entry, std::span<const InputTensor> inputs, std::span<OutputTensor> outputs) {
    const Lock lock(*this);
    run(lock, entry, inputs, outputs);
  }
  // Binds the inputs of a run, whose data is borrowed until the run ends; executes nothing.
  void start(const Lock& lock, size_t entry, std::span<const InputTensor> inputs);
  void start(size_t entry, std::span<const InputTensor> inputs) {
    const Lock lock(*this);
    start(lock, entry, inputs);
  }
  // Goes on with a run that was started, for `instructions` at most (0: no limit) or until
  // suspend(). True: it is done and `outputs` are set. An Error ends the run, but for too many
  // outputs, which leaves it suspended.
  bool resume(const Lock& lock, uint64_t instructions, std::span<OutputTensor> outputs);
  bool resume(uint64_t instructions, std::span<OutputTensor> outputs) {
    const Lock lock(*this, Lock::Purpose::kResume);
    return resume(lock, instructions, outputs);
  }
  // Drops a suspended run; without one nothing happens.
  void abandon() noexcept;
  // Stops the run in progress, or the one that is suspended when it is resumed: it then fails
  // with kCancelled. Without a run nothing happens. From any thread or a signal handler.
  void cancel() noexcept { control_.cancel(); }
  // Makes the resume() in progress return before the next jump, call, return or kernel; run() is
  // not affected. From any thread or a signal handler.
  void suspend() noexcept { control_.suspend(); }
  // From any thread.
  RunControl::State state() const noexcept { return control_.state(); }
  // Where the suspended run stands; while state() is kSuspended.
  Position position() const { return machine_->position(); }

  const Model& model() const { return *model_; }
  int32_t threads() const { return threads_; }
  MemoryStats memory() const { return storage_->stats(); }
  // Objects that are alive: between runs, those of the constants. What is kept to bind inputs of
  // the same shapes faster does not count.
  uint64_t live_objects() const;
  const std::shared_ptr<StoragePool>& storage() const { return storage_; }
  // Gives back all memory that is kept for reuse. Not during a run.
  void trim();
  // Starts the profiler afresh, or stops it.
  void set_profiling(bool on);
  const Profiler& profiler() const { return profiler_; }

 private:
  void take_outputs(const Value& result, std::span<OutputTensor> outputs);
  void take_output(const Value& value, const exec::Port& port, OutputTensor* output);

  std::shared_ptr<const Model> model_;
  int32_t threads_;
  std::shared_ptr<StoragePool> storage_;
  std::shared_ptr<ThreadPool> pool_;
  Heap heap_;
  std::unique_ptr<Machine> machine_;
  std::vector<EntryPlan> plans_;
  std::vector<Value> arguments_;
  bool profile_ = false;
  Profiler profiler_;
  size_t entry_ = 0;  // of the run in progress
  RunControl control_;
};

}  // namespace nimble::rt
