#include "tuner/trust/key.h"

#include <sodium.h>

#include <array>
#include <new>

#include "vm/base/error.h"
#include "vm/base/printable.h"

namespace nimble::trust {
namespace {

static_assert(kSignatureBytes == crypto_sign_BYTES);
static_assert(SigningKey::kSeedBytes == crypto_sign_SEEDBYTES);

using PublicBytes = std::array<uint8_t, crypto_sign_PUBLICKEYBYTES>;

void set_up() {
  static const bool ready = ::sodium_init() >= 0;
  NIMBLE_CHECK(ready, "libsodium cannot be set up");
}

// False unless `text` is hex digits, exactly as many as fill `bytes`.
bool read_hex(std::string_view text, std::span<uint8_t> bytes) {
  size_t length = 0;
  const char* end = nullptr;
  return text.size() == 2 * bytes.size() &&
         ::sodium_hex2bin(bytes.data(), bytes.size(), text.data(), text.size(), nullptr, &length,
                          &end) == 0 &&
         length == bytes.size() && end == text.data() + text.size();
}

std::string hex_of(std::span<const uint8_t> bytes) {
  std::string text(2 * bytes.size() + 1, '\0');
  ::sodium_bin2hex(text.data(), text.size(), bytes.data(), bytes.size());
  text.pop_back();
  return text;
}

}  // namespace

PublicKey public_key_from_text(std::string_view text, const std::string& place) {
  set_up();
  PublicBytes bytes;
  // Points of small order would pass for signers of anything.
  if (!read_hex(text, bytes) || ::crypto_core_ed25519_is_valid_point(bytes.data()) != 1)
    throw Error(Status::kInvalidArgument, place,
                fmt::format("\"{}\" is not a public key", printable(text)),
                "give its 64 hex digits, as nimble keys list prints them");
  return hex_of(bytes);
}

SecretBytes::SecretBytes(size_t size) : size_(size) {
  set_up();
  bytes_.reset(static_cast<uint8_t*>(::sodium_malloc(size)));
  if (!bytes_) throw std::bad_alloc();
}

void SecretBytes::Free::operator()(uint8_t* p) const {
  ::sodium_free(p);
}

SigningKey SigningKey::generate() {
  const SecretBytes seed(kSeedBytes);
  ::randombytes_buf(seed.bytes().data(), kSeedBytes);
  return SigningKey(seed.bytes());
}

SigningKey::SigningKey(std::span<const uint8_t> seed) : secret_(crypto_sign_SECRETKEYBYTES) {
  NIMBLE_CHECK(seed.size() == kSeedBytes, "a seed of {} bytes", seed.size());
  PublicBytes public_bytes;
  ::crypto_sign_seed_keypair(public_bytes.data(), secret_.bytes().data(), seed.data());
  public_ = hex_of(public_bytes);
}

std::vector<uint8_t> SigningKey::sign(std::span<const uint8_t> message) const {
  std::vector<uint8_t> signature(kSignatureBytes);
  ::crypto_sign_detached(signature.data(), nullptr, message.data(), message.size(),
                         secret_.bytes().data());
  return signature;
}

SecretBytes SigningKey::seed() const {
  SecretBytes seed(kSeedBytes);
  ::crypto_sign_ed25519_sk_to_seed(seed.bytes().data(), secret_.bytes().data());
  return seed;
}

bool is_signed(std::span<const uint8_t> message, std::span<const uint8_t> signature,
               const PublicKey& key) {
  set_up();
  PublicBytes bytes;
  return signature.size() == kSignatureBytes && read_hex(key, bytes) &&
         ::crypto_sign_verify_detached(signature.data(), message.data(), message.size(),
                                       bytes.data()) == 0;
}

}  // namespace nimble::trust
