// What a campaign computed and would need again after a kill: compiled candidates and expected
// results. A file beside the database holds them while the campaign runs, so that the next process
// neither compiles nor interprets anything twice; it is removed with the campaign's end.
//
// Entries are appended to one file: hundreds of small ones would cost a campaign more in a folder
// than the database does. It is not synced: a kill loses nothing of what was written, an entry that
// is cut short ends the file when it is opened again, and what a power failure damages shows by its
// checksum and is made anew. Losing the cache costs time and nothing else, so a full disk or a
// read-only folder is no error.
//
// What it holds is run and signed, so a file that another user owns or may write is left alone, as
// is a link: nothing is kept then.
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
  explicit WorkCache(std::string path, uint64_t limit_bytes = uint64_t{1} << 30);
  ~WorkCache();
  WorkCache(const WorkCache&) = delete;
  WorkCache& operator=(const WorkCache&) = delete;

  // The value stored under the key, the latest; nothing if there is none or it is damaged.
  std::optional<std::vector<uint8_t>> get(const std::string& key) const;
  // Not thread safe. False if it could not be kept.
  bool put(const std::string& key, std::span<const uint8_t> value);
  // Removes every entry and the file.
  void clear();
  uint64_t bytes() const { return bytes_; }

 private:
  struct Place {
    uint64_t offset = 0, size = 0;  // of the whole entry
  };
  void read_index();

  std::string path_;
  uint64_t limit_bytes_, bytes_ = 0;
  int fd_ = -1;
  std::map<std::string, Place> index_;
};

}  // namespace nimble::tuner
