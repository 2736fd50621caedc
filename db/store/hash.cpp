#include "db/store/hash.h"

#include <fmt/format.h>
#include <sodium.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "vm/base/error.h"
#include "vm/base/hash.h"

namespace nimble::db {
namespace {

void add_sized(Hasher128& hasher, std::string_view field) {
  // The length goes in as decimal text: the same on every machine.
  hasher.update(fmt::format("{}:", field.size()));
  hasher.update(field);
}

std::string dashed(std::string hex, char version) {
  hex[12] = version;
  hex[16] = "89ab"[(hex[16] <= '9' ? hex[16] - '0' : hex[16] - 'a' + 10) & 3];
  return hex.substr(0, 8) + '-' + hex.substr(8, 4) + '-' + hex.substr(12, 4) + '-' +
         hex.substr(16, 4) + '-' + hex.substr(20, 12);
}

}  // namespace

std::string hash_of(std::string_view data) {
  return hex(hash128(data));
}

std::string hash_of_fields(std::string_view kind, std::initializer_list<std::string_view> fields) {
  Hasher128 hasher;
  add_sized(hasher, kind);
  for (std::string_view field : fields) add_sized(hasher, field);
  return hex(hasher.digest());
}

std::string hash_of_file(const std::string& path) {
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"),
                                                       &std::fclose);
  if (!file) {
    const Status status = errno == ENOENT ? Status::kNotFound : Status::kIo;
    throw Error(status, path, fmt::format("cannot be read ({})", std::strerror(errno)),
                "check the name and the permissions");
  }
  Hasher128 hasher;
  std::vector<char> buffer(1 << 16);
  while (size_t n = std::fread(buffer.data(), 1, buffer.size(), file.get()))
    hasher.update(std::string_view(buffer.data(), n));
  if (std::ferror(file.get()))
    throw Error(Status::kIo, path, fmt::format("cannot be read ({})", std::strerror(errno)),
                "check that it is a file on a sound disk");
  return hex(hasher.digest());
}

std::string digest_of(std::span<const uint8_t> bytes) {
  static const bool kReady = sodium_init() >= 0;
  NIMBLE_CHECK(kReady, "libsodium cannot be set up");
  std::array<unsigned char, 32> digest;
  crypto_generichash(digest.data(), digest.size(), bytes.data(), bytes.size(), nullptr, 0);
  std::array<char, 2 * digest.size() + 1> hex;
  sodium_bin2hex(hex.data(), hex.size(), digest.data(), digest.size());
  return hex.data();
}

bool is_digest(std::string_view text) {
  return text.size() == 64 && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

std::string new_uuid() {
  // random_device reads the kernel's or the processor's generator; a fork does not repeat it. To
  // make one asks the processor what it can do, which traps in a virtual machine.
  thread_local std::random_device device;
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
