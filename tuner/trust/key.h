// Ed25519 signatures (RFC 8032), as libsodium makes and checks them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace nimble::trust {

using PublicKey = std::string;  // 64 lower-case hex digits

inline constexpr size_t kSignatureBytes = 64;

// Throws Error(kInvalidArgument) naming `place` if `text` is no public key: not 64 hex digits, or
// no point of the curve that a signature could be checked by.
PublicKey public_key_from_text(std::string_view text, const std::string& place);

// Bytes that are wiped when they go, lie on no swap disk where the system allows that, and are left
// out of core files.
class SecretBytes {
 public:
  explicit SecretBytes(size_t size);
  std::span<uint8_t> bytes() const { return {bytes_.get(), size_}; }

 private:
  struct Free {
    void operator()(uint8_t* p) const;
  };
  std::unique_ptr<uint8_t, Free> bytes_;
  size_t size_;
};

// A pair: what signs, and the public key that tells so.
class SigningKey {
 public:
  static constexpr size_t kSeedBytes = 32;

  static SigningKey generate();
  // The pair that follows from `seed`, of kSeedBytes.
  explicit SigningKey(std::span<const uint8_t> seed);

  const PublicKey& public_key() const { return public_; }
  std::vector<uint8_t> sign(std::span<const uint8_t> message) const;
  // What makes the same pair again; for the file that keeps it.
  SecretBytes seed() const;

 private:
  SecretBytes secret_;
  PublicKey public_;
};

// Whether `signature` is of `message` by the pair of `key`. Of any bytes: false where it is none.
bool is_signed(std::span<const uint8_t> message, std::span<const uint8_t> signature,
               const PublicKey& key);

}  // namespace nimble::trust
