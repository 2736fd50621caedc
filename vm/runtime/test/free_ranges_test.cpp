#include "vm/runtime/free_ranges.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace nimble::rt {
namespace {

constexpr size_t kWhole = 16;  // bytes of a stretch that is not divided

// Memory that nobody reads: only addresses matter.
alignas(4096) uint8_t memory[4096];

TEST(FreeRanges, TakesTheFrontOfTheSmallestThatServes) {
  FreeRanges free;
  EXPECT_EQ(free.take(1), nullptr);
  free.give(memory, 100);
  free.give(memory + 200, 50);
  free.give(memory + 300, 50);
  EXPECT_EQ(free.bytes(), 200u);
  EXPECT_EQ(free.take(40), memory + 200);
  EXPECT_EQ(free.take(50), memory + 300);
  EXPECT_EQ(free.take(11), memory);
  EXPECT_EQ(free.take(10), memory + 240);
  EXPECT_EQ(free.take(90), nullptr);
  EXPECT_EQ(free.take(89), memory + 11);
  EXPECT_EQ(free.bytes(), 0u);
  EXPECT_EQ(free.ranges(), 0u);
}

TEST(FreeRanges, NeighboursBecomeOne) {
  FreeRanges free;
  free.give(memory, 10);
  free.give(memory + 20, 10);
  free.give(memory + 40, 10);
  EXPECT_EQ(free.ranges(), 3u);
  free.give(memory + 10, 10);  // both sides
  EXPECT_EQ(free.ranges(), 2u);
  free.give(memory + 30, 5);  // the one before
  free.give(memory + 35, 5);  // both
  EXPECT_EQ(free.ranges(), 1u);
  free.give(memory + 60, 5);
  free.give(memory + 55, 5);  // the one behind
  EXPECT_EQ(free.ranges(), 2u);
  EXPECT_EQ(free.take(50), memory);
}

TEST(FreeRanges, CutsTheLargest) {
  FreeRanges free;
  EXPECT_EQ(free.cut(8, kWhole).first, nullptr);
  free.give(memory, 24);
  free.give(memory + 64, 72);
  // The last aligned stretch that is whole ends at 128: the rest may be cut anywhere.
  EXPECT_EQ(free.cut(4, kWhole), std::pair(memory + 132, size_t{4}));
  EXPECT_EQ(free.cut(4, kWhole), std::pair(memory + 128, size_t{4}));
  EXPECT_EQ(free.cut(4, kWhole), std::pair(memory + 112, size_t{16}));
  EXPECT_EQ(free.cut(16, kWhole), std::pair(memory + 96, size_t{16}));
  EXPECT_EQ(free.cut(1000, kWhole), std::pair(memory + 64, size_t{32}));
  EXPECT_EQ(free.cut(9, kWhole), std::pair(memory, size_t{24}));
  EXPECT_EQ(free.bytes(), 0u);
}

// Against a map of bytes: what is handed out is free, nothing is lost, neighbours are one.
TEST(FreeRanges, LosesNothing) {
  std::mt19937 random(5);
  constexpr size_t kSize = 512;
  FreeRanges free;
  std::vector<bool> is_free(kSize, false);
  std::vector<std::pair<uint8_t*, size_t>> out = {{memory, kSize}};
  for (int step = 0; step < 20000; ++step) {
    if (random() % 2 == 0 && !out.empty()) {
      const size_t i = random() % out.size();
      // Sometimes in two parts.
      auto [data, bytes] = out[i];
      const size_t part = bytes > 1 && random() % 2 == 0 ? 1 + random() % (bytes - 1) : bytes;
      free.give(data, part);
      for (size_t b = 0; b < part; ++b) is_free[static_cast<size_t>(data - memory) + b] = true;
      out[i] = {data + part, bytes - part};
      if (part == bytes) out.erase(out.begin() + static_cast<ptrdiff_t>(i));
    } else {
      const size_t bytes = 1 + random() % 60;
      const bool cuts = random() % 4 == 0;
      const auto [data, got] = cuts ? free.cut(bytes, kWhole) : std::pair(free.take(bytes), bytes);
      if (!data) continue;
      for (size_t b = 0; b < got; ++b) {
        ASSERT_TRUE(is_free[static_cast<size_t>(data - memory) + b]);
        is_free[static_cast<size_t>(data - memory) + b] = false;
      }
      out.emplace_back(data, got);
    }
    size_t bytes = 0, ranges = 0;
    for (size_t b = 0; b < kSize; ++b) {
      bytes += is_free[b];
      ranges += is_free[b] && (b == 0 || !is_free[b - 1]);
    }
    ASSERT_EQ(free.bytes(), bytes);
    ASSERT_EQ(free.ranges(), ranges);
  }
}

}  // namespace
}  // namespace nimble::rt
