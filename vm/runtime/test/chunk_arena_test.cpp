#include "vm/runtime/chunk_arena.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <iterator>
#include <map>
#include <vector>

namespace nimble::rt {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

// Counts what an arena takes and gives back; addresses are not touched.
struct Source {
  size_t limit = SIZE_MAX, held = 0;
  int obtained = 0;
  uintptr_t next = 1 << 20;
  std::map<void*, size_t> chunks;
  ChunkArena arena{[this](size_t bytes) -> void* {
                     if (held + bytes > limit) return nullptr;
                     ++obtained;
                     held += bytes;
                     void* at = reinterpret_cast<void*>(next);
                     next += bytes;  // chunks touch each other
                     chunks[at] = bytes;
                     return at;
                   },
                   [this](void* memory) {
                     held -= chunks.at(memory);
                     chunks.erase(memory);
                   }};
};

TEST(ChunkArena, HandsPartsOfChunksOut) {
  Source s;
  void* a = s.arena.allocate(1);
  void* b = s.arena.allocate(257);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(a) % ChunkArena::kUnit, 0u);
  EXPECT_EQ(static_cast<uint8_t*>(b) - static_cast<uint8_t*>(a), 256);
  EXPECT_EQ(s.arena.in_use(), 256u + 512);
  EXPECT_EQ(s.obtained, 1);
  EXPECT_EQ(s.arena.reserved(), ChunkArena::kChunk);
  s.arena.free(a, 1);
  EXPECT_EQ(s.arena.allocate(256), a);
  s.arena.free(a, 256);
  s.arena.free(b, 257);
  EXPECT_EQ(s.arena.in_use(), 0u);
  EXPECT_EQ(s.held, ChunkArena::kChunk);  // kept
  s.arena.trim();
  EXPECT_EQ(s.held, 0u);
  EXPECT_EQ(s.arena.reserved(), 0u);
}

// Chunks that touch stay apart: the driver copies within one allocation only.
TEST(ChunkArena, NothingSpansTwoChunks) {
  Source s;
  void* a = s.arena.allocate(ChunkArena::kChunk);
  void* b = s.arena.allocate(ChunkArena::kChunk);
  EXPECT_GT(static_cast<uint8_t*>(b) - static_cast<uint8_t*>(a),
            static_cast<ptrdiff_t>(ChunkArena::kChunk));
  s.arena.free(a, ChunkArena::kChunk);
  s.arena.free(b, ChunkArena::kChunk);
  void* both = s.arena.allocate(2 * ChunkArena::kChunk);
  EXPECT_NE(both, a);
  EXPECT_EQ(s.obtained, 3);
}

// A pool above keeps what is given back to it as stretches without ends between, and gives back or
// hands out any part of them.
TEST(ChunkArena, StretchesOfWhatItGaveLieInOneChunk) {
  Source s;
  FreeRanges pool;
  for (int i = 0; i < 100; ++i) {
    auto* part = static_cast<uint8_t*>(s.arena.allocate(kMiB));
    ASSERT_NE(part, nullptr);
    pool.give(part, kMiB);
  }
  for (const size_t large : {size_t{32}, size_t{20}, size_t{48}}) {
    auto* part = static_cast<uint8_t*>(s.arena.allocate(large * kMiB));
    pool.give(part, large * kMiB);
  }
  EXPECT_GT(s.obtained, 5);
  while (pool.bytes() > 0) {
    const auto [data, bytes] = pool.cut(SIZE_MAX / 2, 1);
    const auto chunk = std::prev(s.chunks.upper_bound(data));
    EXPECT_LE(data + bytes, static_cast<uint8_t*>(chunk->first) + chunk->second);
    s.arena.free(data, bytes);
  }
  EXPECT_EQ(s.arena.in_use(), 0u);
  s.arena.trim();
  EXPECT_EQ(s.held, 0u);
}

TEST(ChunkArena, PartsOfBlocksComeBack) {
  Source s;
  auto* a = static_cast<uint8_t*>(s.arena.allocate(4 * kMiB));
  s.arena.free(a + kMiB, kMiB);
  EXPECT_EQ(s.arena.allocate(kMiB), a + kMiB);
  s.arena.free(a, 4 * kMiB);
  EXPECT_EQ(s.arena.in_use(), 0u);
}

TEST(ChunkArena, KeepsABoundedRest) {
  Source s;
  std::vector<void*> blocks;
  for (int i = 0; i < 10; ++i) blocks.push_back(s.arena.allocate(64 * kMiB));
  for (void* b : blocks) s.arena.free(b, 64 * kMiB);
  EXPECT_LE(s.held, ChunkArena::kKept);
  EXPECT_GT(s.held, 0u);
}

TEST(ChunkArena, GivesWayWhereMemoryIsScarce) {
  Source s;
  s.limit = 100 * kMiB;
  void* a = s.arena.allocate(81 * kMiB);
  EXPECT_EQ(s.arena.allocate(30 * kMiB), nullptr);
  EXPECT_NE(s.arena.allocate(kMiB), nullptr);  // a chunk that is smaller than usual
  s.arena.free(a, 81 * kMiB);
  EXPECT_NE(s.arena.allocate(90 * kMiB), nullptr);  // what was kept went back first
  EXPECT_EQ(s.arena.allocate(SIZE_MAX), nullptr);
}

}  // namespace
}  // namespace nimble::rt
