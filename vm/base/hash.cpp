#include "vm/base/hash.h"

#include <fmt/format.h>
#include <xxhash.h>

namespace nimble {

uint64_t hash64(std::span<const uint8_t> bytes, uint64_t seed) {
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed);
}
uint64_t hash64(std::string_view text, uint64_t seed) {
  return XXH3_64bits_withSeed(text.data(), text.size(), seed);
}

Hash128 hash128(std::span<const uint8_t> bytes, uint64_t seed) {
  const XXH128_hash_t h = XXH3_128bits_withSeed(bytes.data(), bytes.size(), seed);
  return {h.high64, h.low64};
}
Hash128 hash128(std::string_view text, uint64_t seed) {
  const XXH128_hash_t h = XXH3_128bits_withSeed(text.data(), text.size(), seed);
  return {h.high64, h.low64};
}

std::string hex(uint64_t hash) {
  return fmt::format("{:016x}", hash);
}
std::string hex(const Hash128& hash) {
  return fmt::format("{:016x}{:016x}", hash.high, hash.low);
}

}  // namespace nimble
