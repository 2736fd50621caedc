#include "tuner/service/model_keeper.h"

#include "db/store/hash.h"
#include "tuner/search/features.h"
#include "tuner/trust/records.h"
#include "vm/base/error.h"

namespace nimble::tuner {
namespace {

trust::Claim claim_of(const db::CostModel& m, std::span<const uint8_t> bytes) {
  return trust::claim_of(trust::LearntModel{m.campaign, m.workload, db::digest_of(bytes)});
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
    trust::sign(store, signer.key, signer.name, claim_of(record, record.model));
  });
}

std::optional<CostModel> kept_model(db::Store& store, const ModelSigner& signer,
                                    const db::Campaign& of, const db::Hash& workload,
                                    const std::function<void(const std::string&)>& say) {
  std::vector<db::CostModel> known = store.cost_models(workload, of.key.hardware, of.created_at);
  if (known.empty()) return std::nullopt;
  const trust::Verifier verifier =
      trust::verifier_of({{signer.key.public_key(), signer.name}}, store);
  for (const db::CostModel& m : known) {
    if (m.campaign == of.uuid) continue;
    try {
      // The claim is made anew of the bytes themselves, whatever digest the database tells.
      return CostModel::load(m.model, [&](std::span<const uint8_t> bytes) {
        trust::require_signed(store, verifier, claim_of(m, bytes));
      });
    } catch (const Error& e) {
      if (e.status() != Status::kInvalidArgument && e.status() != Status::kIncompatible &&
          e.status() != Status::kCorrupt)
        throw;
      say(fmt::format("a cost model of campaign {} is left alone: {}", m.campaign.substr(0, 8),
                      e.what()));
    }
  }
  return std::nullopt;
}

}  // namespace nimble::tuner
