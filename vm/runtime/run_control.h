// What other threads may ask of a run, and whether there is one.
//
// One word holds the run's number, its state and the requests, and every change is one
// compare-and-swap. So a request that comes late cannot hit the next run: it finds another number
// and gives up. The machine reads the word, relaxed, before each jump, call, return and kernel;
// what happens before a request on the asking thread is not ordered with what the run then does.
#pragma once

#include <atomic>
#include <cstdint>

namespace nimble::rt {

class RunControl {
 public:
  enum class State : uint8_t { kIdle, kRunning, kSuspended };

  State state() const noexcept { return state_of(word_.load(std::memory_order_acquire)); }

  // Idle to running, without requests. False, and nothing happens, in another state.
  bool begin() noexcept {
    uint64_t word = word_.load(std::memory_order_relaxed);
    return state_of(word) == State::kIdle && exchange(word, (word & ~kMask) + kNext + kRunning);
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
  // To idle: requests not yet answered are void.
  void end() noexcept {
    uint64_t word = word_.load(std::memory_order_relaxed);
    while (!exchange(word, word & ~kMask)) {
    }
  }

  // From any thread or a signal handler; nothing happens without a run (for suspend: without one
  // that is running).
  void cancel() noexcept { request(kCancel, true); }
  void suspend() noexcept { request(kSuspend, false); }

  bool interrupted() const noexcept {
    return (word_.load(std::memory_order_relaxed) & (kCancel | kSuspend)) != 0;
  }
  bool cancelled() const noexcept { return (word_.load(std::memory_order_relaxed) & kCancel) != 0; }

 private:
  static constexpr uint64_t kRunning = 1, kSuspended = 2, kCancel = 4, kSuspend = 8, kNext = 16;
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
