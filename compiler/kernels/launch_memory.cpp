#include "compiler/kernels/launch_memory.h"

#include <algorithm>

#include "vm/base/error.h"

namespace nimble::kir {
namespace {

constexpr int kBanks = 32, kBankBytes = 4, kSectorBytes = 32;

int32_t warp_of(int32_t who) {
  return who >= 0 ? who / kWarpLanes : who == Toucher::kWarps ? -1 : -2 - who;
}

// Whether what `who` did at `when`, a time of this phase, is in order with what comes now.
bool in_order(int32_t who, uint32_t when, const Toucher& by) {
  return (who == by.who && who >= 0) || (warp_of(who) == by.warp && when < by.since);
}

}  // namespace

std::string_view text_of(Wrong w) {
  switch (w) {
    case Wrong::kNothing:
    case Wrong::kOutside:
      return "";
    case Wrong::kUndefined:
      return "which nothing has written";
    case Wrong::kRace:
      return "race: another thread uses it with no barrier between";
    case Wrong::kBlocks:
      return "which another block uses";
    case Wrong::kCopy:
      return "to which a copy is on its way";
    case Wrong::kProduct:
      return "which a product on its way reads";
  }
  NIMBLE_UNREACHABLE();
}

Wrong touch(LaunchMemory& m, const LaunchTime& time, int64_t index, bool write, const Toucher& by) {
  if (index < 0 || index >= m.extent) return Wrong::kOutside;
  LaunchCell& c = m.cells[index];
  if (c.copies > 0) return Wrong::kCopy;
  if (write && c.products > 0) return Wrong::kProduct;
  const auto elsewhere = [&](uint32_t when) {
    return !m.shared && when > time.step && when < time.block;
  };
  if (c.written >= time.phase) {
    if (!in_order(c.writer, c.written, by)) return Wrong::kRace;
  } else if (elsewhere(c.written)) {
    return Wrong::kBlocks;
  }
  // Others' reads are no later than the last one.
  if (c.read <= time.step) c.read_by_others = false;
  if (write) {
    if (c.read >= time.phase && !in_order(c.reader, c.read, by)) return Wrong::kRace;
    if (elsewhere(c.read) || (!m.shared && c.read_by_others)) return Wrong::kBlocks;
    c.written = time.now;
    c.writer = by.who;
    return Wrong::kNothing;
  }
  if (c.written == 0) return Wrong::kUndefined;
  int32_t reader = by.who;
  if (c.read >= time.phase) {
    if (warp_of(c.reader) != by.warp)
      reader = Toucher::kWarps;
    else if (c.reader != by.who && c.read >= by.since)
      reader = Toucher::all_of(by.warp);
  } else {
    c.read_by_others |= elsewhere(c.read);
  }
  c.read = time.now;
  c.reader = reader;
  return Wrong::kNothing;
}

// Shared memory serves 32 lanes of up to 4 bytes at once, 16 of 8 or 8 of 16, and each bank one
// word of 4 bytes.
void note_access(MemoryUse& use, bool shared, std::span<const LaneOffset> lanes, int bytes) {
  if (lanes.empty()) return;
  ++use.accesses;
  int64_t units[kWarpLanes * 8];
  const auto distinct = [&](auto belongs, int64_t unit) {
    size_t n = 0;
    for (const LaneOffset& l : lanes)
      if (belongs(l.lane))
        for (int64_t u = l.offset / unit; u <= (l.offset + bytes - 1) / unit; ++u) units[n++] = u;
    std::sort(units, units + n);
    return std::span<const int64_t>(units, std::unique(units, units + n));
  };
  if (!shared) {
    const auto all = [](int) { return true; };
    use.sectors += static_cast<int64_t>(distinct(all, kSectorBytes).size());
    const auto places = static_cast<int64_t>(distinct(all, bytes).size());
    use.least_sectors += (places * bytes + kSectorBytes - 1) / kSectorBytes;
    return;
  }
  const int at_once = bytes <= kBankBytes ? kWarpLanes : kWarpLanes * kBankBytes / bytes;
  for (int first = 0; first < kWarpLanes; first += at_once) {
    const auto words =
        distinct([&](int lane) { return lane >= first && lane < first + at_once; }, kBankBytes);
    if (words.empty()) continue;
    int of_bank[kBanks] = {}, ways = 0;
    for (const int64_t w : words)
      ways = std::max(ways, ++of_bank[static_cast<uint64_t>(w) % kBanks]);
    use.turns += ways;
    use.least_turns += 1;
    use.worst_ways = std::max(use.worst_ways, ways);
  }
}

}  // namespace nimble::kir
