// The report of a workload whose campaign is over, from what the database holds.
#pragma once

#include "db/store/store.h"
#include "tuner/service/task_run.h"

namespace nimble::tuner {

// Of one workload of a campaign that is over: the campaign's trials; its table in the slot
// (workload, hardware, toolchain and policy of `slot`) that is active, else its newest there, else
// another campaign's that is active; and the times that belong to its own. What is not stored keeps
// its default: of a campaign of an older version, or one that was killed, the times. `task`: the
// campaign's row of the workload; null: it has none.
TaskReport stored_report(db::Store& store, const db::Uuid& campaign,
                         const db::NewDispatchTable& slot, const db::Task* task);

}  // namespace nimble::tuner
