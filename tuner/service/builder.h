// The builder of a task: compiles its candidates, several in one executable, and keeps them where
// they can be had again: with the runner, and in the cache of work for the process after a kill.
//
// How many share an executable goes by what compiling one costs on an idle machine, since what an
// executable costs by itself is paid for each.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tuner/service/campaign_context.h"
#include "tuner/service/task_cache.h"
#include "tuner/service/task_records.h"

namespace nimble::tuner {

class Builder {
 public:
  struct Kept {  // a candidate that has been compiled
    uint32_t executable = 0, kernel = 0;
    db::Hash artifact;
    GpuCode gpu_code;  // of no registers: nothing is known, as of a CPU's
  };

  Builder(CampaignContext& context, TaskRecords& records, const TaskCache& cache)
      : context_(context), records_(records), cache_(cache) {}
  ~Builder();  // the runner forgets its executables
  Builder(const Builder&) = delete;
  Builder& operator=(const Builder&) = delete;

  bool has(const db::Hash& config) const { return built_.contains(config); }
  // The same, or it is in the cache, where an earlier process put it: then it is taken from there.
  bool available(const db::Hash& config) { return has(config) || restore(config); }
  const Kept& at(const db::Hash& config) const { return built_.at(config); }
  // Why one that was compiled need not be measured (occupancy.h), beside the default schedule,
  // which must be itself.
  std::optional<std::string> why_not_measured(const db::Hash& config) const;

  // Compiles those that are not available. A thread that finds nothing left to compile does the
  // jobs `beside`, as long as the others compile. Returns those that cannot be compiled, and why.
  // Once the campaign is cancelled nothing more is begun, and what was compiled is kept.
  std::map<db::Hash, std::string> build(const std::vector<db::Hash>& configs,
                                        const std::vector<std::function<void()>>& beside);
  // Candidates that are compiled together, and those that keep all threads busy for one go.
  size_t per_executable() const;
  size_t per_piece() const {
    return per_executable() * static_cast<size_t>(context_.compile_threads);
  }

  // The default schedule, for many tasks side by side: jobs() does not touch anything but a place
  // of its own, take() puts what they found to use.
  std::vector<std::function<void()>> default_jobs();
  void take_default();
  void ensure_default();

  double ms_per_candidate() const { return ms_per_candidate_; }
  int64_t compiled() const { return compiled_; }  // those that failed included
  // Artifacts that wait for the next transaction: to be called within it, and dropped behind it.
  const std::vector<db::Artifact>& unsaved() const { return unsaved_; }
  void saved() { unsaved_.clear(); }

 private:
  void keep(const std::vector<db::Hash>& configs, Built built);
  bool restore(const db::Hash& config);
  bool is_vendors(const db::Hash& config) const;

  CampaignContext& context_;
  TaskRecords& records_;
  const TaskCache& cache_;
  std::map<db::Hash, Kept> built_;  // by configuration
  std::set<uint32_t> executables_;
  std::map<std::string, uint32_t> restored_;  // executables from the cache, by their key there
  std::vector<db::Artifact> unsaved_;
  std::optional<Built> built_default_;
  bool default_tried_ = false;
  int64_t compiled_ = 0;
  double ms_per_candidate_ = 200;      // compile time, learnt
  double cpu_ms_per_candidate_ = 200;  // the same on an idle machine
};

}  // namespace nimble::tuner
