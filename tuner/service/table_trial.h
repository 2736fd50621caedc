// The trial of one dispatch table that somebody edited: what it uses, what it would displace and
// the default schedule are timed side by side at the sizes of its workload, as a campaign times its
// finalists, and by the same rule (activation.cpp) it becomes active, or stays a draft. Each trial
// is a campaign of its own in the database: its measurements and the comparison stay as evidence.
#pragma once

#include <optional>
#include <string>

#include "tuner/service/campaign.h"

namespace nimble::tuner {

struct TableTrialOptions {
  // The model, its sizes, the database, target, jobs, worker and the trial's budget. Threads and
  // class of policy are the table's.
  CampaignOptions campaign;
  db::Uuid table;
  bool activate = true;  // false: only tell
};

struct TableTrial {
  std::string label;
  TriedDraft result;
  std::optional<double> noise;  // of the default schedule against itself
  db::Uuid campaign;
  bool interrupted = false;
};

// Errors: kInvalidArgument where the table is active already, is unknown, or of a workload that the
// model does not have; kIncompatible where it is of other hardware or another toolchain; kCorrupt
// for one whose tree is none.
TableTrial try_table(const TableTrialOptions& options, Backend& backend,
                     const std::atomic<bool>& cancel);

}  // namespace nimble::tuner
