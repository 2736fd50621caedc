// The threads that run kernels: SPMD regions in which thread 0 is the caller.
//
// A region costs one cache line written per worker to start it and one to end it, so that two
// threads meet in a few hundred nanoseconds: kernels of a few microseconds are worth splitting.
// Workers spin for some tens of microseconds after a region, for the next is usually near, then
// park on a futex; the time is adapted to what the last waits were like. A thread keeps its
// number for ever, so the share of the weights that a kernel gives it stays in its own cache.
//
// A worker that has not begun by the time the caller is through with its own share loses it: the
// caller does that share too. So a region never waits for a thread that the system has not
// scheduled, which on busy machines costs milliseconds, and a tiny kernel not for a wake-up. The
// split of the work, and with it the result, is the same. (A kernel with barriers cannot get
// there: its caller has met all others inside.)
//
// Sessions share one pool: regions of concurrent sessions queue, one after the other, which
// keeps results and cache contents independent of who else runs. A region started inside a
// region runs on one thread, inline.
//
// A system that starts no more threads (a container's pids.max) gets a smaller pool. In the child
// of a fork, where the workers are gone, the first region starts them anew.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "vm/base/kernel_abi.h"
#include "vm/runtime/fork.h"
#include "vm/runtime/thread.h"

namespace nimble::rt {

// The barrier of a region. Each thread writes its own line and reads the others': no line is
// written by two, hence nothing is fought over. Counters carry the region's number in their high
// bits and so need no reset between regions.
class RegionBarrier : public nimble_barrier {
 public:
  explicit RegionBarrier(int max_threads, int spins_before_yield);
  // By the caller of the region before it starts.
  void begin(uint64_t region, int32_t threads);
  // Lets every wait of this region return at once: a thread has left it with a failure and will
  // not arrive any more.
  void abandon() { abandoned_.store(region_.load(std::memory_order_relaxed)); }

 private:
  static void wait_for_all(nimble_barrier* self, int32_t thread);
  struct alignas(64) Line {
    std::atomic<uint64_t> arrived{0};
  };
  alignas(64) std::atomic<uint64_t> region_{0};
  std::atomic<int32_t> threads_{1};
  std::atomic<uint64_t> abandoned_{0};
  const int spins_before_yield_;
  std::vector<Line> lines_;
};

class ThreadPool {
 public:
  // Called once per thread; must not throw.
  using Body = void (*)(void* context, int32_t thread, int32_t threads, nimble_barrier* barrier);

  // `threads` counts the caller: threads - 1 are started, or as many as the system gives. Pinned:
  // worker i is bound to the i-th core that the process may use, a caller to the first at its
  // first region.
  explicit ThreadPool(int threads, bool pin = false);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  // The caller and the workers that were started. Less than before only in the child of a fork.
  int max_threads() const { return max_threads_.load(std::memory_order_relaxed); }
  // Runs `body` on threads 0 … threads - 1 (at most max_threads) and returns when all are done.
  void run(Body body, void* context, int32_t threads);
  // The barrier that `run` hands to bodies of several threads; a body that fails abandons it.
  RegionBarrier& barrier() { return *barrier_; }

  // The process's pool for sessions of up to `threads` threads, or of as many as the system
  // starts; alive while anyone holds it.
  static std::shared_ptr<ThreadPool> shared(int threads, bool pin);
  // Threads that a session uses by default: physical cores allowed by affinity and cgroup.
  static int default_threads();

 private:
  // What the caller writes to start a worker, and what the worker writes when it is done, are on
  // lines of their own.
  struct alignas(64) Worker {
    std::atomic<uint32_t> signal{0};
    std::atomic<uint32_t> parked{0};
    std::atomic<uint32_t> claimed{0};  // the last signal whose share somebody took
    alignas(64) std::atomic<uint32_t> done{0};
    ThreadPool* pool = nullptr;
    int index = 0;
    Thread thread;
  };
  // Whether the calling thread gets to do the share that `signal` announced.
  static bool claim(Worker& worker, uint32_t signal) {
    uint32_t before = signal - 1;
    return worker.claimed.compare_exchange_strong(before, signal, std::memory_order_acq_rel);
  }
  // Starts workers, which stand at the beginning, until the system gives no more.
  void start_workers() noexcept;
  // Of the child of a fork, before anything else happens in it.
  void lose_workers() noexcept;
  void work(Worker& worker);
  uint32_t await_signal(Worker& worker, uint32_t last, int64_t* spin_ns);

  std::atomic<int32_t> max_threads_{1};
  const bool pin_;
  int spins_before_yield_ = 0;
  std::vector<int> cores_;
  std::mutex region_mutex_;
  bool workers_lost_ = false;
  // Of the region in progress; workers read them after their signal.
  Body body_ = nullptr;
  void* context_ = nullptr;
  int32_t threads_ = 0;
  uint64_t region_ = 0;
  std::atomic<bool> stop_{false};
  std::unique_ptr<RegionBarrier> barrier_;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::optional<ForkHook> fork_hook_;
};

}  // namespace nimble::rt
