// Devices: the stand-in's arena hands out disjoint memory that only its own kernels and copies
// may touch.
#include "vm/runtime/device.h"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <random>
#include <thread>
#include <vector>

#include "vm/base/error.h"
#include "vm/base/fault/failing_calls.h"
#include "vm/base/test/scoped_variable.h"
#include "vm/runtime/object.h"
#include "vm/runtime/stand_in_device.h"

namespace nimble::rt {
namespace {

TEST(Device, EveryNumberHasItsDevice) {
  const ScopedVariable driver("NIMBLE_CUDA_DRIVER", NIMBLE_STANDIN_CUDA);
  for (int32_t i = 0; i < kDeviceCount; ++i) {
    EXPECT_EQ(device(i).number(), i);
    EXPECT_EQ(device_by_name(device(i).name()), i);
  }
  EXPECT_TRUE(device(kCpuDevice).host_accessible());
  EXPECT_FALSE(device(kStandInDevice).host_accessible());
  EXPECT_FALSE(device(kCudaDevice).host_accessible());
  EXPECT_EQ(device_by_name("gpu"), std::nullopt);
  for (int32_t bad : {-1, kDeviceCount, 255}) {
    try {
      device(bad);
      ADD_FAILURE() << bad;
    } catch (const Error& e) {
      EXPECT_EQ(e.status(), Status::kUnsupported);
    }
  }
}

TEST(Device, CopiesBetweenAllPairs) {
  const ScopedVariable driver("NIMBLE_CUDA_DRIVER", NIMBLE_STANDIN_CUDA);
  for (size_t bytes :
       {size_t{0}, size_t{1}, size_t{63}, size_t{64}, size_t{4097}, size_t{1 << 21}}) {
    std::vector<uint8_t> from(bytes), to(bytes);
    std::iota(from.begin(), from.end(), uint8_t{1});
    for (int32_t a = 0; a < kDeviceCount; ++a)
      for (int32_t b = 0; b < kDeviceCount; ++b) {
        void* x = device(a).allocate(bytes + 1);
        void* y = device(b).allocate(bytes + 1);
        std::fill(to.begin(), to.end(), uint8_t{0});
        copy(device(a), x, device(kCpuDevice), from.data(), bytes);
        copy(device(b), y, device(a), x, bytes);
        copy(device(kCpuDevice), to.data(), device(b), y, bytes);
        EXPECT_EQ(from, to) << a << " to " << b;
        device(a).free(x, bytes + 1);
        device(b).free(y, bytes + 1);
      }
  }
}

TEST(StandInDevice, HandsOutDisjointMemoryAndTakesItBack) {
  StandInDevice stand_in;
  struct Block {
    uint8_t* data;
    size_t bytes;
    uint8_t mark;
  };
  std::vector<Block> blocks;
  std::mt19937 random(5);
  size_t expected = 0;
  auto check = [&](const Block& b) {
    const KernelScope open(stand_in);
    for (size_t i = 0; i < b.bytes; i += 61) ASSERT_EQ(b.data[i], b.mark);
    ASSERT_EQ(b.data[b.bytes - 1], b.mark);
  };
  for (int step = 0; step < 2000; ++step) {
    if (blocks.empty() || random() % 5 < 3) {
      const size_t bytes = 1 + random() % (random() % 8 == 0 ? 300000 : 3000);
      Block b{static_cast<uint8_t*>(stand_in.allocate(bytes)), bytes, static_cast<uint8_t>(step)};
      ASSERT_NE(b.data, nullptr);
      ASSERT_EQ(reinterpret_cast<uintptr_t>(b.data) % 64, 0u);
      const KernelScope open(stand_in);
      std::memset(b.data, b.mark, bytes);
      blocks.push_back(b);
      expected += (bytes + 63) / 64 * 64;
    } else {
      const size_t i = random() % blocks.size();
      check(blocks[i]);
      stand_in.free(blocks[i].data, blocks[i].bytes);
      expected -= (blocks[i].bytes + 63) / 64 * 64;
      blocks.erase(blocks.begin() + static_cast<ptrdiff_t>(i));
    }
    ASSERT_EQ(stand_in.in_use(), expected);
  }
  for (const Block& b : blocks) check(b);
  for (const Block& b : blocks) stand_in.free(b.data, b.bytes);
  EXPECT_EQ(stand_in.in_use(), 0u);
  // All of it has joined again: what is free serves one block of its whole size.
  void* first = stand_in.allocate(64);
  stand_in.free(first, 64);
  void* large = stand_in.allocate(200000);
  EXPECT_EQ(large, first);
  stand_in.free(large, 200000);
}

TEST(StandInDevice, RefusesMoreThanItsArena) {
  StandInDevice stand_in;
  EXPECT_EQ(stand_in.allocate(size_t{1} << 40), nullptr);
  EXPECT_EQ(stand_in.allocate(SIZE_MAX), nullptr);
}

// Up to its last byte, and no further.
TEST(StandInDevice, HandsOutItsWholeArena) {
  constexpr size_t kArena = StandInDevice::kSmallestArena;
  {
    StandInDevice stand_in(kArena);
    EXPECT_EQ(stand_in.allocate(kArena + 1), nullptr);
    EXPECT_NE(stand_in.allocate(kArena), nullptr);
    EXPECT_EQ(stand_in.allocate(1), nullptr);
  }
  StandInDevice stand_in(kArena);
  void* half = stand_in.allocate(kArena / 2);
  ASSERT_NE(half, nullptr);
  EXPECT_EQ(stand_in.allocate(kArena / 2 + 1), nullptr);
  void* rest = stand_in.allocate(kArena / 2);
  ASSERT_NE(rest, nullptr);
  EXPECT_EQ(stand_in.in_use(), kArena);
  const KernelScope open(stand_in);
  std::memset(half, 1, kArena / 2);
  std::memset(rest, 1, kArena / 2);
}

// Address space that the system does not have, and sizes that wrap when they are rounded up.
TEST(Device, MemoryThatCannotBeIsNull) {
  for (const size_t bytes : {size_t{1} << 62, SIZE_MAX / 2, SIZE_MAX / 2 + 1, SIZE_MAX - 10'000,
                             SIZE_MAX - 4096, SIZE_MAX})
    EXPECT_EQ(map_huge(bytes), nullptr) << bytes;
}

// Neither what was mapped nor what was not is given back twice.
TEST(Device, MemoryThatTheSystemRefusesIsNull) {
  for (const size_t bytes : {size_t{1}, size_t{1} << 21, size_t{1} << 26}) {
    const SystemBalance before = system_balance();
    {
      const FailCall none(SystemCall::kMmap, 1);
      EXPECT_EQ(map_huge(bytes), nullptr) << bytes;
      EXPECT_TRUE(none.failed());
    }
    EXPECT_EQ(system_balance(), before) << bytes;
  }
}

// Without address space for its arena it has no memory, and looks for it again later.
TEST(StandInDevice, AnArenaThatTheSystemRefuses) {
  StandInDevice stand_in;
  {
    const FailCall none(SystemCall::kMmap, 1, true);
    EXPECT_EQ(stand_in.allocate(64), nullptr);
    EXPECT_EQ(stand_in.allocate(0), nullptr);
  }
  void* memory = stand_in.allocate(64);
  EXPECT_NE(memory, nullptr);
  stand_in.free(memory, 64);
}

// A kernel that cannot be given its memory does not run.
TEST(StandInDevice, RightsThatTheSystemRefuses) {
  StandInDevice stand_in;
  void* memory = stand_in.allocate(64);
  const auto open = [&] { const KernelScope scope(stand_in); };
  for (int i = 0; i < 2; ++i) {
    const FailCall none(SystemCall::kMprotect, 1);
    try {
      open();
      ADD_FAILURE();
    } catch (const Error& e) {
      EXPECT_EQ(e.status(), Status::kExhausted);
    }
  }
  EXPECT_NO_THROW(open());
  stand_in.free(memory, 64);
}

// What is allocated while a kernel runs is open to it.
TEST(StandInDevice, GrowsWhileAKernelRuns) {
  StandInDevice stand_in;
  const KernelScope open(stand_in);
  for (size_t bytes = 1; bytes < (size_t{8} << 20); bytes *= 3)
    std::memset(stand_in.allocate(bytes), 1, bytes);
}

TEST(StandInDevice, StaysOpenUntilTheLastOfSeveralKernels) {
  StandInDevice& stand_in = static_cast<StandInDevice&>(device(kStandInDevice));
  auto* x = static_cast<int*>(stand_in.allocate(sizeof(int)));
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 300; ++i) {
        const KernelScope outer(stand_in);
        { const KernelScope inner(stand_in); }
        __atomic_fetch_add(x, 1, __ATOMIC_RELAXED);
      }
    });
  for (std::thread& t : threads) t.join();
  int got = 0;
  stand_in.copy_out(&got, x, sizeof got);
  EXPECT_EQ(got, 900);
  stand_in.free(x, sizeof(int));
}

