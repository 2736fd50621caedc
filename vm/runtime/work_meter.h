// What a run may still use up, as seen by work that one instruction starts: a host operator, a
// portable kernel, whatever else takes longer the larger its operands are.
//
// The dispatch loop hands a meter to such work and reads from it afterwards what was taken. The
// unit is the step: about what an instruction of the loop costs, a few nanoseconds. So fuel bounds
// the time of a run whoever spends it, and a run that is cancelled ends within kPollSteps of it.
// Memory that the work allocates for itself counts against the session's limit (MeteredVector).
#pragma once

#include <cstddef>
#include <cstdint>
#include <new>
#include <vector>

#include "vm/runtime/run_control.h"
#include "vm/runtime/storage_pool.h"

namespace nimble::rt {

struct WorkMeter {
  // Who takes many steps at a time looks for a cancellation at least this often: some milliseconds.
  static constexpr uint64_t kPollSteps = uint64_t{1} << 18;
  // What one step copies, clears or compares, in bytes.
  static constexpr uint64_t kBytesPerStep = 64;

  uint64_t steps = UINT64_MAX;          // left; UINT64_MAX at the beginning: no limit
  const RunControl* control = nullptr;  // nullptr: nobody cancels
  StoragePool* memory = nullptr;        // where memory counts; nullptr: nowhere

  // Takes steps. Error(kExhausted) if fewer are left, and then none is; Error(kCancelled). By one
  // thread at a time.
  void charge(uint64_t cost) {
    poll();
    if (steps < cost) [[unlikely]]
      fail_exhausted();
    steps -= cost;
  }
  // The same for going once over so many bytes.
  void charge_bytes(uint64_t bytes) { charge(bytes / kBytesPerStep + 1); }
  // Error(kCancelled) if somebody asked for it. From any thread.
  void poll() const {
    if (control && control->cancelled()) [[unlikely]]
      fail_cancelled();
  }

  [[noreturn]] void fail_exhausted();
  [[noreturn]] static void fail_cancelled();
};

// Takes small costs, one after the other, from a meter: it asks the meter only now and then, and
// gives back what it did not need.
class StepCounter {
 public:
  explicit StepCounter(WorkMeter& meter) : meter_(meter) {}
  ~StepCounter() { meter_.steps += taken_; }
  StepCounter(const StepCounter&) = delete;
  StepCounter& operator=(const StepCounter&) = delete;

  void charge(uint64_t cost) {
    if (taken_ < cost) [[unlikely]]
      refill(cost);
    taken_ -= cost;
  }
  void charge_bytes(uint64_t bytes) { charge(bytes / WorkMeter::kBytesPerStep + 1); }

 private:
  void refill(uint64_t cost);
  WorkMeter& meter_;
  uint64_t taken_ = 0;  // from the meter, not yet used
};

// An allocator whose memory counts against a session's limit: Error(kExhausted) beyond it.
template <class T>
class MeteredAllocator {
 public:
  using value_type = T;
  using propagate_on_container_move_assignment = std::true_type;
  using propagate_on_container_swap = std::true_type;

  explicit MeteredAllocator(const WorkMeter& meter) : pool_(meter.memory) {}
  template <class U>
  MeteredAllocator(const MeteredAllocator<U>& other) : pool_(other.pool()) {}

  T* allocate(size_t n) {
    if (n > SIZE_MAX / sizeof(T)) throw std::bad_alloc();
    if (pool_) pool_->charge(n * sizeof(T));
    if (void* memory = ::operator new(n * sizeof(T), std::nothrow)) return static_cast<T*>(memory);
    if (pool_) pool_->refund(n * sizeof(T));
    throw std::bad_alloc();
  }
  void deallocate(T* memory, size_t n) noexcept {
    ::operator delete(memory);
    if (pool_) pool_->refund(n * sizeof(T));
  }
  StoragePool* pool() const { return pool_; }
  template <class U>
  bool operator==(const MeteredAllocator<U>& other) const {
    return pool_ == other.pool();
  }

 private:
  StoragePool* pool_;
};
template <class T>
using MeteredVector = std::vector<T, MeteredAllocator<T>>;

}  // namespace nimble::rt
