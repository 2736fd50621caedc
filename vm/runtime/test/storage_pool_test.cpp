#include "vm/runtime/storage_pool.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <random>
#include <thread>

#include "vm/base/error.h"

namespace nimble::rt {
namespace {

constexpr uint64_t kPage = 4096;

// Large blocks begin anywhere in their first page.
uintptr_t page_of(const Block& b) {
  return reinterpret_cast<uintptr_t>(b.data) / kPage;
}

TEST(StoragePool, AlignsAndReuses) {
  StoragePool pool(device(0));
  for (uint64_t bytes : {0, 1, 63, 64, 65, 4096, 100000, 3000000, 9000001}) {
    const Block a = pool.allocate(bytes);
    EXPECT_GE(a.bytes, bytes);
    EXPECT_LE(a.bytes, bytes + 64 + (bytes > 200000 ? kPage : 0));
    EXPECT_EQ(reinterpret_cast<uintptr_t>(a.data) % 64, 0u);
    a.data[0] = 1;
    a.data[a.bytes - 1] = 2;
    pool.release(a);
    const Block b = pool.allocate(bytes);
    EXPECT_EQ(page_of(a), page_of(b)) << bytes;
    pool.release(b);
  }
  EXPECT_EQ(pool.stats().in_use, 0u);
  pool.trim();
  EXPECT_EQ(pool.stats().reserved, 0u);
}

// Loads of one and stores to the other at the same place of a page would wait for each other.
TEST(StoragePool, LargeBlocksBeginAtOtherPlacesOfAPage) {
  StoragePool pool(device(0));
  const auto places = [&](uint64_t bytes) {
    std::vector<uintptr_t> all;
    std::vector<Block> blocks;
    for (int i = 0; i < 8; ++i) {
      blocks.push_back(pool.allocate(bytes));
      std::fill_n(blocks.back().data, blocks.back().bytes, uint8_t(i));
      all.push_back(reinterpret_cast<uintptr_t>(blocks.back().data) % kPage);
    }
    for (int i = 0; i < 8; ++i) {  // none lies in another
      EXPECT_EQ(blocks[i].data[0], i);
      EXPECT_EQ(blocks[i].data[blocks[i].bytes - 1], i);
    }
    for (const Block& b : blocks) pool.release(b);
    pool.end_run();
    return all;
  };
  constexpr uint64_t kLarge = 64 * Device::kGranule;
  const std::vector<uintptr_t> first = places(kLarge);
  for (size_t i = 0; i < first.size(); ++i)
    for (size_t j = 0; j < i; ++j) {
      const auto apart = static_cast<int64_t>(first[i]) - static_cast<int64_t>(first[j]);
      EXPECT_GE(std::abs(apart), 192) << i << " and " << j;
    }
  EXPECT_EQ(places(kLarge), first) << "the next run's lie as the last one's did";
  EXPECT_THAT(places(kLarge - 64), testing::Each(0)) << "small ones waste nothing";
  EXPECT_EQ(pool.stats().in_use, 0u);
  pool.trim();
  EXPECT_EQ(pool.stats().reserved, 0u);
}

TEST(StoragePool, ServesSmallerRequestsFromLargerBlocks) {
  StoragePool pool(device(0));
  const Block big = pool.allocate(1000);
  pool.release(big);
  const Block most = pool.allocate(920);
  EXPECT_EQ(most.data, big.data);
  pool.release(most);
  const Block small = pool.allocate(100);  // a tenth: rather a block of its own
  EXPECT_NE(small.data, big.data);
  pool.release(small);
}

// Ten thousand kept blocks that do not serve must not be looked at by each request.
TEST(StoragePool, LooksAtFewOfTheKeptBlocks) {
  StoragePool pool(device(0));
  const auto keep = [&](size_t bytes, int count) {
    std::vector<Block> blocks;
    for (int i = 0; i < count; ++i) blocks.push_back(pool.allocate(bytes));
    for (const Block& b : blocks) pool.release(b);
  };
  const auto reused = [&] {
    const uint64_t before = pool.stats().reuses;
    const Block b = pool.allocate(2112);
    const bool was = pool.stats().reuses > before;
    pool.release(b);
    pool.trim();
    return was;
  };
  // Of one class: the larger one lies under the smaller ones, which do not serve.
  std::vector<Block> small;
  for (const int count : {10, 100}) {
    for (int i = 0; i < count; ++i) small.push_back(pool.allocate(2048));
    keep(2112, 1);
    for (const Block& b : small) pool.release(b);
    small.clear();
    EXPECT_EQ(reused(), count == 10) << count;
  }
}

TEST(StoragePool, ClearsWhatItHandsOut) {
  for (const int32_t number : {kCpuDevice, kStandInDevice}) {
    Device& on = device(number);
    StoragePool pool(on, 0, /*clears=*/true);
    auto expect_zeros = [&](const Block& b) {
      std::vector<uint8_t> host(b.bytes, 9);
      on.copy_out(host.data(), b.data, b.bytes);
      EXPECT_EQ(std::count(host.begin(), host.end(), 0), static_cast<ptrdiff_t>(b.bytes));
    };
    for (uint64_t bytes : {1, 64, 4000, 100000, 3000000}) {
      // As malloc may give it: what another owner of the memory left.
      void* raw = on.allocate(bytes / 64 * 64 + 64);
      on.copy_in(raw, std::vector<uint8_t>(bytes, 7).data(), bytes);
      on.free(raw, bytes / 64 * 64 + 64);
      Block b = pool.allocate(bytes);
      expect_zeros(b);
      on.copy_in(b.data, std::vector<uint8_t>(b.bytes, 7).data(), b.bytes);
      const uintptr_t before = page_of(b);
      pool.release(b);
      b = pool.allocate(bytes - bytes / 16);  // the same one, reused
      EXPECT_EQ(page_of(b), before);
      expect_zeros(b);
      pool.release(b);
    }
  }
}

TEST(StoragePool, CapIsHard) {
  constexpr uint64_t kCap = 8 << 20;
  StoragePool pool(device(0), kCap);
  std::mt19937 random(3);
  std::vector<Block> live;
  for (int i = 0; i < 2000; ++i) {
    try {
      live.push_back(pool.allocate(random() % (2 << 20)));
    } catch (const Error& e) {
      EXPECT_EQ(e.status(), Status::kExhausted);
    }
    while (live.size() > random() % 8) {
      pool.release(live.back());
      live.pop_back();
    }
    ASSERT_LE(pool.stats().reserved, kCap);
  }
  for (Block b : live) pool.release(b);
  EXPECT_THROW(pool.allocate(kCap + 1), Error);
  EXPECT_THROW(pool.charge(kCap + 1), Error);
  pool.charge(kCap);
  EXPECT_THROW(pool.allocate(64), Error);
  pool.refund(kCap);
  pool.release(pool.allocate(64));
}

TEST(StoragePool, TheLimitsErrorNamesWhatIsNeeded) {
  StoragePool pool(device(0), 1 << 20);
  const Block live = pool.allocate((1 << 19) - kPage);
  pool.release(pool.allocate(1 << 18));  // free: goes back before anything fails
  pool.release(pool.allocate(3 << 17));
  EXPECT_LE(pool.stats().reserved, 1u << 20);
  try {
    pool.allocate((1 << 20) - kPage);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.status(), Status::kExhausted);
    EXPECT_EQ(e.problem(),
              "the memory limit of 1048576 bytes is reached: 524288 are live, 1048576 more are "
              "needed");
    EXPECT_EQ(e.remedy(), "raise the limit to at least 1572864 or use smaller inputs");
  }
  pool.release(live);
}

// Runs that each take a few blocks of their own sizes: what is held follows the largest need, not
// the number of shapes seen. An allocator of exact sizes alone would hold every size for ever.
TEST(StoragePool, HoldsLittleMoreThanTheLargestRunNeeds) {
  StoragePool pool(device(0));
  std::mt19937 random(11);
  uint64_t largest = 0;  // bytes asked for and live at once
  const auto most = [&] {
    return std::max(1.2 * static_cast<double>(largest),
                    static_cast<double>(StoragePool::kAlwaysKept));
  };
  for (int run = 0; run < 1000; ++run) {
    const uint64_t n = 1 + random() % 300;
    std::vector<std::pair<Block, uint64_t>> live;
    uint64_t need = 0;
    for (uint64_t bytes : {n * 1536, n * 6144, n * n * 48, n * 1536, uint64_t{4096}}) {
      live.emplace_back(pool.allocate(bytes), bytes);
      need += bytes;
      largest = std::max(largest, need);
      ASSERT_LE(static_cast<double>(pool.stats().reserved), most());
      if (random() % 3 > 0) continue;
      const size_t k = random() % live.size();
      pool.release(live[k].first);
      need -= live[k].second;
      live.erase(live.begin() + static_cast<ptrdiff_t>(k));
    }
    for (const auto& [block, bytes] : live) pool.release(block);
    pool.end_run();
    ASSERT_LE(static_cast<double>(pool.stats().reserved), most());
  }
}

TEST(StoragePool, ARepeatedRunMissesNothing) {
  StoragePool pool(device(0));
  auto run = [&pool] {
    const uint64_t before = pool.stats().allocations - pool.stats().reuses;
    std::vector<Block> live;
    for (uint64_t bytes : {1000, 50000, 1000, 300000, 64, 7}) live.push_back(pool.allocate(bytes));
    for (const Block& b : live) pool.release(b);
    pool.end_run();
    return pool.stats().allocations - pool.stats().reuses - before;
  };
  EXPECT_GT(run(), 0u);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(run(), 0u);
}

// Each run has other sizes than the one before, and never more memory than the first.
TEST(StoragePool, ARunOfAnotherShapeFindsTheMemoryOfTheOneBefore) {
  StoragePool pool(device(0));
  const auto misses = [&pool](uint64_t n) {
    const uint64_t before = pool.stats().allocations - pool.stats().reuses;
    std::vector<Block> live;
    for (const uint64_t bytes : {n * 6144, n * 4608, n * 1536, n * 1536})
      live.push_back(pool.allocate(bytes));
    for (const Block& b : live) b.data[b.bytes - 1] = 1;
    for (const Block& b : live) pool.release(b);
    pool.end_run();
    return pool.stats().allocations - pool.stats().reuses - before;
  };
  EXPECT_EQ(misses(1000), 4u);
  for (const uint64_t n : {500, 600, 450}) EXPECT_EQ(misses(n), 0u) << n;
}

// What a large run left goes back bit by bit behind small ones, which it would make slow at once.
TEST(StoragePool, SmallRunsGiveBackLittleAtATime) {
  StoragePool pool(device(0));
  pool.release(pool.allocate(64 << 20));
  pool.end_run();
  uint64_t before = pool.stats().reserved;
  for (int run = 0; run < 20; ++run) {
    pool.release(pool.allocate(512 << 10));
    pool.end_run();
    const uint64_t now = pool.stats().reserved;
    EXPECT_LE(before - now, (4u << 20) + rt::kHugePage) << run;
    before = now;
  }
  EXPECT_LT(before, 48u << 20);
}

// Blocks of sizes that cannot serve each other: each size comes from the system once.
TEST(StoragePool, SmallRunsOfChangingShapesMissNothing) {
  StoragePool pool(device(0));
  const auto misses = [&pool] {
    const uint64_t before = pool.stats().allocations - pool.stats().reuses;
    for (const uint64_t n : {40, 38, 25, 31})
      for (const uint64_t bytes : {n * 1800, n * 600, n * 1200, n * 8}) {
        pool.release(pool.allocate(bytes));
        pool.end_run();
      }
    return pool.stats().allocations - pool.stats().reuses - before;
  };
  EXPECT_GT(misses(), 0u);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(misses(), 0u);
}

TEST(StoragePool, HugeRequestsFailCleanly) {
  StoragePool pool(device(0));
  EXPECT_THROW(pool.allocate(UINT64_MAX), Error);
  EXPECT_THROW(pool.allocate(uint64_t{1} << 60), Error);
  // What cannot be rounded up is refused before a device is asked.
  constexpr uint64_t kLargest = uint64_t{1} << 62;
  const auto problem = [&](uint64_t bytes) -> std::string {
    try {
      pool.release(pool.allocate(bytes));
    } catch (const Error& e) {
      EXPECT_EQ(e.status(), Status::kExhausted);
      return e.problem();
    }
    return "";
  };
  EXPECT_EQ(problem(kLargest), "the cpu has no memory for 4611686018427391936 bytes");
  EXPECT_EQ(problem(kLargest + 1), "a storage of 4611686018427387905 bytes is too large");
  EXPECT_EQ(pool.stats().in_use, 0u);
}

TEST(StoragePool, ForgetsALargeRun) {
  StoragePool pool(device(0));
  pool.release(pool.allocate(200 << 20));
  for (int run = 0; run < 40; ++run) {
    pool.release(pool.allocate(1 << 20));
    pool.end_run();
  }
  EXPECT_LT(pool.stats().reserved, 64u << 20);
}

TEST(StoragePool, TakesBlocksBackFromOtherThreads) {
  StoragePool pool(device(0));
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&pool] {
      for (int i = 0; i < 2000; ++i) {
        const Block b = pool.allocate(64 + i);
        b.data[0] = 1;
        pool.release(b);
      }
    });
  for (auto& t : threads) t.join();
  EXPECT_EQ(pool.stats().in_use, 0u);
}

}  // namespace
}  // namespace nimble::rt
