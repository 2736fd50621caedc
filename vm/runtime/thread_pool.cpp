#include "vm/runtime/thread_pool.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <new>
#include <thread>

#include "vm/base/cpu.h"

namespace nimble::rt {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kMinSpinNs = 5'000, kFirstSpinNs = 50'000, kMaxSpinNs = 200'000;
// Barrier numbers per region before they would run into the region's number.
constexpr int kBarrierBits = 24;

thread_local bool in_region = false;

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("isb");  // some tens of cycles, as a pause there; `yield` takes none
#else
  std::this_thread::yield();
#endif
}

void futex_wait(std::atomic<uint32_t>& word, uint32_t expected) {
  ::syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAIT_PRIVATE, expected, nullptr,
            nullptr, 0);
}
void futex_wake(std::atomic<uint32_t>& word) {
  ::syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr,
            0);
}

// Asked once: a caller that a pool has pinned would give the next pool its own core only.
const std::vector<int>& allowed_cores() {
  static const std::vector<int> cores = [] {
    cpu_set_t set;
    CPU_ZERO(&set);
    std::vector<int> all;
    if (::sched_getaffinity(0, sizeof set, &set) == 0)
      for (int i = 0; i < CPU_SETSIZE; ++i)
        if (CPU_ISSET(i, &set)) all.push_back(i);
    return all;
  }();
  return cores;
}

void pin_this_thread(int core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(core, &set);
  ::sched_setaffinity(0, sizeof set, &set);  // without the right to it, all still works
}

void wait_nothing(nimble_barrier*, int32_t) {}

void run_alone(ThreadPool::Body body, void* context) {
  nimble_barrier alone{&wait_nothing};
  body(context, 0, 1, &alone);
}

// Spins until `ready`, giving the processor up in between once the wait is long: with more
// threads than cores, the one waited for may need this very core.
template <typename Ready>
void spin_until(Ready ready, int spins_before_yield) {
  for (int spins = 0; !ready(); ++spins) {
    if (spins < spins_before_yield)
      pause();
    else
      ::sched_yield();
  }
}

}  // namespace

RegionBarrier::RegionBarrier(int max_threads, int spins_before_yield)
    : nimble_barrier{&wait_for_all}, spins_before_yield_(spins_before_yield), lines_(max_threads) {}

void RegionBarrier::begin(uint64_t region, int32_t threads) {
  region_.store(region, std::memory_order_relaxed);
  threads_.store(threads, std::memory_order_relaxed);
}

void RegionBarrier::wait_for_all(nimble_barrier* base, int32_t thread) {
  RegionBarrier& self = *static_cast<RegionBarrier*>(base);
  const uint64_t region = self.region_.load(std::memory_order_relaxed);
  std::atomic<uint64_t>& mine = self.lines_[thread].arrived;
  const uint64_t number =
      std::max(mine.load(std::memory_order_relaxed), region << kBarrierBits) + 1;
  mine.store(number, std::memory_order_release);
  const int32_t threads = self.threads_.load(std::memory_order_relaxed);
  for (int32_t i = 0; i < threads; ++i) {
    if (i == thread) continue;
    std::atomic<uint64_t>& other = self.lines_[i].arrived;
    spin_until(
        [&] {
          return other.load(std::memory_order_acquire) >= number ||
                 self.abandoned_.load(std::memory_order_relaxed) == region;
        },
        self.spins_before_yield_);
  }
}

ThreadPool::ThreadPool(int threads, bool pin) : pin_(pin), cores_(allowed_cores()) {
  threads = std::clamp(threads, 1, kMostThreads);
  // pause takes about 40 ns on current cores: some tens of microseconds before yielding.
  const bool crowded = threads > std::max<int>(1, static_cast<int>(cores_.size()));
  spins_before_yield_ = crowded ? 16 : 2000;
  barrier_ = std::make_unique<RegionBarrier>(threads, spins_before_yield_);
  for (int i = 0; i < threads; ++i) {
    Worker& worker = *workers_.emplace_back(std::make_unique<Worker>());
    worker.pool = this;
    worker.index = i;
  }
  fork_hook_.emplace(
      this, [](void*) noexcept { return true; },
      [](void* pool, bool in_child) noexcept {
        if (in_child) static_cast<ThreadPool*>(pool)->lose_workers();
      });
  start_workers();
}

ThreadPool::~ThreadPool() {
  fork_hook_.reset();
  stop_.store(true, std::memory_order_relaxed);
  for (size_t i = 1; i < workers_.size(); ++i) {
    workers_[i]->signal.fetch_add(1, std::memory_order_seq_cst);
    futex_wake(workers_[i]->signal);
  }
  for (size_t i = 1; i < workers_.size(); ++i) workers_[i]->thread.join();
}

void ThreadPool::start_workers() noexcept {
  auto entry = [](void* context) {
    Worker& worker = *static_cast<Worker*>(context);
    worker.pool->work(worker);
  };
  size_t threads = 1;
  while (threads < workers_.size() &&
         workers_[threads]->thread.start(entry, workers_[threads].get()))
    ++threads;
  max_threads_.store(static_cast<int32_t>(threads), std::memory_order_relaxed);
}

void ThreadPool::lose_workers() noexcept {
  // Whoever was in a region is gone, too.
  new (&region_mutex_) std::mutex;
  for (auto& worker : workers_) {
    worker->thread.forget();
    worker->signal.store(0, std::memory_order_relaxed);
    worker->parked.store(0, std::memory_order_relaxed);
    worker->shares.store({}, std::memory_order_relaxed);
  }
  workers_lost_ = true;
}

