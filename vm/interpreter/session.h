// A session: what one user needs to run a model again and again — memory, registers, limits,
// a share in the thread pool. One run at a time; sessions of a model are independent.
//
// A run is either one call, or begun by start() and carried on by resume() until it is done.
// Between two calls of resume() the run is suspended: its thread and the thread pool are free for
// another model that is more urgent (the paper's section 4 names this as what a virtual machine
// makes possible), and any thread may take it up again.
//
// What other threads may ask of a session at any time, whatever it is doing: cancel, suspend, where
// it stands, memory, to trim, to profile, the profile so far, and to close it. The first two are a
// word of their own (run_control.h); the others take a lock that a run takes only when it begins,
// pauses and ends, and what would disturb a run in progress is done when it does.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "vm/interpreter/entry.h"
#include "vm/interpreter/machine.h"
#include "vm/interpreter/model.h"
#include "vm/interpreter/profiler.h"
#include "vm/interpreter/shape_counts.h"
#include "vm/runtime/fork.h"
#include "vm/runtime/object.h"
#include "vm/runtime/thread_pool.h"

namespace nimble::rt {

struct SessionOptions {
  int32_t threads = 0;  // 0: ThreadPool::default_threads(); fewer if the system starts no more
  bool pin = false;
  uint64_t memory_limit = 0;  // bytes, on each device; 0: none
  uint64_t fuel = 0;          // as in Limits; 0: no limit
  uint32_t depth = 0;         // calls nested inside the first; 0: the default of Limits
  bool profile = false;
  bool record_shapes = false;
  size_t trace = 0;  // instructions that a profile keeps in their order as well; profiles if not 0
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
    ~Lock() { release(); }
    Lock(const Lock&) = delete;
    Lock& operator=(const Lock&) = delete;
    // Lets go of it early. False if the session was closed meanwhile: it is then the caller's to
    // destroy, and nobody else's.
    bool release() noexcept;

   private:
    Session* session_;
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
  // Drops a suspended run; without one nothing happens. From any thread.
  void abandon() noexcept;
  // The number of the run that begins next; runs are numbered from 1.
  uint64_t next_run() const noexcept { return control_.number() + 1; }
  // Stops the run in progress, or the one that is suspended when it is resumed: it then fails
  // with kCancelled. Without a run nothing happens. From any thread or a signal handler.
  void cancel() noexcept { control_.cancel(); }
  // The same of the run of this number alone; the next run then fails as soon as it begins.
  void cancel(uint64_t run) noexcept { control_.cancel(run); }
  // Makes the resume() in progress return before the next jump, call, return or kernel; run() is
  // not affected. From any thread or a signal handler.
  void suspend() noexcept { control_.suspend(); }
  // From any thread.
  RunControl::State state() const noexcept { return control_.state(); }
  // The state, the number of the run in progress, if any, and where it stands if it is suspended.
  // From any thread.
  struct Progress {
    RunControl::State state;
    uint64_t run = 0;
    std::optional<Position> position;
  };
  Progress progress() const;
  // Of the suspended run.
  Position position() const { return progress().position.value(); }
  // True: the session may be destroyed now. False: a run is in progress on another thread; it is
  // cancelled, and whoever holds the session is told when letting go of it. Nothing else may be
  // asked of the session any more.
  bool close() noexcept;

  const Model& model() const { return *model_; }
  // As many as the options ask for, or as the system starts.
  int32_t threads() const { return std::min(threads_, pool_->max_threads()); }
  MemoryStats memory() const { return storage_->stats(); }
  // Objects that are alive: between runs, those of the constants. What is kept to bind inputs of
  // the same shapes faster does not count.
  uint64_t live_objects() const;
  const std::shared_ptr<StoragePool>& storage() const { return storage_; }
  // Gives back all memory that is kept for reuse: at once, or when the run or slice in progress
  // ends. From any thread.
  void trim() noexcept;
  // Starts the profiler afresh, or stops it, for the runs and slices that begin from now on. From
  // any thread.
  void set_profiling(bool on) noexcept;
  // A copy of what was seen until the last run or slice ended. From any thread.
  Profiler profiler() const;
  // Notes the calls of kernels of the runs that are profiled from now on in `log`, which outlives
  // them; nullptr: no longer. Not while a run is in progress.
  void record_kernels(KernelLog* log) noexcept { seen_.set_log(log); }
  // What its kernels run on.
  ThreadPool& pool() { return *pool_; }
  // How often each shape was run so far, as ShapeCounts::json says; nothing is counted without
  // SessionOptions::record_shapes. From any thread.
  std::string shapes_json() const;

 private:
  void trim_now() noexcept;
  void take_outputs(const Value& result, std::span<OutputTensor> outputs);
  void take_output(const Value& value, const exec::Port& port, OutputTensor* output);

  std::shared_ptr<const Model> model_;
  std::shared_ptr<StoragePool> storage_;
  std::shared_ptr<ThreadPool> pool_;
  const int32_t threads_;
  Heap heap_;
  std::unique_ptr<Machine> machine_;
  std::vector<EntryPlan> plans_;
  std::vector<Value> arguments_;
  size_t entry_ = 0;  // of the run in progress
  RunControl control_;
  // Of the run or slice in progress: the thread that executes it alone touches them.
  bool profiling_ = false;
  uint64_t profiling_epoch_ = 0;
  Profiler seen_;
  // Guards what follows, and all else that the members above say of a run while none is executed.
  mutable ForkSafeLock lock_;
  bool profile_ = false;
  uint64_t profile_epoch_ = 0;  // counts the profiler's fresh starts
  Profiler profiler_;
  std::optional<ShapeCounts> shapes_;
  bool trim_wanted_ = false, closed_ = false;
};

}  // namespace nimble::rt
