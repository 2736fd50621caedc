// Tuning of one workload for one number of threads: the trials of its phases, through database,
// compiler and worker.
//
//   search   rounds at the representative size: propose, compile, measure, learn
//   cross    the top k and the default at every size (paper, 3.5, step 2)
//   verify   the few configurations that a table would use and the default, measured anew side by
//            side: the final choice does not rest on the luckiest of a hundred measurements
//   table    the paper's single configuration and the table of ranges, from verified times
//
// Each phase is told when it must have ended. A case has what is left until then as its limit, so a
// phase ends in time however slow its kernels are; trials that had no time go back to the queue.
//
// Every trial is enqueued, claimed under a lease and finished in the database, so a process that
// is killed loses what it is just measuring and nothing else; the next one claims what is left.
#pragma once

#include <atomic>
#include <cmath>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
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
#include "tuner/service/account.h"
#include "tuner/service/backend.h"
#include "tuner/service/progress.h"
#include "tuner/service/work_cache.h"

namespace nimble::tuner {

// How long things took against how long they were thought to take, in s.
struct Pace {
  double expected = 0, spent = 0;
  double ratio() const { return expected > 0 ? spent / expected : 1; }
};

// What all tasks of a campaign share.
struct CampaignContext {
  db::Store& store;
  Backend& backend;
  Runner& runner;
  ProgressMeter& meter;
  Account& account;
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
  double end_s = HUGE_VAL;           // of the campaign, on the meter's clock
  std::mutex runner_turn;            // the runner serves one thread at a time
  Pace searching, finishing;         // of candidates, and of sizes in the phases behind the search
  std::function<void()> progressed;  // a round or a size is done: what is told may be mended
  bool cancelled() const { return cancel && cancel->load(); }
};

// How one workload came out.
struct TaskReport {
  std::string workload, label;
  int64_t threads = 1;
  double calls = 0, share = 0;         // of the model's time with default schedules
  double default_ns = 0, best_ns = 0;  // weighted over the sizes; 0: not measured
  int64_t trials = 0, failed = 0;
  int64_t candidates = 0;  // distinct ones that were compiled, those that failed included
  size_t k = 0;            // configurations that entered the cross-evaluation
  size_t entries = 0;
  // What is lost against the fastest time that the campaign knows at a size, whoever has it: of the
  // table and of the paper's one configuration, from the same unrounded times; weighted mean over
  // the sizes that the choice was made at, and the worst of them.
  double regret = 0, worst_regret = 0, single_regret = 0;
  // The same at sizes that no choice saw; nothing if there was no time for them.
  std::optional<double> held_out_regret, held_out_single_regret;
  bool estimated = false;                   // share and default_ns: there was no time to measure
  std::optional<double> model_correlation;  // of the last round
  // A/A pairs: how far two medians of the default schedule, taken side by side, lie apart (median
  // over the sizes); and the default's time at the end over its time at the start, less one.
  std::optional<double> noise, drift;
  std::optional<db::Uuid> table;
  std::string note;      // "default schedule kept: …"
  std::string inactive;  // why the table is a draft, and how it becomes active; empty: it is active
  const std::string& remark() const { return note.empty() ? inactive : note; }
};

// What measuring an entry of this time takes, in ms: its check, its warm-up and its samples, of
// which a quiet machine needs little more than the least.
double case_ms(double ns, const Policy& p);
// Beyond this, what a process holds is anybody's.
inline constexpr int64_t kLeaseMs = 60'000;
// The error class of a trial whose end says nothing about its candidate.
inline constexpr char kNotItsFault[] = "environment";

class TaskRun {
 public:
  TaskRun(CampaignContext& context, const TuningTask& task, int64_t threads);
  ~TaskRun();

