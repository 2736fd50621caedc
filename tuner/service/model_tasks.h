// From a model's file to what a campaign tunes: for one machine's campaign and for one that is
// submitted to a service.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tuner/service/campaign.h"

namespace nimble::tuner {

struct ModelTasks {
  std::vector<TuningTask> tasks;
  Policy policy;  // that of the options, of the class that they name or the model implies
  // Of a GPU's target: workloads with a schedule that run on the CPU beside it. What tunes them is
  // CampaignOptions::beside.
  size_t cpu_kernels = 0;
};

// Error(kUnsupported) for a GPU's target. `what` is for CPUs alone: "shapes are counted".
void require_cpu(const kernels::TargetInfo& target, const std::string& what);

// Bytes of the last cache that decides which class of records a model implies: what the options
// say, else what the hardware has.
int64_t last_cache_of(const CampaignOptions& options, const db::Hardware& hardware);

// Of a model once it is typed.
using PointsOf = std::function<std::vector<WeightedPoint>(const ir::Module&)>;

// Imports, types and lowers the model that the options name for `target` and finds its workloads at
// these points, or at the options' sizes. For a GPU's target, which stands beside this machine's
// CPU, those of the GPU; with CampaignOptions::beside those of the CPU there. Those that cannot be
// tuned stand in `skipped`, with the reason. Errors of the importer; kUnsupported if nothing can be
// tuned.
ModelTasks tasks_of_model(const CampaignOptions& options, const kernels::TargetInfo& target,
                          const PointsOf& points, std::vector<std::string>* skipped);
ModelTasks tasks_of_model(const CampaignOptions& options, const kernels::TargetInfo& target,
                          std::vector<std::string>* skipped);

}  // namespace nimble::tuner
