// How often each shape of an entry point's named dims was run: what a host meets in production, as
// a campaign wants to know it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

namespace nimble::rt {

class EntryPlan;

class ShapeCounts {
 public:
  // An entry point keeps this many shapes apart, so that the memory has a bound however many a host
  // sees; runs of further ones are counted together.
  static constexpr size_t kMostShapes = size_t{1} << 16;

  explicit ShapeCounts(size_t entries) : entries_(entries) {}
  ShapeCounts(const ShapeCounts&) = delete;
  ShapeCounts& operator=(const ShapeCounts&) = delete;

  // A run at these extents. Where no memory is left it counts among the further ones.
  void add(size_t entry, std::span<const int64_t> extents) noexcept;
  // {"entries": [{"name", "symbols": ["n", …], "shapes": [{"count", "extents": [3, …]}, …],
  // "further"}, …]}: the most frequent shape first, entry points in the model's order. `plans` are
  // those of the entries that were counted.
  std::string json(std::span<const EntryPlan> plans) const;

 private:
  struct Hash {
    size_t operator()(const std::vector<int64_t>& extents) const;
  };
  struct Entry {
    std::unordered_map<std::vector<int64_t>, uint64_t, Hash> counts;
    // Of the run before: most hosts repeat a shape more often than not.
    const std::vector<int64_t>* last = nullptr;
    uint64_t* last_count = nullptr;
    uint64_t further = 0;
  };
  std::vector<Entry> entries_;
};

}  // namespace nimble::rt
