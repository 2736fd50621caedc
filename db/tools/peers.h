// What nimble's peers took for whole models, as the experiments measured it in one run.
#pragma once

#include <string>

#include "db/store/store.h"
#include "vm/arguments/table.h"

namespace nimble::db {

// Stores the figures of `result`, the text of a result file of experiments/run (from `place`), for
// the machine whose UUID begins with `machine`, this one if that is empty. Adding the same result
// again adds nothing. Returns how many it has. Error(kInvalidArgument): it is no such result, or of
// another processor than the machine's.
int64_t add_peers(Store&, const std::string& result, const std::string& place,
                  const std::string& machine);

Table show_peer_runs(Store&);  // the newest first
// The figures of the run whose UUID begins so. Errors as the_one().
Table show_peers(Store&, const std::string& run);

}  // namespace nimble::db
