#include "vm/runtime/storage_pool.h"

#include <gtest/gtest.h>

#include <random>
#include <thread>

#include "vm/base/error.h"

namespace nimble::rt {
namespace {

TEST(StoragePool, AlignsAndReuses) {
  StoragePool pool(device(0));
  for (uint64_t bytes : {0, 1, 63, 64, 65, 4096, 100000, 3000000, 9000001}) {
    const Block a = pool.allocate(bytes);
    EXPECT_GE(a.bytes, bytes);
    EXPECT_LE(a.bytes, std::max<uint64_t>(64, bytes + bytes / 4 + 1));
    EXPECT_EQ(reinterpret_cast<uintptr_t>(a.data) % 64, 0u);
    a.data[0] = 1;
    a.data[a.bytes - 1] = 2;
    pool.release(a);
    const Block b = pool.allocate(bytes);
    EXPECT_EQ(a.data, b.data) << bytes;
    pool.release(b);
  }
  EXPECT_EQ(pool.stats().in_use, 0u);
  pool.trim();
  EXPECT_EQ(pool.stats().reserved, 0u);
}

TEST(StoragePool, ServesSmallerRequestsFromLargerBlocks) {
  StoragePool pool(device(0));
  const Block big = pool.allocate(1000);
  pool.release(big);
  const Block half = pool.allocate(600);
  EXPECT_EQ(half.data, big.data);
  pool.release(half);
  const Block small = pool.allocate(100);  // a tenth: rather a block of its own
  EXPECT_NE(small.data, big.data);
  pool.release(small);
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

TEST(StoragePool, HugeRequestsFailCleanly) {
  StoragePool pool(device(0));
  EXPECT_THROW(pool.allocate(UINT64_MAX), Error);
  EXPECT_THROW(pool.allocate(uint64_t{1} << 60), Error);
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
