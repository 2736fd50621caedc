// Memory of a launch in the emulator: who touched an element last, and how warps' accesses fall on
// banks and sectors.
//
// Time is a number that grows at every barrier and every block. What two threads do to an element
// is in order if a barrier of both lies between: one of the block, or of their warp. Blocks have no
// order, but for what lies a step of the grid apart.
#pragma once

#include <span>

#include "compiler/kernels/interpreter.h"
#include "compiler/kernels/interpreter_memory.h"

namespace nimble::kir {

struct LaunchCell {
  static constexpr int32_t kBox = -1;  // as a writer: a copy of a box, which shows itself to all
  uint32_t written = 0, read = 0;      // when, last; 0: never
  int32_t writer = 0, reader = 0;      // who, in the block of that time
  uint8_t copies = 0;                  // on their way here
  uint16_t products = 0;               // on their way that read this
  bool read_by_others = false;         // by blocks before the last reader's
};

// Who touches: a thread by its number in the block, or several lanes of a warp.
struct Toucher {
  static constexpr int32_t kWarps = -1;  // several warps; as a reader alone
  static int32_t all_of(int warp) { return -2 - warp; }
  int32_t who;
  int32_t warp;
  uint32_t since;  // when the warp's lanes met last
};

enum class Wrong { kNothing, kOutside, kUndefined, kRace, kBlocks, kCopy, kProduct };
// After "NAME[index]" …: what is wrong.
std::string_view text_of(Wrong w);

struct LaunchMemory {
  std::byte* data = nullptr;
  int64_t extent = 0;
  bool shared = false;
  std::vector<LaunchCell> cells;
};

struct LaunchTime {
  static constexpr uint32_t kBefore = 1;  // what the caller has written
  uint32_t now = kBefore, block = kBefore, phase = kBefore;
  uint32_t step = kBefore;  // all up to then is ahead of everything from now on
};

Wrong touch(LaunchMemory& m, const LaunchTime& time, int64_t index, bool write, const Toucher& by);

// One access of a warp: `bytes` of each lane from its offset in the buffer.
struct LaneOffset {
  int lane;
  int64_t offset;
};
void note_access(MemoryUse& use, bool shared, std::span<const LaneOffset> lanes, int bytes);

}  // namespace nimble::kir
