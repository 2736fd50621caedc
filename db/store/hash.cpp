#include "db/store/hash.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "vm/base/error.h"

namespace nimble::db {
namespace {

struct StateDeleter {
  void operator()(XXH3_state_t* s) const { XXH3_freeState(s); }
};

class Hasher {
 public:
  Hasher() : state_(XXH3_createState()) {
    NIMBLE_CHECK(state_ && XXH3_128bits_reset(state_.get()) == XXH_OK);
  }
  void add(const void* data, size_t size) { XXH3_128bits_update(state_.get(), data, size); }
  std::string hex() const {
    XXH128_hash_t h = XXH3_128bits_digest(state_.get());
    return fmt::format("{:016x}{:016x}", h.high64, h.low64);
  }

 private:
  std::unique_ptr<XXH3_state_t, StateDeleter> state_;
};

void add_sized(Hasher& hasher, std::string_view field) {
  // The length goes in as decimal text: the same on every machine.
  std::string head = fmt::format("{}:", field.size());
  hasher.add(head.data(), head.size());
  hasher.add(field.data(), field.size());
}

std::string dashed(std::string hex, char version) {
  hex[12] = version;
  hex[16] = "89ab"[(hex[16] <= '9' ? hex[16] - '0' : hex[16] - 'a' + 10) & 3];
  return hex.substr(0, 8) + '-' + hex.substr(8, 4) + '-' + hex.substr(12, 4) + '-' +
         hex.substr(16, 4) + '-' + hex.substr(20, 12);
}

}  // namespace

std::string hash_of(std::string_view data) {
  Hasher hasher;
  hasher.add(data.data(), data.size());
  return hasher.hex();
}

std::string hash_of_fields(std::string_view kind, std::initializer_list<std::string_view> fields) {
  Hasher hasher;
  add_sized(hasher, kind);
  for (std::string_view field : fields) add_sized(hasher, field);
  return hasher.hex();
}

std::string hash_of_file(const std::string& path) {
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"),
                                                       &std::fclose);
  if (!file) {
    const Status status = errno == ENOENT ? Status::kNotFound : Status::kIo;
    throw Error(status, path, fmt::format("cannot be read ({})", std::strerror(errno)),
                "check the name and the permissions");
  }
  Hasher hasher;
  std::vector<char> buffer(1 << 16);
  while (size_t n = std::fread(buffer.data(), 1, buffer.size(), file.get()))
    hasher.add(buffer.data(), n);
  if (std::ferror(file.get()))
    throw Error(Status::kIo, path, fmt::format("cannot be read ({})", std::strerror(errno)),
                "check that it is a file on a sound disk");
  return hasher.hex();
}

std::string new_uuid() {
  // random_device reads the kernel's generator; a fork does not repeat it.
  std::random_device device;
  std::array<uint32_t, 4> bits;
  for (uint32_t& word : bits) word = device();
  return dashed(fmt::format("{:08x}{:08x}{:08x}{:08x}", bits[0], bits[1], bits[2], bits[3]), '4');
}

std::string uuid_from_hash(std::string_view hash) {
  NIMBLE_CHECK(hash.size() == 32);
  return dashed(std::string(hash), '8');
}

bool is_uuid(std::string_view text) {
  if (text.size() != 36) return false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const bool dash = i == 8 || i == 13 || i == 18 || i == 23;
    if (dash ? c != '-' : !((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'))) return false;
  }
  return true;
}

}  // namespace nimble::db
