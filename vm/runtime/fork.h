// How the runtime stays whole across fork().
//
// fork() copies the calling thread alone. In the child a lock that another thread held stays taken
// for ever, what it guarded is half changed, and the workers of a thread pool are gone. Who forks
// a process that has loaded a model (Python's multiprocessing does) means to go on using it. So
// every lock that threads share is taken before the fork and given back after it in both processes,
// and a thread pool is told in the child that its workers are gone (pthread_atfork).
//
// Before a fork locks are tried, not waited for: if one is taken, all are given back and tried
// again, as std::lock does. So they need no order among them, and one may be held while another is
// taken. They are held for short work only; fork() waits for no kernel.
#pragma once

#include <atomic>
#include <thread>

namespace nimble::rt {

// Calls on an object around each fork, from the end of the hook's constructor to its destructor.
class ForkHook {
 public:
  // Before the fork; false if it cannot be now, and is to be tried again.
  using Hold = bool (*)(void* object) noexcept;
  // After each hold(), by the same thread: in the child if the fork has been.
  using LetGo = void (*)(void* object, bool in_child) noexcept;

  ForkHook(void* object, Hold hold, LetGo let_go);
  ~ForkHook();
  ForkHook(const ForkHook&) = delete;
  ForkHook& operator=(const ForkHook&) = delete;

 private:
  friend struct ForkHooks;
  void* object_;
  Hold hold_;
  LetGo let_go_;
  ForkHook *next_ = nullptr, *previous_ = nullptr;
};

// For short work: taking it costs one atomic instruction, and who finds it taken lets others run.
class ForkSafeLock {
 public:
  ForkSafeLock() : hook_(this, &hold, &let_go) {}
  void lock() noexcept {
    while (!try_lock()) std::this_thread::yield();
  }
  bool try_lock() noexcept { return !taken_.test_and_set(std::memory_order_acquire); }
  void unlock() noexcept { taken_.clear(std::memory_order_release); }

 private:
  static bool hold(void* lock) noexcept { return static_cast<ForkSafeLock*>(lock)->try_lock(); }
  static void let_go(void* lock, bool) noexcept { static_cast<ForkSafeLock*>(lock)->unlock(); }

  std::atomic_flag taken_;
  ForkHook hook_;
};

}  // namespace nimble::rt
