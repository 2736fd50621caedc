// Rows as records, where several files read the same ones. Private to db/store.
#pragma once

#include <string_view>

#include "db/store/sql.h"
#include "db/store/store.h"

namespace nimble::db {

// Qualified, since RETURNING allows no alias and a join needs it.
inline constexpr std::string_view kTrialColumns =
    "trial.uuid, trial.campaign, trial.workload, trial.config, trial.shape, "
    "trial.role, trial.threads, trial.round, trial.priority, trial.predicted_ns, "
    "trial.state, trial.attempt, trial.lease_owner, trial.lease_until, trial.error_class, "
    "trial.message, trial.position, trial.hardware, trial.policy";
inline constexpr int kTrialColumnCount = 19;
Trial read_trial(const Statement& row);  // of kTrialColumns, from the first

// Throws Error(kInvalidArgument) unless it is how a trial may end: a final state, with its times if
// it is ok.
void check_result(TrialState state, const std::optional<Measurement>& measurement);

}  // namespace nimble::db
