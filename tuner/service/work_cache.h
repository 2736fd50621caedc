// What a campaign computed and would need again after a kill: compiled candidates and expected
// results. A folder beside the database holds them while the campaign runs, so that the next
// process neither compiles nor interprets anything twice; it is removed with the campaign's end.
//
// An entry is one file, written under a temporary name and renamed. It is not synced: a kill
// loses nothing of it, and what a power failure damages shows by its checksum and is made anew.
// Losing the cache costs time and nothing else, so a full disk or a read-only folder is no error.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace nimble::tuner {

class WorkCache {
 public:
  // Entries beyond `limit_bytes` in sum are not kept.
  explicit WorkCache(std::string folder, uint64_t limit_bytes = uint64_t{1} << 30);
  // The value stored under the key; nothing if there is none or it is damaged.
  std::optional<std::vector<uint8_t>> get(const std::string& key) const;
  // Not thread safe. False if it could not be kept.
  bool put(const std::string& key, std::span<const uint8_t> value);
  // Removes every entry and the folder.
  void clear();
  uint64_t bytes() const { return bytes_; }

 private:
  std::string path_of(const std::string& key) const;
  std::string folder_;
  uint64_t limit_bytes_, bytes_ = 0;
};

}  // namespace nimble::tuner