using StandInDeviceDeathTest = testing::Test;
TEST(StandInDeviceDeathTest, TheHostFaultsOnItsMemory) {
  StandInDevice stand_in;
  auto* x = static_cast<volatile uint8_t*>(stand_in.allocate(1000));
  { const KernelScope open(stand_in); }
  EXPECT_DEATH(x[999] = 1, "");
  EXPECT_DEATH((void)x[0], "");
}

TEST(Heap, StoragesComeFromTheirDevicesPool) {
  Heap heap(std::make_shared<StoragePool>(device(kCpuDevice), uint64_t{1} << 20));
  Storage* here = heap.new_storage(100);
  const uint64_t before = heap.pool()->stats().in_use;
  Storage* there = heap.new_storage(5000, kStandInDevice);
  EXPECT_EQ(here->device, kCpuDevice);
  EXPECT_EQ(there->device, kStandInDevice);
  EXPECT_GE(heap.pool(kStandInDevice)->stats().in_use, 5000u);
  EXPECT_EQ(heap.pool()->stats().in_use, before);
  EXPECT_EQ(heap.pool(kStandInDevice)->limit(), uint64_t{1} << 20);
  EXPECT_THROW(heap.new_storage(uint64_t{2} << 20, kStandInDevice), Error);
  heap.release(there);
  heap.release(here);
  EXPECT_EQ(heap.pool(kStandInDevice)->stats().in_use, 0u);
}

}  // namespace
}  // namespace nimble::rt
