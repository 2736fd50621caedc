// What measuring on this machine takes beside a database and a model: its lock, a measuring
// process, and what tasks share. The same for a campaign, a report on dispatch and the trial of one
// table.
#pragma once

#include "tuner/measure/machine_lock.h"
#include "tuner/service/campaign.h"
#include "tuner/service/tuning_machine.h"

namespace nimble::tuner {

// Waits for the machine, and tells for whom unless the options are quiet. `doing`: what for, with
// the place of the database behind it.
MachineLock lock_machine(const CampaignOptions& options, const std::string& doing,
                         const std::atomic<bool>& cancel);
RunnerOptions runner_options(const CampaignOptions& options, const kernels::TargetInfo& target,
                             const std::atomic<bool>& cancel);

// What the options name, each once, or all that may be used. Kernels of a GPU have the host's one:
// Error(kInvalidArgument) for any other.
std::vector<int64_t> threads_of(const CampaignOptions& options, const kernels::TargetInfo& target);

// Of this program and what it measures on. Whoever stores trials says of which campaign and owner
// they are; without a cache a kill loses what was compiled. All arguments stay the caller's.
CampaignContext measuring_context(const CampaignOptions& options, db::Store& store,
                                  Backend& backend, Runner& runner, ProgressMeter& meter,
                                  Account& account, const TuningMachine& on, const Policy& policy,
                                  const std::atomic<bool>& cancel);

}  // namespace nimble::tuner
