// Whether what somebody else made may be run here: by whom it is signed, and whom this machine
// trusts.
//
// Trust is local: the keys of the user's keyring (keyring.h), never those that a database names. A
// revocation counts wherever it is told, in the keyring or in a database, whatever its time: a
// stolen key signs with any date. It is a fact that is only ever added, so no merge undoes it.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "tuner/trust/claim.h"
#include "tuner/trust/key.h"

namespace nimble::trust {

struct NamedKey {
  PublicKey key;
  std::string name;
};

struct Revocation {
  PublicKey key;
  std::string reason;
  int64_t created_at = 0;  // milliseconds since 1970; for people
};

struct Signature {
  PublicKey key;
  std::vector<uint8_t> bytes;
};

class Verifier {
 public:
  // `revoked`: from everywhere that is known. Trusted and revoked is revoked.
  Verifier(const std::vector<NamedKey>& trusted, const std::vector<Revocation>& revoked);

  // The trusted key by which the claim is signed. Error(kInvalidArgument) if there is none, with
  // the reason: no signature at all, of a key that is not trusted or revoked, or not of this claim.
  const NamedKey& require(const Claim& claim, std::span<const Signature> signatures) const;

  // What is trusted and not revoked.
  std::vector<NamedKey> keys() const;

 private:
  std::map<PublicKey, NamedKey> trusted_;
  std::map<PublicKey, Revocation> revoked_;
};

}  // namespace nimble::trust