uint32_t ThreadPool::await_signal(Worker& worker, uint32_t last, int64_t* spin_ns) {
  uint32_t seen = last;
  const Clock::time_point start = Clock::now();
  auto waited = [&] {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - start).count();
  };
  if (spins_before_yield_ > 16) {  // with more threads than cores, spinning steals work time
    do {
      for (int i = 0; i < 32; ++i) {
        seen = worker.signal.load(std::memory_order_acquire);
        if (seen != last) return seen;
        pause();
      }
    } while (waited() < *spin_ns);
  }
  // The caller writes the signal, then looks at `parked`; this thread writes `parked`, then looks
  // at the signal. Sequential consistency makes one of the two see the other.
  worker.parked.store(1, std::memory_order_seq_cst);
  while ((seen = worker.signal.load(std::memory_order_seq_cst)) == last)
    futex_wait(worker.signal, last);
  worker.parked.store(0, std::memory_order_relaxed);
  // Parked just before the signal came: spin longer next time. Long before: spin less.
  *spin_ns = waited() < 4 * *spin_ns ? std::min(*spin_ns * 2, kMaxSpinNs)
                                     : std::max(*spin_ns / 2, kMinSpinNs);
  return seen;
}

void ThreadPool::work(Worker& worker) {
  if (pin_ && !cores_.empty()) pin_this_thread(cores_[worker.index % cores_.size()]);
  in_region = true;
  uint32_t last = 0;
  int64_t spin_ns = kFirstSpinNs;
  while (true) {
    last = await_signal(worker, last, &spin_ns);
    if (stop_.load(std::memory_order_relaxed)) return;
    work_on(worker, last);
  }
}

int32_t ThreadPool::take(Worker& worker, uint32_t region, bool last) {
  Shares left = worker.shares.load(std::memory_order_acquire);
  while (left.region == region && left.first < left.end) {
    Shares after = left;
    const int32_t share = last ? --after.end : after.first++;
    if (worker.shares.compare_exchange_weak(left, after, std::memory_order_acq_rel)) return share;
  }
  return -1;
}

void ThreadPool::do_share(const Work& work, int32_t share) {
  nimble_barrier none{&wait_nothing};
  nimble_barrier* const barrier = work.shares == work.threads ? barrier_.get() : &none;
  work.body(work.context, share, work.shares, barrier);
}

void ThreadPool::work_on(Worker& worker, uint32_t region) {
  int32_t share = take(worker, region, false);
  // Too late: what work_ says is of another region. The caller's own is over when it says so.
  if (share < 0 && worker.index > 0) return;
  const Work work = work_;
  int32_t done = 0;
  for (; share >= 0; share = take(worker, region, false)) {
    do_share(work, share);
    ++done;
  }
  int32_t left = left_.fetch_sub(done, std::memory_order_acq_rel) - done;
  // The last threads were signalled last: they are the likeliest not to have begun.
  for (int32_t i = work.threads - 1; i >= 0 && left > 0; --i) {
    while ((share = take(*workers_[i], region, true)) >= 0) {
      do_share(work, share);
      left = left_.fetch_sub(1, std::memory_order_acq_rel) - 1;
    }
  }
}

void ThreadPool::run(Body body, void* context, int32_t threads, int32_t shares_per_thread,
                     int64_t* ns) {
  threads = std::clamp<int32_t>(threads, 1, max_threads());
  if (threads == 1 || in_region) return run_alone(body, context);
  std::unique_lock lock(region_mutex_);
  if (workers_lost_) [[unlikely]] {
    workers_lost_ = false;
    start_workers();
    threads = std::min<int32_t>(threads, max_threads());
    if (threads == 1) {
      lock.unlock();
      return run_alone(body, context);
    }
  }
  if (pin_ && !cores_.empty()) {
    thread_local int pinned_to = -1;
    if (pinned_to != cores_[0]) pin_this_thread(pinned_to = cores_[0]);
  }
  const Clock::time_point begin = ns ? Clock::now() : Clock::time_point();
  const int32_t each = std::clamp(shares_per_thread, 1, kMostShares);
  work_ = {body, context, threads, threads * each};
  left_.store(work_.shares, std::memory_order_relaxed);
  barrier_->begin(++region_, threads);
  const auto number = static_cast<uint32_t>(region_);
  // All of them before anyone is woken: who is through at once sees what there is to take.
  for (int32_t i = 0; i < threads; ++i)
    workers_[i]->shares.store(
        {number, static_cast<uint16_t>(i * each), static_cast<uint16_t>((i + 1) * each)},
        std::memory_order_release);
  for (int32_t i = 1; i < threads; ++i) {
    Worker& worker = *workers_[i];
    worker.signal.store(number, std::memory_order_seq_cst);
    if (worker.parked.load(std::memory_order_seq_cst)) futex_wake(worker.signal);
  }
  in_region = true;
  work_on(*workers_[0], number);
  in_region = false;
  spin_until([&] { return left_.load(std::memory_order_acquire) == 0; }, spins_before_yield_);
  if (ns) *ns = (Clock::now() - begin) / std::chrono::nanoseconds(1);
}

std::shared_ptr<ThreadPool> ThreadPool::shared(int threads, bool pin) {
  static ForkSafeLock lock;
  static std::map<bool, std::weak_ptr<ThreadPool>> pools;
  std::lock_guard guard(lock);
  std::shared_ptr<ThreadPool> pool = pools[pin].lock();
  if (pool && pool->max_threads() >= threads) return pool;
  // Who holds the smaller pool keeps it; the newer one serves who comes after.
  auto made = std::make_shared<ThreadPool>(threads, pin);
  if (pool && pool->max_threads() >= made->max_threads()) return pool;
  pools[pin] = made;
  return made;
}

int ThreadPool::default_threads() {
  return host_cpu_without_tiles().usable_threads();
}

}  // namespace nimble::rt
