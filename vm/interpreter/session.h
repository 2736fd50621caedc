// A session: what one user needs to run a model again and again — memory, registers, limits,
// a share in the thread pool. One run at a time; sessions of a model are independent.
#pragma once

#include <array>
#include <atomic>
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
  uint64_t memory_limit = 0;  // bytes; 0: none
  uint64_t fuel = 0;          // instructions of a run; 0: no limit
  uint32_t depth = 0;         // nested calls; 0: the default of Limits
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

  // Holds the session for one run. Error(kInvalidArgument) if another thread holds it.
  class Lock {
   public:
    explicit Lock(Session& session);
    ~Lock();
    Lock(const Lock&) = delete;
    Lock& operator=(const Lock&) = delete;

   private:
    Session& session_;
  };

  // The index of an entry point; Error(kNotFound).
  size_t find_entry(std::string_view name) const;
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
  // Stops the run in progress, if there is one. From any thread or a signal handler.
  void cancel() noexcept;

  const Model& model() const { return *model_; }
  int32_t threads() const { return threads_; }
  MemoryStats memory() const { return storage_->stats(); }
  void trim();
  // Starts the profiler afresh, or stops it.
  void set_profiling(bool on);
  const Profiler& profiler() const { return profiler_; }

 private:
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
  std::atomic<bool> running_{false}, cancelled_{false};
};

}  // namespace nimble::rt
