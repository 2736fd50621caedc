// Public keys, their revocations and signatures, as they are exchanged. None of it gives trust; who
// relies on a signature checks it (tuner/trust).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace nimble::db {

struct SigningKey {
  std::string public_key;  // 64 lower-case hex digits
  std::string name;        // for people
  int64_t created_at = 0;  // set by the store
};

// Counts from when it is known, for everything the key ever signed.
struct KeyRevocation {
  std::string public_key;
  std::string reason;
  int64_t created_at = 0;  // set by the store
};

struct Signature {
  std::string subject;         // 64 lower-case hex digits: the digest of what is signed
  std::string public_key;      // by whom, so it says
  std::vector<uint8_t> bytes;  // 64
  int64_t created_at = 0;      // set by the store
};

}  // namespace nimble::db
