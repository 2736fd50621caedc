#include "tuner/service/work_cache.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <string_view>

#include "vm/base/cache_folder.h"
#include "vm/base/hash.h"

namespace nimble::tuner {
namespace {

namespace fs = std::filesystem;

// An entry: hash of what follows (16 bytes), lengths of key and value (8 each), key, value.
struct Head {
  uint64_t high = 0, low = 0, key = 0, value = 0;
};
static_assert(sizeof(Head) == 32);

Hash128 hash_of(const Head& head, std::string_view key, std::span<const uint8_t> value) {
  Hasher128 hasher;
  const auto* lengths = reinterpret_cast<const uint8_t*>(&head.key);
  hasher.update(std::span(lengths, 16));
  hasher.update(key);
  hasher.update(value);
  return hasher.digest();
}

// Calls pread or pwrite until all of it is done.
template <class Call, class Byte>
bool transfer(Call call, int fd, Byte* at, uint64_t size, uint64_t offset) {
  while (size > 0) {
    const ssize_t n = call(fd, at, size, static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    at += n;
    offset += static_cast<uint64_t>(n);
    size -= static_cast<uint64_t>(n);
  }
  return true;
}

bool read_at(int fd, void* data, uint64_t size, uint64_t offset) {
  return transfer(::pread, fd, static_cast<uint8_t*>(data), size, offset);
}
bool write_at(int fd, const void* data, uint64_t size, uint64_t offset) {
  return transfer(::pwrite, fd, static_cast<const uint8_t*>(data), size, offset);
}

}  // namespace

WorkCache::WorkCache(std::string path, uint64_t limit_bytes)
    : path_(std::move(path)), limit_bytes_(limit_bytes) {
  fd_ = ::open(path_.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (fd_ < 0) return;
  if (is_own_file(fd_)) {
    read_index();
  } else {
    ::close(fd_);
    fd_ = -1;
  }
}

WorkCache::~WorkCache() {
  if (fd_ >= 0) ::close(fd_);
}

void WorkCache::read_index() {
  struct stat info {};
  if (::fstat(fd_, &info) != 0) return;
  const auto end = static_cast<uint64_t>(info.st_size);
  while (bytes_ + sizeof(Head) <= end) {
    Head head;
    const uint64_t left = end - bytes_ - sizeof head;
    if (!read_at(fd_, &head, sizeof head, bytes_)) break;
    if (head.key > left || head.value > left - head.key) break;
    std::string key(head.key, '\0');
    if (!read_at(fd_, key.data(), key.size(), bytes_ + sizeof head)) break;
    const uint64_t size = sizeof head + head.key + head.value;
    index_.insert_or_assign(std::move(key), Place{bytes_, size});
    bytes_ += size;
  }
  // What was cut short would stand between the entries to come; where it cannot be removed they
  // overwrite it.
  if (bytes_ < end && ::ftruncate(fd_, static_cast<off_t>(bytes_)) != 0) errno = 0;
}

std::optional<std::vector<uint8_t>> WorkCache::get(const std::string& key) const {
  const auto it = index_.find(key);
  if (it == index_.end()) return std::nullopt;
  const auto [offset, size] = it->second;
  Head head;
  if (!read_at(fd_, &head, sizeof head, offset)) return std::nullopt;
  if (head.key != key.size() || sizeof head + head.key + head.value != size) return std::nullopt;
  std::string kept(head.key, '\0');
  std::vector<uint8_t> value(head.value);
  if (!read_at(fd_, kept.data(), kept.size(), offset + sizeof head) ||
      !read_at(fd_, value.data(), value.size(), offset + sizeof head + kept.size()))
    return std::nullopt;
  const Hash128 hash = hash_of(head, kept, value);
  if (kept != key || head.high != hash.high || head.low != hash.low) return std::nullopt;
  return value;
}

bool WorkCache::put(const std::string& key, std::span<const uint8_t> value) {
  const uint64_t size = sizeof(Head) + key.size() + value.size();
  if (bytes_ + size > limit_bytes_) return false;
  if (fd_ < 0) fd_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (fd_ < 0) return false;
  Head head{0, 0, key.size(), value.size()};
  const Hash128 hash = hash_of(head, key, value);
  head.high = hash.high;
  head.low = hash.low;
  // A kill before the last of them cuts the entry short.
  if (!write_at(fd_, &head, sizeof head, bytes_) ||
      !write_at(fd_, key.data(), key.size(), bytes_ + sizeof head) ||
      !write_at(fd_, value.data(), value.size(), bytes_ + sizeof head + key.size()))
    return false;
  index_.insert_or_assign(key, Place{bytes_, size});
  bytes_ += size;
  return true;
}

void WorkCache::clear() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
  index_.clear();
  bytes_ = 0;
  // Before this was a file, releases kept a folder.
  std::error_code none;
  fs::remove_all(path_, none);
}

}  // namespace nimble::tuner
