#include "tuner/service/work_cache.h"

#include <cstring>
#include <filesystem>
#include <fstream>

#include "vm/base/error.h"
#include "vm/base/file.h"
#include "vm/base/hash.h"

namespace nimble::tuner {
namespace {

namespace fs = std::filesystem;

// A file: hash of what follows (16 bytes), length of the key (8), key, value. The key is compared
// in full, the file's name being only its hash.
constexpr size_t kHead = 24;
constexpr const char* kSuffix = ".work";

Hash128 content_hash(std::span<const uint8_t> file) {
  return hash128(file.subspan(16));
}

}  // namespace

WorkCache::WorkCache(std::string folder, uint64_t limit_bytes)
    : folder_(std::move(folder)), limit_bytes_(limit_bytes) {
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(folder_, none)) {
    // What a killed process left half written has another name and is of no use.
    if (entry.path().extension() == kSuffix)
      bytes_ += entry.file_size(none);
    else
      fs::remove(entry.path(), none);
  }
}

std::string WorkCache::path_of(const std::string& key) const {
  return folder_ + "/" + hex(hash128(key)) + kSuffix;
}

std::optional<std::vector<uint8_t>> WorkCache::get(const std::string& key) const {
  const std::string path = path_of(key);
  std::error_code none;
  if (!fs::exists(path, none)) return std::nullopt;
  std::vector<uint8_t> file;
  try {
    file = read_file(path);
  } catch (const Error&) {
    return std::nullopt;
  }
  if (file.size() < kHead + key.size()) return std::nullopt;
  const Hash128 hash = content_hash(file);
  uint64_t length = 0;
  std::memcpy(&length, file.data() + 16, 8);
  if (std::memcmp(file.data(), &hash.high, 8) != 0 ||
      std::memcmp(file.data() + 8, &hash.low, 8) != 0 || length != key.size() ||
      std::memcmp(file.data() + kHead, key.data(), key.size()) != 0)
    return std::nullopt;
  file.erase(file.begin(), file.begin() + static_cast<long>(kHead + key.size()));
  return file;
}

bool WorkCache::put(const std::string& key, std::span<const uint8_t> value) {
  const uint64_t size = kHead + key.size() + value.size();
  if (bytes_ + size > limit_bytes_) return false;
  std::vector<uint8_t> file(kHead);
  const uint64_t length = key.size();
  std::memcpy(file.data() + 16, &length, 8);
  file.insert(file.end(), key.begin(), key.end());
  file.insert(file.end(), value.begin(), value.end());
  const Hash128 hash = content_hash(file);
  std::memcpy(file.data(), &hash.high, 8);
  std::memcpy(file.data() + 8, &hash.low, 8);

  std::error_code fault;
  fs::create_directories(folder_, fault);
  const std::string path = path_of(key), temporary = path + ".part";
  {
    std::ofstream out(temporary, std::ios::binary | std::ios::trunc);
    out.write(reinterpret_cast<const char*>(file.data()), static_cast<long>(file.size()));
    if (!out.flush()) {
      fs::remove(temporary, fault);
      return false;
    }
  }
  const uint64_t replaced = fs::exists(path, fault) ? fs::file_size(path, fault) : 0;
  fs::rename(temporary, path, fault);
  if (fault) return false;
  bytes_ += size - replaced;
  return true;
}

void WorkCache::clear() {
  std::error_code none;
  fs::remove_all(folder_, none);
  bytes_ = 0;
}

}  // namespace nimble::tuner
