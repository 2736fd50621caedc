// Cost models that a service keeps when a campaign ends, signed, and with which a later search of
// the same workload on the same kind of hardware begins.
//
// XGBoost reads a model, and its reader is not made for other people's bytes: nothing that is not
// signed by the service's own key reaches it (tuner/trust). A model that is refused is told of, and
// the search learns from nothing, as without one.
#pragma once

#include <functional>

#include "db/store/store.h"
#include "tuner/search/cost_model.h"
#include "tuner/trust/key.h"

namespace nimble::tuner {

// Whose models are kept and believed.
struct ModelSigner {
  const trust::SigningKey& key;
  std::string name;
};

// `model`: of times over the default schedule's, which is what services learn from. `round`: how
// many trials it was learnt from. One that was never trained is not kept.
void keep_model(db::Store& store, const ModelSigner& signer, const db::Uuid& campaign,
                const db::Hash& workload, const CostModel& model, int64_t round,
                std::optional<double> rank_correlation);

// The newest that is signed, of campaigns on that hardware, stored before the campaign `of` began:
// so a service that starts anew begins with the same. `say` is told of each that is refused.
std::optional<CostModel> kept_model(db::Store& store, const ModelSigner& signer,
                                    const db::Campaign& of, const db::Hash& workload,
                                    const std::function<void(const std::string&)>& say);

}  // namespace nimble::tuner
