#include "tuner/service/model_keeper.h"

#include "db/store/hash.h"
#include "tuner/search/features.h"
#include "tuner/trust/records.h"
#include "vm/base/error.h"

namespace nimble::tuner {
namespace {

// Models that are looked at in one go.
constexpr int64_t kAtOnce = 100;

trust::Claim claim_of(const db::CostModel& m, const db::Digest& digest) {
  return trust::claim_of(trust::LearntModel{m.campaign, m.workload, digest});
}

}  // namespace

void keep_model(db::Store& store, const ModelSigner& signer, const db::Uuid& campaign,
                const db::Hash& workload, const CostModel& model, int64_t round,
                std::optional<double> rank_correlation) {
  if (!model.trained()) return;
  db::CostModel record;
  record.campaign = campaign;
  record.workload = workload;
  record.round = round;
  record.model = model.serialised();
  record.rank_correlation = rank_correlation;
  record.feature_version = kFeatureVersion;
  store.transaction([&] {
    store.add(record);
    trust::sign(store, signer.key, signer.name, claim_of(record, db::digest_of(record.model)));
  });
}

std::optional<CostModel> kept_model(db::Store& store, const ModelSigner& signer,
                                    const db::Campaign& of, const db::Hash& workload,
                                    const std::function<void(const std::string&)>& say) {
  const trust::Verifier verifier =
      trust::verifier_of({{signer.key.public_key(), signer.name}}, store);
  int64_t unsigned_models = 0;
  std::optional<CostModel> found;
  std::optional<db::CostModel> last;
  for (bool more = true; more && !found;) {
    std::vector<db::CostModel> page =
        store.cost_models(workload, of.key.hardware, of.created_at, kAtOnce, last);
    more = std::ssize(page) == kAtOnce;
    if (more) last = page.back();
    for (const db::CostModel& m : page) {
      if (m.campaign == of.uuid) continue;
      // Programs of before kept a model of each round of a search, which nobody signed: however
      // many there are, they hide none that counts.
      if (!db::is_digest(m.digest) || store.signatures(claim_of(m, m.digest).subject).empty()) {
        ++unsigned_models;
        continue;
      }
      const std::optional<db::CostModel> whole = store.cost_model(m.uuid);
      if (!whole) continue;
      try {
        // The claim is made anew of the bytes themselves, whatever digest the database tells.
        found = CostModel::load(whole->model, [&](std::span<const uint8_t> bytes) {
          trust::require_signed(store, verifier, claim_of(m, db::digest_of(bytes)));
        });
        break;
      } catch (const Error& e) {
        if (e.status() != Status::kInvalidArgument && e.status() != Status::kIncompatible &&
            e.status() != Status::kCorrupt)
          throw;
        say(fmt::format("a cost model of campaign {} is left alone: {}", m.campaign.substr(0, 8),
                        e.what()));
      }
    }
  }
  if (unsigned_models > 0)
    say(unsigned_models == 1 ? "an earlier cost model is left alone: it is not signed"
                             : fmt::format("{} earlier cost models are left alone: none is signed",
                                           unsigned_models));
  return found;
}

}  // namespace nimble::tuner
