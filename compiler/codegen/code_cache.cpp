#include "compiler/codegen/code_cache.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>

#include "vm/base/cache_folder.h"
#include "vm/base/error.h"
#include "vm/base/file.h"

namespace nimble::codegen {
namespace {

namespace fs = std::filesystem;

// Before the code: its hash, in 16 bytes.
struct Head {
  uint64_t high = 0, low = 0;
};

Head head_of(std::span<const uint8_t> code) {
  const Hash128 hash = hash128(code);
  return {hash.high, hash.low};
}

// A folder of this user's into which nobody else writes.
bool is_private(const std::string& folder) {
  struct stat status;
  return ::lstat(folder.c_str(), &status) == 0 && S_ISDIR(status.st_mode) &&
         status.st_uid == ::geteuid() && (status.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

std::unique_ptr<CodeCache> open_of_user() {
  try {
    const char* set = std::getenv("NIMBLE_CODE_CACHE");
    if (set && std::strcmp(set, "off") == 0) return nullptr;
    const std::string folder = set && *set ? set : cache_folder() + "/code";
    if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) return nullptr;
    return is_private(folder) ? std::make_unique<CodeCache>(folder) : nullptr;
  } catch (const Error&) {  // there is no place for one
    return nullptr;
  }
}

}  // namespace

CodeCache* CodeCache::of_user() {
  static const std::unique_ptr<CodeCache> cache = open_of_user();
  return cache.get();
}

std::optional<std::vector<uint8_t>> CodeCache::find(const Hash128& key) {
  const std::string file = file_of(key);
  std::error_code ignored;
  try {
    std::vector<uint8_t> bytes = read_file(file);
    Head head;
    if (bytes.size() >= sizeof head) {
      std::memcpy(&head, bytes.data(), sizeof head);
      bytes.erase(bytes.begin(), bytes.begin() + sizeof head);
      const Head is = head_of(bytes);
      if (is.high == head.high && is.low == head.low) {
        fs::last_write_time(file, fs::file_time_type::clock::now(), ignored);
        return bytes;
      }
    }
    fs::remove(file, ignored);
  } catch (const Error&) {  // it is not there, or cannot be read
  }
  return std::nullopt;
}

void CodeCache::keep(const Hash128& key, std::span<const uint8_t> code) {
  const Head head = head_of(code);
  // Not write_file_atomically(), which waits for the disk: a file that a crash cut off is no entry,
  // and the rename gives other processes all of it or nothing.
  static std::atomic<unsigned> serial{0};
  const std::string file = file_of(key);
  const std::string temporary = fmt::format("{}.{}-{}", file, ::getpid(), serial++);
  std::ofstream out(temporary, std::ios::binary);
  out.write(reinterpret_cast<const char*>(&head), sizeof head);
  out.write(reinterpret_cast<const char*>(code.data()), static_cast<std::streamsize>(code.size()));
  out.close();
  std::error_code error;
  if (out) fs::rename(temporary, file, error);
  if (!out || error) {  // a full disk, say: the next one compiles it again
    fs::remove(temporary, error);
    return;
  }
  const std::lock_guard lock(mutex_);
  if (written_) *written_ += sizeof head + code.size();
  if (!written_ || *written_ > most_bytes_ / 8) make_room();
}

void CodeCache::make_room() {
  struct Entry {
    fs::file_time_type used;
    uint64_t bytes;
    fs::path path;
  };
  std::vector<Entry> entries;
  uint64_t all = 0;
  std::error_code error;
  for (fs::directory_iterator it(folder_, error), end; !error && it != end; it.increment(error)) {
    std::error_code gone;  // another process makes room, too
    if (it->path().extension() != kSuffix) continue;
    const fs::file_time_type used = it->last_write_time(gone);
    const uint64_t bytes = gone ? 0 : it->file_size(gone);
    if (gone) continue;
    entries.push_back({used, bytes, it->path()});
    all += bytes;
  }
  written_ = 0;
  if (all <= most_bytes_) return;
  std::sort(entries.begin(), entries.end(),
            [](const Entry& a, const Entry& b) { return a.used < b.used; });
  for (const Entry& e : entries) {
    if (all <= most_bytes_ / 4 * 3) return;
    std::error_code ignored;
    fs::remove(e.path, ignored);
    all -= e.bytes;
  }
}

}  // namespace nimble::codegen
