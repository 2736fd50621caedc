// Machine code on disk that was compiled before, in this process or another: equal groups of
// operators compile once, whatever model they stand in (run-time fusion with a cache of compiled
// patterns, NNVM-Fusion).
//
// An entry is a file of its own, named by what it was made of: source, target, compiler. It begins
// with a hash of its name and of what follows, so that one which is cut off, damaged or another's
// is none; nor is a file that another user has or may write, for what it holds is run. A cache
// never fails a compilation: what cannot be read is compiled, what cannot be written is not kept.
#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "vm/base/hash.h"

namespace nimble::codegen {

class CodeCache {
 public:
  static constexpr uint64_t kMostBytes = uint64_t{256} << 20;

  // The user's: in the folder that NIMBLE_CODE_CACHE names, else "code" in cache_folder(). Null
  // with NIMBLE_CODE_CACHE=off, and where the folder is not the user's alone: what lies there is
  // run.
  static CodeCache* of_user();

  // A folder that is there.
  explicit CodeCache(std::string folder, uint64_t most_bytes = kMostBytes)
      : folder_(std::move(folder)), most_bytes_(most_bytes) {}

  // Of all that decides what the code is. SHA-256, since texts come from models: nobody makes two
  // of one key.
  static Hash128 key_of(std::string_view made_of);
  // Counts as a use: what was not used for longest goes first.
  std::optional<std::vector<uint8_t>> find(const Hash128& key);
  void keep(const Hash128& key, std::span<const uint8_t> code);

 private:
  std::string file_of(const Hash128& key) const { return folder_ + "/" + hex(key) + kSuffix; }
  // Removes entries until three quarters of the room are taken, and what was never finished.
  void make_room();

  static constexpr const char* kSuffix = ".code";
  // Behind that, before the number of the process that writes it.
  static constexpr const char* kUnfinished = ".";
  static constexpr std::chrono::hours kLongestWrite{1};
  const std::string folder_;
  const uint64_t most_bytes_;
  std::mutex mutex_;
  // Written since the folder was last looked through; at first nobody knows what others left.
  std::optional<uint64_t> written_;
};

}  // namespace nimble::codegen
