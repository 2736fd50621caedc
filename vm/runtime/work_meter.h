// What a run may still use up, as seen by work that one instruction starts: a host operator, a
// portable kernel, whatever else takes longer the larger its operands are.
//
// The dispatch loop hands a meter to such work and reads from it afterwards what was taken. The
// unit is the step: about what an instruction of the loop costs, a few nanoseconds. So fuel bounds
// the time of a run whoever spends it, and a run that is cancelled ends within kPollSteps of it.
// Memory that the work allocates for itself counts against the session's limit (MemoryAccount).
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
  // What one step does of small things of one kind: registers cleared, fields counted, operations
  // of a dim program. So few of them cost nothing beyond their instruction.
  static constexpr uint64_t kItemsPerStep = 16;
  // What is cleared or copied between two looks for a cancellation.
  static constexpr uint64_t kPollBytes = kPollSteps * kBytesPerStep;

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

// What some work holds of memory that is not a storage, counted against a session's limit.
class MemoryAccount {
 public:
  explicit MemoryAccount(StoragePool* pool = nullptr) : pool_(pool) {}
  ~MemoryAccount() { give(held_); }
  MemoryAccount(const MemoryAccount&) = delete;
  MemoryAccount& operator=(const MemoryAccount&) = delete;

  // Error(kExhausted) beyond the limit.
  void take(uint64_t bytes) {
    if (pool_) pool_->charge(bytes);
    held_ += bytes;
  }
  void give(uint64_t bytes) noexcept {
    if (pool_) pool_->refund(bytes);
    held_ -= bytes;
  }
  // From now on all of it counts there; nullptr: nowhere. For memory that is kept between runs.
  void move_to(StoragePool* pool) {
    if (pool) pool->charge(held_);
    if (pool_) pool_->refund(held_);
    pool_ = pool;
  }
  uint64_t held() const { return held_; }

 private:
  StoragePool* pool_;
  uint64_t held_ = 0;
};

// Allocates for containers whose memory is on an account, which outlives them.
template <class T>
class MeteredAllocator {
 public:
  using value_type = T;
  using propagate_on_container_move_assignment = std::true_type;
  using propagate_on_container_swap = std::true_type;

  MeteredAllocator(MemoryAccount& account) : account_(&account) {}
  template <class U>
  MeteredAllocator(const MeteredAllocator<U>& other) : account_(other.account()) {}

  T* allocate(size_t n) {
    if (n > SIZE_MAX / sizeof(T)) throw std::bad_alloc();
    account_->take(n * sizeof(T));
    if (void* memory = ::operator new(n * sizeof(T), std::nothrow)) return static_cast<T*>(memory);
    account_->give(n * sizeof(T));
    throw std::bad_alloc();
  }
  void deallocate(T* memory, size_t n) noexcept {
    account_->give(n * sizeof(T));
    ::operator delete(memory);
  }
  MemoryAccount* account() const { return account_; }
  template <class U>
  bool operator==(const MeteredAllocator<U>& other) const {
    return account_ == other.account();
  }

 private:
  MemoryAccount* account_;
};
template <class T>
using MeteredVector = std::vector<T, MeteredAllocator<T>>;

}  // namespace nimble::rt
