// xxHash3: against damage and for table keys, never against an adversary. The values are stable
// across machines and versions of the library, so they may be stored.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace nimble {

struct Hash128 {
  uint64_t high = 0, low = 0;
  friend bool operator==(const Hash128&, const Hash128&) = default;
  friend auto operator<=>(const Hash128&, const Hash128&) = default;
};

uint64_t hash64(std::span<const uint8_t> bytes, uint64_t seed = 0);
uint64_t hash64(std::string_view text, uint64_t seed = 0);
Hash128 hash128(std::span<const uint8_t> bytes, uint64_t seed = 0);
Hash128 hash128(std::string_view text, uint64_t seed = 0);

// hash64 and hash128 of the concatenation of several pieces.
class Hasher64 {
 public:
  Hasher64();
  ~Hasher64();
  Hasher64(const Hasher64&) = delete;
  Hasher64& operator=(const Hasher64&) = delete;
  void update(std::span<const uint8_t> bytes);
  uint64_t digest() const;

 private:
  void* state_;
};
class Hasher128 {
 public:
  Hasher128();
  ~Hasher128();
  Hasher128(const Hasher128&) = delete;
  Hasher128& operator=(const Hasher128&) = delete;
  void update(std::span<const uint8_t> bytes);
  void update(std::string_view text);
  Hash128 digest() const;

 private:
  void* state_;
};

// 16 or 32 lower-case hexadecimal digits.
std::string hex(uint64_t hash);
std::string hex(const Hash128& hash);

}  // namespace nimble
