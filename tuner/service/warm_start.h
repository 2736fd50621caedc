// What a search tries first: the configurations that earlier campaigns, on this kind of hardware or
// another, put into dispatch tables for the same workload.
//
// A table is the best that its campaign knew, so its few configurations say more than thousands of
// times taken under other conditions. They are only where the search begins: each is measured here
// like any other candidate, and what is slow here loses.
#pragma once

#include <vector>

#include "db/store/store.h"
#include "tuner/space/space.h"

namespace nimble::tuner {

// How unlike two kinds of hardware are for a schedule: 0 for the same; what code may use weighs
// most, then caches and the maker's design.
int unlikeness(const db::Hardware& a, const db::Hardware& b);

// Points of the space, without repetition and the default schedule: of the tables of this kind of
// hardware, then of the kind most like it, and so on; of each kind the active tables' first, newer
// ones before older. Tables of other levels count, too, as far as their points are in this space.
// At most `most`.
std::vector<tuned::Candidate> warm_start(db::Store& store, const Space& space, int64_t threads,
                                         const db::Hash& hardware, size_t most = 8);

}  // namespace nimble::tuner
