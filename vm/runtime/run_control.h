// What other threads may ask of a run, and whether there is one.
//
// One word holds the run's number, its state and the requests, and every change is one
// compare-and-swap. Runs are numbered from 1 in the order in which they begin. A request that names
// the run it means cannot hit another: it finds another number and gives up; a cancellation of the
// run that comes next waits for it. One that names none means the run that it finds in progress.
// The machine reads the word, relaxed, before each jump, call, return and kernel; what happens
// before a request on the asking thread is not ordered with what the run then does.
//
// Requests may come at any time, from any thread or a signal handler; changes of the state come one
// at a time, as the session sees to.
#pragma once

#include <atomic>
#include <cstdint>

namespace nimble::rt {

class RunControl {
 public:
  enum class State : uint8_t { kIdle, kRunning, kSuspended };

  State state() const noexcept { return state_of(word_.load(std::memory_order_acquire)); }

  // The number of the run in progress, or of the last one; 0 before the first.
  uint64_t number() const noexcept { return word_.load(std::memory_order_relaxed) / kNext; }

  // Idle to running: a new run, which has been cancelled already if that was asked for by its
  // number. False, and nothing happens, in another state.
  bool begin() noexcept {
    uint64_t word = word_.load(std::memory_order_relaxed);
    while (state_of(word) == State::kIdle) {
      const uint64_t cancelled = (word & kCancelNext) ? kCancel : 0;
      if (exchange(word, ((word & ~kMask) + kNext) | kRunning | cancelled)) return true;
    }
    return false;
  }
  // Suspended to running; a cancellation asked for meanwhile stays.
  bool go_on() noexcept {
    uint64_t word = word_.load(std::memory_order_relaxed);
    while (state_of(word) == State::kSuspended)
      if (exchange(word, word - kSuspended + kRunning)) return true;
    return false;
  }
  // Running to suspended, which answers a request for it.
  void pause() noexcept {
    uint64_t word = word_.load(std::memory_order_relaxed);
    while (!exchange(word, ((word & ~kSuspend) - kRunning) + kSuspended)) {
    }
  }
  // Running on, in spite of a request to suspend.
  void stay() noexcept { word_.fetch_and(~kSuspend, std::memory_order_relaxed); }
  // To idle: requests to this run that are not yet answered are void.
  void end() noexcept {
    uint64_t word = word_.load(std::memory_order_relaxed);
    while (!exchange(word, word & (~kMask | kCancelNext))) {
    }
  }

  // Nothing happens without a run (for suspend: without one that is running).
  void cancel() noexcept { request(kCancel, true); }
  void suspend() noexcept { request(kSuspend, false); }
  // The run of this number: the one in progress or the one that begins next. Nothing happens if it
  // is over, or further ahead.
  void cancel(uint64_t run) noexcept {
    uint64_t word = word_.load(std::memory_order_relaxed);
    uint64_t bit = 0;
    do {
      if (run == word / kNext + 1)
        bit = kCancelNext;
      else if (run == word / kNext && state_of(word) != State::kIdle)
        bit = kCancel;
      else
        return;
    } while (!exchange(word, word | bit));
  }

  bool interrupted() const noexcept {
    return (word_.load(std::memory_order_relaxed) & (kCancel | kSuspend)) != 0;
  }
  bool cancelled() const noexcept { return (word_.load(std::memory_order_relaxed) & kCancel) != 0; }

 private:
  static constexpr uint64_t kRunning = 1, kSuspended = 2, kCancel = 4, kSuspend = 8;
  static constexpr uint64_t kCancelNext = 16, kNext = 32;  // the number's unit
  static constexpr uint64_t kMask = kNext - 1;
  static_assert(std::atomic<uint64_t>::is_always_lock_free, "requests come from signal handlers");

  static State state_of(uint64_t word) {
    return (word & kRunning)     ? State::kRunning
           : (word & kSuspended) ? State::kSuspended
                                 : State::kIdle;
  }
  bool exchange(uint64_t& expected, uint64_t wanted) noexcept {
    return word_.compare_exchange_strong(expected, wanted, std::memory_order_acq_rel,
                                         std::memory_order_relaxed);
  }
  void request(uint64_t bit, bool also_suspended) noexcept {
    uint64_t word = word_.load(std::memory_order_relaxed);
    const uint64_t run = word & ~kMask;
    while ((word & ~kMask) == run) {
      const State state = state_of(word);
      if (state == State::kIdle || (state == State::kSuspended && !also_suspended)) return;
      if (exchange(word, word | bit)) return;
    }
  }

  std::atomic<uint64_t> word_{0};
};

}  // namespace nimble::rt
