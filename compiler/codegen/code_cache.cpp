#include "compiler/codegen/code_cache.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <llvm/ADT/ArrayRef.h>
#include <llvm/Support/SHA256.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string_view>

#include "vm/base/cache_folder.h"
#include "vm/base/error.h"

namespace nimble::codegen {
namespace {

namespace fs = std::filesystem;

// Before the code: of the key, too, or an entry under another name would be taken for that one's.
Hash128 head_of(const Hash128& key, std::span<const uint8_t> code) {
  Hasher128 hasher;
  hasher.update(std::span(reinterpret_cast<const uint8_t*>(&key), sizeof key));
  hasher.update(code);
  return hasher.digest();
}
static_assert(sizeof(Hash128) == 16);

// All of a file, none of its bytes if they are more than `most`; nothing if it is not there, or not
// this user's alone. The folder's name may mean another one by now, where a folder above it is
// somebody else's.
std::optional<std::vector<uint8_t>> read_own(const std::string& file, uint64_t most) {
  const int fd = ::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (fd < 0) return std::nullopt;
  std::optional<std::vector<uint8_t>> out;
  struct stat info {};
  if (is_own_file(fd) && ::fstat(fd, &info) == 0) {
    const auto size = static_cast<uint64_t>(info.st_size);
    out.emplace(size <= most ? size : 0);
    size_t done = 0;
    while (done < out->size()) {
      const ssize_t n = ::read(fd, out->data() + done, out->size() - done);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) break;
      done += static_cast<size_t>(n);
    }
    out->resize(done);
  }
  ::close(fd);
  return out;
}

// Into a file that is not there yet and that nobody else writes, whatever the umask.
bool write_own(const std::string& file, std::span<const uint8_t> head,
               std::span<const uint8_t> code) {
  const int fd =
      ::open(file.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, S_IRUSR | S_IWUSR);
  if (fd < 0) return false;
  bool good = true;
  for (std::span<const uint8_t> left : {head, code})
    while (good && !left.empty()) {
      const ssize_t n = ::write(fd, left.data(), left.size());
      if (n < 0 && errno == EINTR) continue;
      good = n > 0;
      if (good) left = left.subspan(static_cast<size_t>(n));
    }
  return ::close(fd) == 0 && good;
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

Hash128 CodeCache::key_of(std::string_view made_of) {
  const auto digest =
      llvm::SHA256::hash({reinterpret_cast<const uint8_t*>(made_of.data()), made_of.size()});
  Hash128 key;
  std::memcpy(&key.high, digest.data(), sizeof key.high);
  std::memcpy(&key.low, digest.data() + sizeof key.high, sizeof key.low);
  return key;
}

std::optional<std::vector<uint8_t>> CodeCache::find(const Hash128& key) {
  const std::string file = file_of(key);
  std::optional<std::vector<uint8_t>> bytes = read_own(file, most_bytes_);
  if (!bytes) return std::nullopt;
  std::error_code ignored;
  Hash128 head;
  if (bytes->size() >= sizeof head) {
    std::memcpy(&head, bytes->data(), sizeof head);
    bytes->erase(bytes->begin(), bytes->begin() + sizeof head);
    if (head_of(key, *bytes) == head) {
      fs::last_write_time(file, fs::file_time_type::clock::now(), ignored);
      return bytes;
    }
  }
  fs::remove(file, ignored);
  return std::nullopt;
}

void CodeCache::keep(const Hash128& key, std::span<const uint8_t> code) {
  const Hash128 head = head_of(key, code);
  // Not write_file_atomically(), which waits for the disk: a file that a crash cut off is no entry,
  // and the rename gives other processes all of it or nothing.
  static std::atomic<unsigned> serial{0};
  const std::string file = file_of(key);
  const std::string temporary = fmt::format("{}{}{}-{}", file, kUnfinished, ::getpid(), serial++);
  const std::span head_bytes(reinterpret_cast<const uint8_t*>(&head), sizeof head);
  std::error_code error;
  const bool written = write_own(temporary, head_bytes, code);
  if (written) fs::rename(temporary, file, error);
  if (!written || error) {  // a full disk, say: the next one compiles it again
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
  const fs::file_time_type now = fs::file_time_type::clock::now();
  for (fs::directory_iterator it(folder_, error), end; !error && it != end; it.increment(error)) {
    std::error_code gone;  // another process makes room, too
    const std::string name = it->path().filename().string();
    // Another program's files stay, whatever their suffix.
    if (name.find_first_not_of("0123456789abcdef") != hex(Hash128()).size()) continue;
    const std::string_view suffix = std::string_view(name).substr(hex(Hash128()).size());
    const bool unfinished = suffix.starts_with(std::string(kSuffix) + kUnfinished);
    if (!unfinished && suffix != kSuffix) continue;
    const fs::file_time_type used = it->last_write_time(gone);
    if (unfinished) {  // by a process that was killed, if it is old
      if (!gone && used < now - kLongestWrite) fs::remove(it->path(), gone);
      continue;
    }
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
