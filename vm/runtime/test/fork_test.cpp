// Pools across fork(), which copies one thread and leaves the others' locks and workers behind.
#include "vm/runtime/fork.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <thread>

#include "vm/base/fault/child.h"
#include "vm/base/fault/failing_calls.h"
#include "vm/runtime/storage_pool.h"
#include "vm/runtime/thread_pool.h"

namespace nimble::rt {
namespace {

// The number of threads that meet at a barrier and see each other's writes.
int meet(ThreadPool& pool, int threads) {
  struct Context {
    int arrived[4] = {};
    std::atomic<int> seen{0};
  } context;
  pool.run(
      [](void* p, int32_t thread, int32_t of, nimble_barrier* barrier) {
        Context& c = *static_cast<Context*>(p);
        c.arrived[thread] = 1;
        barrier->wait(barrier, thread);
        int sum = 0;
        for (int i = 0; i < of; ++i) sum += c.arrived[i];
        if (sum == of) ++c.seen;
      },
      &context, threads);
  return context.seen;
}

TEST(Fork, AChildStartsItsOwnWorkers) {
  auto pool = std::make_unique<ThreadPool>(3);
  ASSERT_EQ(meet(*pool, 3), 3);
  EXPECT_EQ(in_child([&] {
              for (int i = 0; i < 10; ++i)
                if (meet(*pool, 3) != 3) return false;
              // Its own child again.
              if (!in_child([&] { return meet(*pool, 3) == 3; }).empty()) return false;
              pool.reset();
              return true;
            }),
            "");
  EXPECT_EQ(meet(*pool, 3), 3);
}

TEST(Fork, AChildMayDropAPoolThatItNeverUsed) {
  auto pool = std::make_unique<ThreadPool>(3);
  ASSERT_EQ(meet(*pool, 3), 3);
  EXPECT_EQ(in_child([&] {
              pool.reset();
              return true;
            }),
            "");
}

TEST(Fork, AChildWithoutThreadsRunsAlone) {
  ThreadPool pool(3);
  EXPECT_EQ(in_child([&] {
              const FailCall limit(SystemCall::kCreateThread, 1, true);
              return meet(pool, 3) == 1 && pool.max_threads() == 1 && meet(pool, 3) == 1;
            }),
            "");
}

// Others are in regions, hold locks and make pools at the time of the fork.
TEST(Fork, ThePoolsAreWholeWhateverOthersDo) {
  if (!kAllocatorSurvivesFork) GTEST_SKIP() << kWhyNot;
  const auto pool = ThreadPool::shared(2, false);
  StoragePool storage(device(0));
  std::atomic<bool> stop{false};
  std::thread regions([&] {
    while (!stop) meet(*pool, 2);
  });
  std::thread locks([&] {
    while (!stop) {
      storage.release(storage.allocate(1 << 16));
      const ThreadPool another(2);
      (void)ThreadPool::shared(2, false);
    }
  });
  for (int i = 0; i < 40; ++i)
    EXPECT_EQ(in_child([&] {
                storage.release(storage.allocate(100));
                storage.trim();
                return ThreadPool::shared(2, false) == pool && meet(*pool, 2) == 2;
              }),
              "");
  stop = true;
  regions.join();
  locks.join();
}

TEST(Fork, LocksNeedNoOrder) {
  ForkSafeLock first, second;
  std::atomic<bool> stop{false};
  std::thread nests([&] {
    while (!stop) {
      { const std::scoped_lock one_way(first, second); }
      const std::lock_guard outer(second);
      const ForkSafeLock made_inside;  // which takes the list of locks
      const std::lock_guard inner(first);
    }
  });
  for (int i = 0; i < 40; ++i)
    EXPECT_EQ(in_child([&] {
                const std::scoped_lock both(first, second);
                return true;
              }),
              "");
  stop = true;
  nests.join();
}

}  // namespace
}  // namespace nimble::rt
