// What a task has come to, as the database tells whoever watches: the detail of its phase.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "db/store/rank_correlations.h"
#include "db/store/records.h"
#include "db/store/vendor_standing.h"

namespace nimble::tuner {

struct TaskState {
  double best_ratio = 0;  // of the fastest found to the default schedule; 0: not known yet
  int64_t trials = 0, failed = 0;
  double share = 0;  // of the model's time with default schedules; told as the phase's, too
  double spent_s = 0;
  std::optional<double> allotted_s;
  std::optional<db::Uuid> verified_on;  // machine
  std::optional<double> noise;          // of A/A pairs
  // Shapes that the search runs at, with the share of the weight that each stands for.
  std::vector<std::pair<db::Dims, double>> searched_at;
  db::RankCorrelations rank_correlations;
  // Of the cross-evaluation; and why the vendor's routine took no part, or none at some sizes.
  std::optional<db::VendorStanding> vendor;
  std::string no_vendor;
  std::string note;    // why it has no faster schedule; empty: nothing to say
  int64_t pruned = 0;  // of the failed trials: as of TaskReport
  // Of the table that was made last, as of TaskReport; best_ns is 0 where none was.
  double default_ns = 0, best_ns = 0;
  int64_t k = 0;
  double regret = 0, worst_regret = 0, single_regret = 0;
};

std::string json_text(const TaskState& state);
// What json_text() wrote; a field that is missing or of another form, as a program of another
// version may have it, keeps its default.
TaskState task_state_from_json(const std::string& detail);

}  // namespace nimble::tuner
