#include "tuner/fleet/permission.h"

#include <algorithm>
#include <utility>

#include "db/store/hash.h"
#include "tuner/trust/records.h"
#include "vm/base/cpu.h"
#include "vm/base/error.h"
#include "vm/base/gpu_target.h"
#include "vm/base/printable.h"

namespace nimble::tuner {

SignedOnly::SignedOnly(trust::Keyring ring, std::vector<std::string> only,
                       std::optional<GpuFacts> gpu)
    : ring_(std::move(ring)), only_(std::move(only)), gpu_(std::move(gpu)), verifier_({}, {}) {}

std::vector<trust::NamedKey> SignedOnly::chosen() const {
  std::vector<trust::NamedKey> trusted = ring_.trusted();
  if (only_.empty()) return trusted;
  std::vector<trust::NamedKey> out;
  for (const std::string& word : only_) {
    const auto named = [&](const auto& matches) {
      const auto found = std::find_if(trusted.begin(), trusted.end(), matches);
      if (found != trusted.end()) out.push_back(*found);
      return found != trusted.end();
    };
    if (named([&](const trust::NamedKey& k) { return k.name == word; })) continue;
    if (word.size() == 64) {
      const trust::PublicKey key = trust::public_key_from_text(word, "--trust");
      if (!named([&](const trust::NamedKey& k) { return k.key == key; }))
        out.push_back({key, key.substr(0, 16)});
    } else if (!asked_) {
      throw Error(Status::kInvalidArgument, "--trust " + printable(word),
                  "is the name of no key that this machine trusts",
                  "nimble keys list shows them; another one takes all 64 digits");
    }
  }
  return out;
}

bool SignedOnly::renew(db::Store& store) {
  const auto texts = [](const trust::Verifier& v) {
    std::vector<trust::PublicKey> out;
    for (const trust::NamedKey& k : v.keys()) out.push_back(k.key);
    return out;
  };
  trust::Verifier now = trust::verifier_of(ring_, store, chosen());
  const bool changed = asked_ && texts(now) != texts(verifier_);
  verifier_ = std::move(now);
  asked_ = true;
  return changed;
}

void SignedOnly::require(db::Store& store, const db::Job& job, const db::JobTrial& trial,
                         std::span<const uint8_t> executable) {
  const db::Digest digest = db::digest_of(executable);
  std::string target;
  for (const db::Candidate& c : store.candidates(trial.artifact))
    if (c.digest == digest) target = c.target;
  if (target.empty())
    throw Error(Status::kInvalidArgument, "candidate " + digest.substr(0, 12),
                "is not what was published for its configuration", "publish the job again");
  trust::require_signed(store, verifier_,
                        trust::claim_of(trust::Candidate{job.campaign, job.measure_case, digest,
                                                         target, job.limits}));
  if (const std::string why = why_not_of(target); !why.empty())
    throw Error(Status::kUnsupported, "candidate " + digest.substr(0, 12),
                fmt::format("is code for {}, and {}", printable(target), why),
                "submit a campaign for hardware of this kind");
}

std::string SignedOnly::why_not_of(const std::string& target) const {
  if (!gpu_)
    return host_cpu().has(target) ? "" : fmt::format("this machine is {}", host_cpu().level);
  const std::optional<GpuTarget> code = gpu_target(target);
  if (code && code->runs_on(gpu_->capability)) return "";
  return fmt::format("this worker's GPU ({}) is of compute capability {}.{}", gpu_->name,
                     gpu_->capability / 10, gpu_->capability % 10);
}

std::string SignedOnly::trusted_keys() const {
  return trust::trusted_keys_json(verifier_);
}

}  // namespace nimble::tuner
