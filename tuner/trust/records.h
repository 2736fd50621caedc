// Between claims and a database: signatures are laid there and found again, keys are announced,
// revocations told. Whom to trust is no affair of the database's.
#pragma once

#include "db/store/store.h"
#include "tuner/trust/keyring.h"

namespace nimble::trust {

// Signs the claim and stores the signature, and the key's name for people.
void sign(db::Store& store, const SigningKey& key, const std::string& name, const Claim& claim);

// Error(kInvalidArgument) unless a signature of the database is by a key that `verifier` trusts.
const NamedKey& require_signed(db::Store& store, const Verifier& verifier, const Claim& claim);

// What the keyring trusts, less what it or the database says is revoked. To be asked for anew from
// time to time: a revocation counts from when it is known.
Verifier verifier_of(const Keyring& ring, db::Store& store);
// These keys, less what the database says is revoked.
Verifier verifier_of(const std::vector<NamedKey>& trusted, db::Store& store);
// The same of these keys in place of those that the keyring trusts.
Verifier verifier_of(const Keyring& ring, db::Store& store, const std::vector<NamedKey>& trusted);

// The verifier's keys as a worker tells them (db::Worker::trusted_keys).
std::string trusted_keys_json(const Verifier& verifier);

}  // namespace nimble::trust