  // True if an earlier process of the campaign finished this task.
  bool finished_before() const;
  // What baseline() needs is prepared in two steps, each for many tasks side by side: jobs() does
  // not touch the task but for a place of its own, take() puts what they found to use.
  std::vector<std::function<void()>> default_jobs();
  void take_default();
  std::vector<std::function<void()>> expectation_jobs();
  // Measures the default schedule at the representative size (role baseline), or the nearest that
  // can occur. Its weighted cost per run of the model decides which workloads are hot.
  // Error(kUnsupported) if no size can.
  double baseline();
  // Until the meter shows this much consumed. Whether it is worth while to go on with the phases
  // below: something better was found, or this is the first time.
  bool search(double until_s);
  void cross(size_t top_k, double until_s);
  // Leaves the times of the cross-evaluation to decide if there is not enough time for it.
  void verify(double until_s);
  // Stores and activates a table from the best evidence there is; a task without any keeps the
  // default. `complete`: all phases ran.
  void make_table(bool complete);
  // Whether search() has proposed all that there is.
  bool exhausted() const { return exhausted_; }
  // Gives back what can be had again from the cache of work.
  void release_memory() { expectations_.clear(); }
  // How long all phases together would take from here on, if they were let to come to their ends:
  // until the last schedule was tried and the table made.
  double work_left_s(size_t top_k) const;
  const TuningTask& task() const { return task_; }
  const TaskReport& report() const { return report_; }
  TaskReport& report() { return report_; }

 private:
  struct Kept {  // a candidate that has been compiled
    uint32_t executable = 0, kernel = 0;
    db::Hash artifact;
  };
  // Times at some sizes: the configurations that were right at each of them.
  struct Evidence {
    std::vector<db::Hash> configs;
    std::vector<size_t> points;  // of the columns of `cross`
    CrossTable cross;
  };
  struct Pending {  // what a job found
    std::optional<Expectation> value;
    std::exception_ptr fault;
  };

  // What a new table's times rest on: finalists side by side, the cross-evaluation, or the search
  // at its one size.
  enum class Basis { kVerified, kCross, kSearch };
  // Whether a table may take its slot.
  struct Verdict {
    bool activate = false;
    std::string reason;                        // for the event, or for the report
    std::optional<db::Uuid> rival;             // what is active now
    std::optional<db::Comparison> comparison;  // without its table
  };
  Verdict judge(const db::NewDispatchTable& made, const Evidence& e, Basis basis) const;
  bool can_be_generated(const tuned::Candidate& c) const;

  // make_table's steps. `best` is the least time known at each column of the evidence.
  std::pair<Basis, Evidence> best_evidence() const;  // the default first, where it has times
  std::vector<double> best_known(const Evidence& e) const;
  db::NewDispatchTable record_of(const Table& table, const Evidence& e,
                                 const std::vector<double>& best, bool complete) const;
  // The campaign's, by configuration and shape: a later phase's before an earlier one's.
  std::map<std::pair<db::Hash, db::Hash>, db::Uuid> own_measurements() const;
  void store_table(db::NewDispatchTable table, const Evidence& e, Basis basis);
  static double regret_of(const TableEntry& entry, const CrossTable& cross,
                          const std::vector<double>& best);
  void report_table(const Table& table, const Evidence& e, const std::vector<double>& best);
  // At the sizes that no choice saw.
  void report_held_out(const Table& table, const Evidence& e, size_t single);

