#include "vm/base/hash.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <new>

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

namespace {

XXH3_state_t* new_state() {
  XXH3_state_t* state = XXH3_createState();
  if (!state) throw std::bad_alloc();
  return state;
}
XXH3_state_t* as_state(void* state) {
  return static_cast<XXH3_state_t*>(state);
}

}  // namespace

Hasher64::Hasher64() : state_(new_state()) {
  XXH3_64bits_reset(as_state(state_));
}
Hasher64::~Hasher64() {
  XXH3_freeState(as_state(state_));
}
void Hasher64::update(std::span<const uint8_t> bytes) {
  XXH3_64bits_update(as_state(state_), bytes.data(), bytes.size());
}
uint64_t Hasher64::digest() const {
  return XXH3_64bits_digest(as_state(state_));
}

Hasher128::Hasher128() : state_(new_state()) {
  XXH3_128bits_reset(as_state(state_));
}
Hasher128::~Hasher128() {
  XXH3_freeState(as_state(state_));
}
void Hasher128::update(std::span<const uint8_t> bytes) {
  XXH3_128bits_update(as_state(state_), bytes.data(), bytes.size());
}
void Hasher128::update(std::string_view text) {
  XXH3_128bits_update(as_state(state_), text.data(), text.size());
}
Hash128 Hasher128::digest() const {
  const XXH128_hash_t h = XXH3_128bits_digest(as_state(state_));
  return {h.high64, h.low64};
}

std::string hex(uint64_t hash) {
  return fmt::format("{:016x}", hash);
}
std::string hex(const Hash128& hash) {
  return fmt::format("{:016x}{:016x}", hash.high, hash.low);
}

}  // namespace nimble
