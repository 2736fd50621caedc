// What a job is to its campaign's plan, as it stands in the job's limits ("plan"): so the jobs of a
// campaign and the feed of events are the plan's memory, and a service that starts anew reads there
// what the one before it wanted.
#pragma once

#include <optional>
#include <string>

#include "tuner/service/plan.h"

namespace nimble::tuner {

struct PlanRecord {
  plan::WantedCase wanted;  // what it was thought to take is left out
  int64_t seen = 0;         // number of the last event that was known when it was wanted
  double budget_s = 0;      // of the campaign by then
};

// The job's limits: {"case_s": …, "plan": …}, canonical JSON; of a case that verifies "paired",
// too: its first trial, the default schedule, runs a second time as an A/A pair.
std::string limits_of(const PlanRecord& record, double case_s);
// Nothing if the job is not of a plan; Error(kCorrupt) for a record that is none. Whoever may write
// jobs may have written it: tasks and points that there are not are the caller's to refuse.
std::optional<PlanRecord> plan_record_of(const std::string& limits);

}  // namespace nimble::tuner
