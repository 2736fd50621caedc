// What machines can do at most: from `nimble doctor --measure --format json` into the database.
#pragma once

#include <string>

#include "db/store/store.h"
#include "vm/arguments/table.h"

namespace nimble::db {

// Stores the ceilings that `report`, read from `place`, tells, as of this machine or of the one
// that `machine` is the beginning of. Returns how many there are; adding a report again adds
// nothing. Errors: kInvalidArgument for a report of another form, or of another processor than the
// machine's; as the_one() for `machine`.
int64_t add_ceilings(Store&, const std::string& report, const std::string& place,
                     const std::string& machine);

// The newest of each kind, type and number of threads, of all machines or of the one named.
Table show_ceilings(Store&, const std::string& machine);

}  // namespace nimble::db
