#include "tuner/trust/records.h"

#include <fmt/format.h>

namespace nimble::trust {

void sign(db::Store& store, const SigningKey& key, const std::string& name, const Claim& claim) {
  store.put(db::SigningKey{key.public_key(), name});
  store.add(db::Signature{claim.subject, key.public_key(), key.sign(claim.message)});
}

const NamedKey& require_signed(db::Store& store, const Verifier& verifier, const Claim& claim) {
  std::vector<Signature> signatures;
  for (db::Signature& s : store.signatures(claim.subject))
    signatures.push_back({std::move(s.public_key), std::move(s.bytes)});
  return verifier.require(claim, signatures);
}

Verifier verifier_of(const Keyring& ring, db::Store& store) {
  return verifier_of(ring, store, ring.trusted());
}

namespace {

Verifier less_revoked(const std::vector<NamedKey>& trusted, std::vector<Revocation> revoked,
                      db::Store& store) {
  for (db::KeyRevocation& r : store.key_revocations())
    revoked.push_back({std::move(r.public_key), std::move(r.reason), r.created_at});
  return Verifier(trusted, revoked);
}

}  // namespace

Verifier verifier_of(const std::vector<NamedKey>& trusted, db::Store& store) {
  return less_revoked(trusted, {}, store);
}

Verifier verifier_of(const Keyring& ring, db::Store& store, const std::vector<NamedKey>& trusted) {
  return less_revoked(trusted, ring.revoked(), store);
}

std::string trusted_keys_json(const Verifier& verifier) {
  std::string out;
  for (const NamedKey& k : verifier.keys())
    out += fmt::format("{}\"{}\"", out.empty() ? "" : ",", k.key);
  return "[" + out + "]";
}

}  // namespace nimble::trust
