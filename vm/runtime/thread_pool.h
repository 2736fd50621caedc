// The threads that run kernels: SPMD regions in which thread 0 is the caller.
//
// A region costs one cache line written per worker to start it and one that all write to end it:
// two threads meet in a few hundred nanoseconds, and kernels of a few microseconds are worth
// splitting. Workers spin for some tens of microseconds after a region, for the next is usually
// near, then park on a futex; the time is adapted to what the last waits were like. A thread keeps
// its number for ever, so the share of the weights that a kernel gives it stays in its own cache.
//
// A region's work is cut into shares, as many for each thread. Who is through with its own takes
// those that others have not begun, the last of them first. With one share a thread, a region never
// waits for a thread that the system has not scheduled, which on busy machines costs milliseconds,
// and a tiny kernel not for a wake-up. With several, the threads wait less for one that is slower
// or interrupted: image networks on two threads took up to 9 % less time beside a process that took
// part of a core, up to 2 % less alone. The result is the same however a region is cut, and whoever
// does a share. (In a kernel with barriers nothing is left to take: who is through has met all
// others inside. It has one share a thread.)
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
  // Called once per share, of `shares`; must not throw.
  using Body = void (*)(void* context, int32_t share, int32_t shares, nimble_barrier* barrier);
  static constexpr int kMostThreads = 2048;
  static constexpr int32_t kMostShares = 8;  // of a thread

  // `threads` counts the caller: threads - 1 are started, or as many as the system gives, up to
  // kMostThreads in all. Pinned: worker i is bound to the i-th core that the process may use, a
  // caller to the first at its first region.
  explicit ThreadPool(int threads, bool pin = false);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  // The caller and the workers that were started. Less than before only in the child of a fork.
  int max_threads() const { return max_threads_.load(std::memory_order_relaxed); }
  // Runs `body` on the caller and threads - 1 workers (at most max_threads in all), so many shares
  // for each, and returns when all are done. With more than one, shares must not meet at the
  // barrier that they get: nobody waits there. `ns`, if given: how long a region of several threads
  // took, without the wait for those of other callers.
  void run(Body body, void* context, int32_t threads, int32_t shares_per_thread = 1,
           int64_t* ns = nullptr);
  // The barrier that `run` hands to bodies of several threads; a body that fails abandons it.
  RegionBarrier& barrier() { return *barrier_; }

  // The process's pool for sessions of up to `threads` threads, or of as many as the system
  // starts; alive while anyone holds it.
  static std::shared_ptr<ThreadPool> shared(int threads, bool pin);
  // Threads that a session uses by default: physical cores allowed by affinity and cgroup.
  static int default_threads();

 private:
  // A thread's shares of a region that nobody has begun: from `first` up to `end`. In one word with
  // the region's number, so that who comes late takes nothing of another region.
  struct Shares {
    uint32_t region = 0;
    uint16_t first = 0, end = 0;
  };
  static_assert(kMostThreads * kMostShares <= UINT16_MAX);
  static_assert(std::atomic<Shares>::is_always_lock_free);
  // What the caller writes to start a thread is on a line of its own. The first is the caller's.
  struct alignas(64) Worker {
    std::atomic<uint32_t> signal{0};  // the region's number
    std::atomic<uint32_t> parked{0};
    std::atomic<Shares> shares{Shares{}};
    ThreadPool* pool = nullptr;
    int index = 0;
    Thread thread;
  };
  // What a region is, as its caller wrote it: to be read by who holds a share of it.
  struct Work {
    Body body = nullptr;
    void* context = nullptr;
    int32_t threads = 0;
    int32_t shares = 0;
  };
  // One of the thread's shares that nobody has begun, its first or its last; -1: there is none.
  static int32_t take(Worker& worker, uint32_t region, bool last);
  // Does the thread's shares, then what others have left.
  void work_on(Worker& worker, uint32_t region);
  void do_share(const Work& work, int32_t share);
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
  Work work_;  // of the region in progress
  uint64_t region_ = 0;
  std::atomic<bool> stop_{false};
  std::unique_ptr<RegionBarrier> barrier_;
  std::vector<std::unique_ptr<Worker>> workers_;  // the first is the caller of a region
  std::optional<ForkHook> fork_hook_;
  // Shares of the region that are not done: on a line of its own, which all threads write.
  alignas(64) std::atomic<int32_t> left_{0};
};

}  // namespace nimble::rt
