#include "vm/runtime/thread_pool.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <atomic>
#include <chrono>
#include <numeric>
#include <thread>

#include "vm/base/fault/failing_calls.h"

namespace nimble::rt {
namespace {

TEST(ThreadPool, EveryThreadRunsOnce) {
  ThreadPool pool(4);
  for (int threads = 1; threads <= 4; ++threads)
    for (int round = 0; round < 500; ++round) {
      std::vector<int> seen(4, 0);
      pool.run([](void* context, int32_t thread, int32_t,
                  nimble_barrier*) { ++(*static_cast<std::vector<int>*>(context))[thread]; },
               &seen, threads);
      for (int i = 0; i < 4; ++i) ASSERT_EQ(seen[i], i < threads ? 1 : 0);
    }
}

TEST(ThreadPool, AThreadKeepsItsNumber) {
  ThreadPool pool(3);
  std::vector<std::thread::id> first(3), again(3);
  auto record = [](void* context, int32_t thread, int32_t, nimble_barrier* barrier) {
    barrier->wait(barrier, thread);  // or the caller might stand in for a late worker
    (*static_cast<std::vector<std::thread::id>*>(context))[thread] = std::this_thread::get_id();
  };
  pool.run(record, &first, 3);
  for (int i = 0; i < 50; ++i) {
    pool.run(record, &again, 3);
    ASSERT_EQ(first, again);
  }
  EXPECT_EQ(first[0], std::this_thread::get_id());
}

// Each step reads what its neighbour wrote in the step before: wrong without the barrier.
struct Relay {
  std::vector<int64_t> values;
  int steps;
};
void relay(void* context, int32_t thread, int32_t threads, nimble_barrier* barrier) {
  Relay& r = *static_cast<Relay*>(context);
  for (int s = 0; s < r.steps; ++s) {
    const int64_t next = r.values[(thread + 1) % threads] + 1;
    barrier->wait(barrier, thread);
    r.values[thread] = next;
    barrier->wait(barrier, thread);
  }
}

TEST(ThreadPool, BarrierOrdersMemory) {
  ThreadPool pool(4);
  for (int threads : {2, 3, 4, 1, 4, 2}) {
    Relay r{std::vector<int64_t>(4, 0), 200};
    pool.run(relay, &r, threads);
    for (int i = 0; i < threads; ++i) EXPECT_EQ(r.values[i], 200);
  }
}

TEST(ThreadPool, RegionsOfManyCallersQueue) {
  ThreadPool pool(3);
  std::vector<std::thread> callers;
  std::vector<int64_t> sums(4, 0);
  for (int c = 0; c < 4; ++c)
    callers.emplace_back([&, c] {
      for (int i = 0; i < 200; ++i) {
        Relay r{std::vector<int64_t>(3, 0), 3};
        pool.run(relay, &r, 3);
        sums[c] += std::accumulate(r.values.begin(), r.values.end(), int64_t{0});
      }
    });
  for (auto& t : callers) t.join();
  for (int64_t s : sums) EXPECT_EQ(s, 200 * 9);
}

TEST(ThreadPool, NestedRegionsRunInline) {
  ThreadPool pool(2);
  struct Context {
    ThreadPool* pool;
    std::atomic<int> inner{0};
  } context{&pool};
  pool.run(
      [](void* outer, int32_t, int32_t, nimble_barrier*) {
        static_cast<Context*>(outer)->pool->run(
            [](void* c, int32_t, int32_t threads, nimble_barrier*) {
              EXPECT_EQ(threads, 1);
              ++static_cast<Context*>(c)->inner;
            },
            outer, 2);
      },
      &context, 2);
  EXPECT_EQ(context.inner, 2);
}

TEST(ThreadPool, AnAbandonedRegionEnds) {
  ThreadPool pool(3);
  for (int round = 0; round < 20; ++round) {
    pool.run(
        [](void* p, int32_t thread, int32_t, nimble_barrier* barrier) {
          if (thread == 2) {
            static_cast<ThreadPool*>(p)->barrier().abandon();
            return;
          }
          barrier->wait(barrier, thread);
        },
        &pool, 3);
    Relay r{std::vector<int64_t>(3, 0), 10};  // the next region is whole again
    pool.run(relay, &r, 3);
    for (int64_t v : r.values) EXPECT_EQ(v, 10);
  }
}

TEST(ThreadPool, WakesParkedWorkers) {
  ThreadPool pool(2, true);
  for (int i = 0; i < 5; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    Relay r{std::vector<int64_t>(2, 0), 1};
    pool.run(relay, &r, 2);
    EXPECT_EQ(r.values[1], 1);
  }
}

// With one core for all, workers rarely begin before the caller is through.
TEST(ThreadPool, TheCallerStandsInForLateWorkers) {
  cpu_set_t all, one;
  ASSERT_EQ(::sched_getaffinity(0, sizeof all, &all), 0);
  CPU_ZERO(&one);
  for (int i = 0; i < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++i)
    if (CPU_ISSET(i, &all)) CPU_SET(i, &one);
  ASSERT_EQ(::sched_setaffinity(0, sizeof one, &one), 0);  // threads inherit it
  {
    ThreadPool pool(3);
    struct Counts {
      std::atomic<int> runs[3] = {0, 0, 0};
      std::atomic<int> by_caller{0};
      std::thread::id caller = std::this_thread::get_id();
    } counts;
    for (int round = 0; round < 1000; ++round)
      pool.run(
          [](void* context, int32_t thread, int32_t, nimble_barrier*) {
            Counts& c = *static_cast<Counts*>(context);
            ++c.runs[thread];
            if (thread > 0 && std::this_thread::get_id() == c.caller) ++c.by_caller;
          },
          &counts, 3);
    for (const auto& runs : counts.runs) EXPECT_EQ(runs.load(), 1000);
    EXPECT_GT(counts.by_caller.load(), 0);
  }
  ASSERT_EQ(::sched_setaffinity(0, sizeof all, &all), 0);
}

// Each share once, whoever does it, and none of them waits at its barrier.
TEST(ThreadPool, EveryShareIsDoneOnce) {
  ThreadPool pool(4);
  for (int round = 0; round < 300; ++round)
    for (int threads = 1; threads <= 4; ++threads)
      for (const int each : {1, 2, 5, ThreadPool::kMostShares}) {
        struct Counts {
          std::atomic<int> runs[4 * ThreadPool::kMostShares] = {};
          std::atomic<int> shares{0};
        } counts;
        pool.run(
            [](void* context, int32_t share, int32_t shares, nimble_barrier* barrier) {
              Counts& c = *static_cast<Counts*>(context);
              barrier->wait(barrier, share);
              ++c.runs[share];
              c.shares = shares;
            },
            &counts, threads, each);
        const int shares = threads == 1 ? 1 : threads * each;
        ASSERT_EQ(counts.shares, shares);
        for (int i = 0; i < 4 * ThreadPool::kMostShares; ++i)
          ASSERT_EQ(counts.runs[i], i < shares ? 1 : 0) << i;
      }
}

// The first share of a thread lasts until all others are done: that is for the other thread to do.
TEST(ThreadPool, SharesOfASlowThreadAreTaken) {
  ThreadPool pool(2);
  for (const int slow : {0, 4}) {
    struct Region {
      int slow;
      std::atomic<int> done{0};
    } region{slow};
    pool.run(
        [](void* context, int32_t share, int32_t shares, nimble_barrier*) {
          Region& r = *static_cast<Region*>(context);
          if (share == r.slow)
            while (r.done < shares - 1) std::this_thread::yield();
          ++r.done;
        },
        &region, 2, 4);
    EXPECT_EQ(region.done, 8);
  }
}

TEST(ThreadPool, SharedPoolServesAllSizes) {
  const auto two = ThreadPool::shared(2, false);
  EXPECT_EQ(ThreadPool::shared(1, false), two);
  const auto three = ThreadPool::shared(3, false);
  EXPECT_EQ(three->max_threads(), 3);
  EXPECT_EQ(ThreadPool::shared(2, false), three);
  EXPECT_GE(ThreadPool::default_threads(), 1);
}

// At pids.max: what was asked for is a wish.
TEST(ThreadPool, IsAsLargeAsTheSystemLetsItBe) {
  for (int started = 0; started <= 3; ++started) {
    const FailCall limit(SystemCall::kCreateThread, static_cast<uint64_t>(started) + 1, true);
    ThreadPool pool(4);
    EXPECT_EQ(limit.failed(), started < 3);
    ASSERT_EQ(pool.max_threads(), started + 1);
    for (int threads = 1; threads <= 4; ++threads) {
      Relay r{std::vector<int64_t>(4, 0), 20};
      pool.run(relay, &r, threads);
      for (int i = 0; i < 4; ++i)
        EXPECT_EQ(r.values[i], i < std::min(threads, started + 1) ? 20 : 0);
    }
  }
}

TEST(ThreadPool, ASharedPoolGivesWayToALargerOneOnly) {
  const auto three = ThreadPool::shared(3, false);
  {
    const FailCall limit(SystemCall::kCreateThread, 2, true);
    EXPECT_EQ(ThreadPool::shared(4, false), three);
  }
  {
    const FailCall limit(SystemCall::kCreateThread, 4, true);
    const auto four = ThreadPool::shared(8, false);
    EXPECT_NE(four, three);
    EXPECT_EQ(four->max_threads(), 4);
    EXPECT_EQ(ThreadPool::shared(4, false), four);
  }
}

}  // namespace
}  // namespace nimble::rt
