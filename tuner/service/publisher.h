// From a case that a plan wants to a job that a fleet's worker can do: candidates as one-kernel
// executables, what is expected of them, signatures. Made once each, kept in the database.
//
// Nothing here waits for a worker. What it makes it makes under the machine's lock, which the
// caller holds: a machine that measures does nothing else.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tuner/measure/runner.h"
#include "tuner/service/backend.h"
#include "tuner/service/plan_record.h"
#include "tuner/service/task_cache.h"
#include "tuner/service/task_records.h"
#include "tuner/trust/key.h"

namespace nimble::tuner {

// What the tasks of a campaign share.
struct Publishing {
  db::Store& store;
  Backend& backend;
  Runner& runner;  // of default schedules, for the oracle
  const trust::SigningKey& key;
  std::string key_name;
  const kernels::TargetInfo& target;
  Policy policy;
  db::Campaign campaign;
  db::Hash toolchain;
  WorkCache* cache = nullptr;  // null: a restart compiles anew
  int compile_threads = 1;
  std::function<void(const std::string&)> say;
};

// A trial of a case: the default's search time is the baseline's.
db::TrialKey trial_key(const db::Uuid& campaign, const TaskRecords& records,
                       const plan::WantedCase& wanted, const db::Hash& config, size_t point);

class Publisher {
 public:
  Publisher(Publishing& shared, const TuningTask& task, int64_t threads);
  TaskRecords& records() { return records_; }
  const TaskRecords& records() const { return records_; }

  // Whether the workload can meet this size; then its case is stored. A size at which the reference
  // fails is none, nor one at which the default schedule is wrong. Other errors of the reference
  // (an operator that it lacks) are passed on.
  bool possible(size_t point);
  std::string why_not(size_t point) const { return impossible_.at(point); }

  // What is measured whatever it takes of a GPU, as what an earlier campaign chose.
  void measure_anyway(const db::Hash& config) { anyway_.insert(config); }

  // Compiles what is missing of it and hands it out; `point`: of the task. Trials of candidates
  // that cannot be compiled, and of those of a search that a GPU need not be asked about
  // (occupancy.h), are ended, and the job goes without them. Nothing if the default
  // schedule cannot be compiled. Published again it is the same job.
  std::optional<db::Uuid> publish(const PlanRecord& record, size_t point, double case_s,
                                  const std::map<db::Hash, double>& predicted_ns);
  // The same of a case that no plan knows of, with a job's limits as canonical JSON.
  std::optional<db::Uuid> publish(const plan::WantedCase& w, size_t point,
                                  const std::string& limits,
                                  const std::map<db::Hash, double>& predicted_ns);

 private:
  struct Made {
    db::Hash artifact;
    db::Digest candidate;
    std::string fault;  // why it cannot be compiled; else empty
    GpuCode gpu_code = {};
  };
  void build(const std::vector<db::Hash>& configs);
  std::optional<Made> recall(const db::Hash& config);
  void keep(const db::Hash& config, const Built& built);
  // Ends a trial without a measurement.
  void end_unmeasured(const db::TrialKey& key, const std::string& error_class,
                      const std::string& why);
  std::optional<std::string> why_not_measured(const plan::WantedCase& w,
                                              const db::Hash& config) const;
  // An executable whose only kernel is the workload's default schedule, for this machine; nothing
  // if there is none.
  std::optional<std::vector<uint8_t>> own_default();
  std::optional<std::vector<std::vector<uint8_t>>> default_result(size_t point);

  Publishing& shared_;
  const TuningTask& task_;
  TaskRecords records_;
  TaskCache cache_;
  std::map<db::Hash, Made> made_;  // by configuration
  std::set<db::Hash> anyway_;
  std::optional<std::vector<uint8_t>> cpu_default_;  // of a GPU's workload
  std::map<size_t, db::Hash> cases_;
  std::map<size_t, std::string> impossible_;
};

}  // namespace nimble::tuner
