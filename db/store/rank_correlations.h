// How well a task's cost model ranked, as the detail of its phases tells it.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace nimble::db {

// Round of the search, and the rank correlation (-1…1) between what the model had predicted for the
// candidates of that round and what these took. Rounds ascend; those in which too few were measured
// to tell are left out.
using RankCorrelations = std::vector<std::pair<int64_t, double>>;

// Of the detail of a task's phase (Task::detail). A program of another version, or anybody, may
// have written it: what is of another form is left out.
RankCorrelations rank_correlations_of(const std::string& detail);

}  // namespace nimble::db