  db::Hash put_config(const tuned::Candidate& c);
  const tuned::Candidate& candidate(const db::Hash& config);
  db::TrialKey key(const db::Hash& config, size_t point, db::Role role) const;
  // Enqueues and runs; trials that are finished already are left alone.
  // `trials` is called within the transaction that enqueues what it returns.
  void run(const std::function<std::vector<db::NewTrial>()>& trials, db::Role role);
  void save_model();
  size_t per_executable() const;  // candidates compiled together
  void run_claimed(std::vector<db::Trial> trials);
  double search_left_s() const;
  double finish_left_s(size_t top_k) const;
  double schedules() const;  // in the space; an upper bound for a large one
  // What a case with so many configurations is thought to take, in s.
  double case_s(size_t point, double configs) const;
  double candidate_s() const;  // compiling and measuring one, in s
  void progressed() const {
    if (context_.progressed) context_.progressed();
  }
  double seconds_left() const { return until_s_ - context_.meter.consumed_s(); }
  // Compiles what is missing; finishes the trials of candidates that cannot be compiled.
  void compile(std::vector<db::Trial>& trials);
  void keep(const std::vector<db::Hash>& configs, Built built);
  // Takes the candidate from the cache, where an earlier process put it.
  bool restore(const db::Hash& config);
  std::string cache_key(const std::string& kind, const std::string& name) const;
  std::string expectation_key(size_t point) const;
  void remember(const std::string& key, const nlohmann::json& value) const;
  std::optional<nlohmann::json> recall(const std::string& key) const;
  std::optional<Expectation> recall_expectation(size_t point) const;
  // What the default schedule computes at a size; nothing if it could not be built or fails.
  std::optional<std::vector<std::vector<uint8_t>>> default_result(size_t point);
  void ensure_default();
  std::function<void()> expectation_job(size_t point);
  void take_expectations();
  // Computes what is expected at the next sizes of `order_` that it is unknown at.
  void expect_ahead(size_t from);
  void expect(size_t point, Expectation e);
  Case case_of(size_t point) const;  // without entries
  // Whether the workload can meet this size; then its expected result is at hand. Where the
  // reference fails (an index behind the last of a table's rows) the model would have, too. A size
  // at which the default schedule is wrong is left out and reported.
  bool possible(size_t point);
  // Whether that was found out before, by this process or by one before it.
  bool at_hand(size_t point);
  void measure(std::vector<db::Trial> trials);  // size by size
  // All trials in one case, the default once more with `paired`. Trials that had no time stay
  // claimed. A trial that is finished already gets a further measurement.
  std::vector<EntryResult> measure(size_t point, const std::vector<db::Trial>& trials, bool paired);
  Evidence evidence(const std::set<db::Role>& roles) const;
  Evidence compared(const std::map<db::Hash, std::map<size_t, double>>& times) const;
  // The sizes by use: heavy ones and such as are far from those before come first.
  std::vector<size_t> spread_order() const;
  std::set<db::Hash> active_configs() const;
  bool verify_at(size_t point, const std::set<db::Hash>& finalists);
  // The least time that any configuration had there, in whatever role.
  std::map<size_t, double> fastest() const;
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
  // The same on an idle machine: how many share an executable must not depend on who else compiles,
  // since what one costs by itself is paid per executable.
  double cpu_ms_per_candidate_ = 200;
  std::vector<size_t> order_;  // sizes of the cross-evaluation
  double until_s_ = HUGE_VAL;  // the end of the present phase
  std::unique_ptr<Search> search_;
  int64_t round_ = 0;
  double best_ns_ = HUGE_VAL;                   // at the representative size
  std::optional<db::CostModel> unsaved_model_;  // both wait for the next transaction
  std::vector<db::Artifact> unsaved_artifacts_;
  std::set<db::Uuid> asked_;  // trials of proposals whose outcome the search does not know yet
  bool exhausted_ = false, crossed_ = false;
  Pace searching_, finishing_;  // this task's own
  int64_t searched_ = 0;        // candidates of it
  double usable_ = 0;           // of those found, the share that is worth evaluating
  size_t crossing_ = 0;         // configurations that are being evaluated; 0: no cross() runs
  size_t sizes_left_ = 0;       // of that
  size_t verifying_ = 0;        // sizes that verify() has before it
  mutable double schedules_ = -1;
  std::set<size_t> cut_;  // sizes at which the cross-evaluation had not enough time
  // Finalists measured side by side, in this session, by size; complete or empty.
  std::map<db::Hash, std::map<size_t, double>> verified_;
  std::optional<Built> built_default_;
  bool default_tried_ = false;
  std::mutex pending_mutex_;
  std::map<size_t, Pending> pending_;
  TaskReport report_;
};

}  // namespace nimble::tuner
