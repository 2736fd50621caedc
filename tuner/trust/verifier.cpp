#include "tuner/trust/verifier.h"

#include "vm/base/error.h"
#include "vm/base/printable.h"

namespace nimble::trust {

Verifier::Verifier(const std::vector<NamedKey>& trusted, const std::vector<Revocation>& revoked) {
  for (const NamedKey& k : trusted) trusted_.emplace(k.key, k);
  for (const Revocation& r : revoked) revoked_.emplace(r.key, r);
}

const NamedKey& Verifier::require(const Claim& claim, std::span<const Signature> signatures) const {
  const auto refuse = [&](const std::string& problem, const std::string& remedy) -> Error {
    return Error(Status::kInvalidArgument, claim.name, problem, remedy);
  };
  // Of several reasons the one nearest to trust is told.
  Error reason = refuse("is not signed", "sign it with a key that this machine trusts");
  int nearness = 0;
  const auto consider = [&](int how_near, const Error& error) {
    if (how_near > nearness) reason = error;
    nearness = std::max(nearness, how_near);
  };
  for (const Signature& s : signatures) {
    const std::string key = printable(s.key.substr(0, 16));
    const auto known = trusted_.find(s.key);
    if (const auto revoked = revoked_.find(s.key); revoked != revoked_.end()) {
      consider(2, refuse(fmt::format("is signed by key {}, which is revoked ({})", key,
                                     printable(revoked->second.reason)),
                         "sign it with another key"));
    } else if (known == trusted_.end()) {
      consider(1, refuse(fmt::format("is signed by key {}, which this machine does not trust", key),
                         "nimble keys trust KEY, if you know whose it is"));
    } else if (!is_signed(claim.message, s.bytes, s.key)) {
      consider(3, refuse(fmt::format("differs from what key {} ({}) signed", key,
                                     printable(known->second.name)),
                         "it was changed since, or signed for another campaign, case or target: "
                         "build it again"));
    } else {
      return known->second;
    }
  }
  throw reason;
}

std::vector<NamedKey> Verifier::keys() const {
  std::vector<NamedKey> out;
  for (const auto& [key, named] : trusted_)
    if (!revoked_.contains(key)) out.push_back(named);
  return out;
}

}  // namespace nimble::trust
