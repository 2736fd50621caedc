// Tuning of one workload for one number of threads: the trials of its phases, through database,
// compiler and worker.
//
//   search   rounds at the representative size: propose, compile, measure, learn
//   cross    the top k and the default at every size (paper, 3.5, step 2)
//   verify   the few configurations that a table would use and the default, measured anew side by
//            side: the final choice does not rest on the luckiest of a hundred measurements
//   table    the paper's single configuration and the table of ranges, from verified times
//
// Every trial is enqueued, claimed under a lease and finished in the database, so a process that
// is killed loses what it is just measuring and nothing else; the next one claims what is left.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "db/store/store.h"
#include "tuner/dispatch/choose.h"
#include "tuner/measure/host_state.h"
#include "tuner/measure/runner.h"
#include "tuner/search/search.h"
#include "tuner/service/backend.h"
#include "tuner/service/progress.h"
#include "tuner/service/work_cache.h"

namespace nimble::tuner {

// What all tasks of a campaign share.
struct CampaignContext {
  db::Store& store;
  Backend& backend;
  Runner& runner;
  ProgressMeter& meter;
  const kernels::TargetInfo& target;
  db::Uuid campaign;
  std::string owner;  // of leases
  db::Hash hardware, toolchain;
  db::Uuid machine;
  Policy policy;
  uint64_t seed = 0;
  int compile_threads = 2;
  HostWatch host;
  WorkCache* cache = nullptr;  // null: a kill loses what was compiled
  const std::atomic<bool>* cancel = nullptr;
  bool cancelled() const { return cancel && cancel->load(); }
};

// How one workload came out.
struct TaskReport {
  std::string workload, label;
  int64_t threads = 1;
  double calls = 0, share = 0;         // of the model's time with default schedules
  double default_ns = 0, best_ns = 0;  // weighted over the sizes; 0: not measured
  int64_t trials = 0, failed = 0;
  size_t k = 0;  // configurations that entered the cross-evaluation
  size_t entries = 0;
  double regret = 0, worst_regret = 0;      // of the table, over the sizes measured
  double single_regret = 0;                 // of the paper's one configuration, over the same sizes
  std::optional<double> model_correlation;  // of the last round
  // A/A pairs: how far two medians of the default schedule, taken side by side, lie apart (median
  // over the sizes); and the default's time at the end over its time at the start, less one.
  std::optional<double> noise, drift;
  std::optional<db::Uuid> table;
  std::string note;  // "default schedule kept: …"
};

class TaskRun {
 public:
  TaskRun(CampaignContext& context, const TuningTask& task, int64_t threads);
  ~TaskRun();

  // True if an earlier process of the campaign finished this task.
  bool finished_before() const;
  // Measures the default schedule at the representative size (role baseline), or the nearest that
  // can occur. Its weighted cost per run of the model decides which workloads are hot.
  // Error(kUnsupported) if no size can.
  double baseline();
  void search(double until_s);  // until the meter shows this much consumed
  void cross(size_t top_k, double until_s);
  // Leaves the times of the cross-evaluation to decide if there is not enough time for it.
  void verify(double until_s);
  // Stores and activates a table from the best evidence there is; a task without any keeps the
  // default. `complete`: all phases ran.
  void make_table(bool complete);
  const TaskReport& report() const { return report_; }
  TaskReport& report() { return report_; }

 private:
  struct Kept {  // a candidate that has been compiled
    uint32_t executable = 0, kernel = 0;
    db::Hash artifact;
  };
  // Times of some roles: the configurations that were right wherever the default was tried.
  struct Evidence {
    std::vector<db::Hash> configs;
    CrossTable cross;
  };

  db::Hash put_config(const tuned::Candidate& c);
  const tuned::Candidate& candidate(const db::Hash& config);
  db::TrialKey key(const db::Hash& config, size_t point, db::Role role) const;
  // Enqueues and runs; trials that are finished already are left alone.
  void run(const std::vector<db::NewTrial>& trials, db::Role role);
  size_t per_executable() const;  // candidates compiled together
  void run_claimed(std::vector<db::Trial> trials);
  // Compiles what is missing; finishes the trials of candidates that cannot be compiled.
  void compile(std::vector<db::Trial>& trials);
  void keep(const std::vector<db::Hash>& configs, Built built);
  // Takes the candidate from the cache, where an earlier process put it.
  bool restore(const db::Hash& config);
  std::string cache_key(const std::string& kind, const std::string& name) const;
  void remember(const std::string& key, const nlohmann::json& value) const;
  std::optional<nlohmann::json> recall(const std::string& key) const;
  std::optional<Expectation> recall_expectation(size_t point) const;
  // What the default schedule computes at a size; nothing if it cannot be built or fails.
  std::optional<std::vector<std::vector<uint8_t>>> default_result(size_t point);
  void expect(size_t point, const DefaultResult& run);
  Case case_of(size_t point) const;  // without entries
  // Whether the workload can meet this size; then its expected result is at hand. Where the
  // reference fails (an index behind the last of a table's rows) the model would have, too. A size
  // at which the default schedule is wrong is left out and reported.
  bool possible(size_t point);
  void measure(std::vector<db::Trial> trials);  // size by size
  void measure(size_t point, const std::vector<db::Trial>& trials);
  Evidence evidence(const std::set<db::Role>& roles) const;
  // Keeps the `keep` configurations of least regret in the cross-evaluation so far.
  void drop_worst(std::vector<db::Hash>& configs, size_t keep);
  void finish_failed(const db::Trial& trial, db::TrialState state, const std::string& error_class,
                     const std::string& message);

  CampaignContext& context_;
  const TuningTask& task_;
  const int64_t threads_;
  Space space_;
  db::Hash workload_, policy_;
  std::vector<db::Hash> shapes_;                     // of the points
  std::map<db::Hash, size_t> point_of_;              // shape → point
  std::map<db::Hash, tuned::Candidate> candidates_;  // by configuration
  std::map<db::Hash, Kept> built_;                   // by configuration
  std::set<uint32_t> executables_;
  std::map<std::string, uint32_t> restored_;  // executables from the cache, by their key there
  std::map<size_t, Expectation> expectations_;
  std::map<size_t, std::string> impossible_;  // points, why
  size_t representative_ = 0;                 // the task's, or the nearest possible one
  db::Hash default_config_;
  double opening_ns_ = 0;          // of the default, at the start
  std::vector<double> same_;       // ratios of A/A pairs
  double ms_per_candidate_ = 200;  // compile time, learnt
  TaskReport report_;
};

}  // namespace nimble::tuner
