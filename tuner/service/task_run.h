// Tuning of one workload for one number of threads, as one process does it phase by phase: this
// plans; the builder compiles, the executor measures, and each waits for the other.
//
//   search   rounds at the representative sizes: propose, compile, measure at each, learn
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

#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "db/store/rank_correlations.h"
#include "db/store/vendor_standing.h"
#include "tuner/search/search.h"
#include "tuner/service/executor.h"
#include "tuner/service/plan.h"
#include "tuner/service/representatives.h"
#include "tuner/service/search_times.h"
#include "tuner/service/table_maker.h"

namespace nimble::tuner {

// How one workload came out.
struct TaskReport {
  std::string workload, label;
  int64_t threads = 1;
  double calls = 0, share = 0;         // of the model's time with default schedules
  double default_ns = 0, best_ns = 0;  // weighted over the sizes; 0: not measured
  int64_t trials = 0, failed = 0;
  int64_t pruned = 0;      // of the failed ones: not measured, for what their code takes
  double spent_s = 0;      // from the search to the table
  int64_t candidates = 0;  // see TaskRun::compiled; set when the campaign ends
  size_t seeds = 0;        // configurations of earlier tables that the search began with
  size_t k = 0;            // configurations that entered the cross-evaluation
  size_t entries = 0;
  // What is lost against the fastest that the campaign knows at a size, whoever has it, by times
  // over the default schedule's in one case: of the table and of the paper's one configuration,
  // from the same unrounded times; weighted mean over the sizes that the choice was made at, and
  // the worst of them.
  double regret = 0, worst_regret = 0, single_regret = 0;
  // The same at sizes that no choice saw; nothing if there was no time for them.
  std::optional<double> held_out_regret, held_out_worst_regret, held_out_single_regret;
  bool estimated = false;  // share and default_ns: there was no time to measure
  // How well the cost model ranked, in earlier processes of the campaign, too.
  db::RankCorrelations ranked;
  // Sizes that the search runs at, as the contract's symbols, with the share of the weight that
  // each stands for.
  std::vector<std::pair<db::Dims, double>> searched_at;
  // The vendor's routine beside the fastest of ours, in the same cases of the cross-evaluation.
  // Nothing where none was made.
  std::optional<db::VendorStanding> vendor;
  std::string no_vendor;     // why it took no part, or none at some sizes
  std::string search_ended;  // why it did before its time; empty: it did not
  // A/A pairs: how far two medians of the default schedule, taken side by side, lie apart (median
  // over the sizes); and the default's time at the end over its time at the start, less one.
  std::optional<double> noise, drift;
  std::optional<db::Uuid> table;
  std::string note;      // "default schedule kept: …"
  std::string inactive;  // the table's name and why it is a draft; empty: it is active
  const std::string& remark() const { return note.empty() ? inactive : note; }
};

// What measuring an entry of this time takes, in ms: its check, its warm-up and its samples, of
// which a quiet machine needs little more than the least.
double case_ms(double ns, const Policy& p);
// A task's sizes by use: those of the search, then heavy ones and such as are far from those
// before. Held-out ones are left out.
std::vector<size_t> spread_order(const TuningTask& task,
                                 const std::vector<Representative>& searched_at);
// The time of a configuration that fails or is wrong.
inline constexpr double kUnusable = HUGE_VAL;
// Why a search ended, of one that came to the end of its space.
inline constexpr char kAllTried[] = "every schedule was tried";
// Beyond this, what a process holds is anybody's.
inline constexpr int64_t kLeaseMs = 60'000;

class TaskRun {
 public:
  TaskRun(CampaignContext& context, const TuningTask& task, int64_t threads);

  // True if an earlier process of the campaign finished this task.
  bool finished_before() const;
  // What baseline() needs is prepared in two steps, each for many tasks side by side: jobs() does
  // not touch the task but for a place of its own, take() puts what they found to use.
  std::vector<std::function<void()>> default_jobs() { return builder_.default_jobs(); }
  void take_default() { builder_.take_default(); }
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
  // Of a table that is a draft: what it uses, what it would displace and the default schedule,
  // verified at all sizes. Activates it if it is not slower and `activate` says so. The task is
  // one that baseline() was asked of.
  TriedDraft try_draft(const db::DispatchTable& draft, bool activate, double until_s);
  // Stores and activates a table from the best evidence there is; a task without any keeps the
  // default. `complete`: all phases ran.
  void make_table(bool complete);
  // Tells whoever watches in which phase the task is and what it has come to.
  void enter(plan::Phase phase);
  // Whether the search is over for good: all that there is was proposed, or nothing is gained any
  // more (SearchEnd).
  bool exhausted() const { return exhausted_; }
  // Gives back what can be had again from the cache of work.
  void release_memory() { expectations_.release_memory(); }
  // How long all phases together would take from here on, if they were let to come to their ends:
  // until the last schedule was tried and the table made.
  double work_left_s(size_t top_k) const;
  const TuningTask& task() const { return task_; }
  size_t first_point() const { return searched_at_.front().point; }  // that baseline() measures at
  // What its default schedule takes in one run of the model, in ns, over the sizes by their
  // weights: as baseline() found, in proportion to the work of each.
  double default_cost() const;
  const TaskReport& report() const { return report_; }
  TaskReport& report() { return report_; }
  // The trials of the task, with their times as they are now. The store is asked once for all of
  // them, then for those that were measured since.
  const std::vector<db::TrialOutcome>& outcomes() const;
  // Distinct candidates that were compiled, those that failed included.
  int64_t compiled() const { return builder_.compiled(); }

 private:
  TableMaker table_maker() const;
  // make_table's steps. `best` is the least time known at each column of the evidence.
  std::pair<TableBasis, TableEvidence> best_evidence() const;  // the default first, if it has times
  std::vector<double> best_known(const TableEvidence& e) const;
  void report_table(const Table& table, const TableEvidence& e, const std::vector<double>& best);
  // Stores what the code of the default, of the table's entries and of other finalists is, where
  // the database does not have it and the campaign has the time.
  void keep_code(const db::NewDispatchTable& table);
  void report_vendor();
  // At the sizes that no choice saw.
  void report_held_out(const Table& table, const TableEvidence& e, size_t single);

  db::TrialKey key(const db::Hash& config, size_t point, db::Role role) const;
  // Enqueues and runs; trials that are finished already are left alone.
  // `trials` is called within the transaction that enqueues what it returns.
  void run(const std::function<std::vector<db::NewTrial>()>& trials, db::Role role);
  void run_claimed(std::vector<db::Trial> trials);
  // What there was no time for: it is in the queue again, and nobody has tried it.
  void give_back();
  double search_left_s() const;
  double finish_left_s(size_t top_k) const;
  double schedules() const;  // in the space; an upper bound for a large one
  // What a case with so many configurations is thought to take, in s.
  double case_s(size_t point, double configs) const;
  // Compiling and measuring one candidate of the search, in s; by shape that it runs at, compiling
  // at the first.
  double candidate_s() const;
  std::vector<double> candidate_at_s() const;
  void progressed() const {
    if (context_.progressed) context_.progressed();
  }
  double seconds_left() const { return until_s_ - context_.meter.consumed_s(); }
  // Compiles what is missing; finishes the trials of candidates that cannot be compiled, or of a
  // search that need not be measured.
  void compile(std::vector<db::Trial>& trials);
  void measure(std::vector<db::Trial> trials);  // size by size
  // Which sizes the search runs at. Of a campaign that was begun before: those that its search ran
  // at.
  std::vector<Representative> search_points();
  void search_at(const std::vector<size_t>& points);
  // Leaves out those that cannot occur; of none that can the nearest one is taken.
  void keep_possible();
  // Measures the default schedule at one of them; false if it fails there.
  bool open_point(size_t point);
  // Of a search that begins: leaves out shapes that so many seconds have no time for.
  void keep_affordable(double seconds);
  // Makes the search, with what earlier processes found out. It has so many seconds.
  void begin_search(double seconds);
  void tell_search(const db::TrialOutcome& outcome);
  // What the search has come to, from its finished trials.
  struct Found {
    std::vector<double> best_ns;  // by size that it runs at
    // The best of each size over the default there, weighted by what the sizes stand for.
    double ratio = HUGE_VAL;
    int64_t trials = 0, dry = 0;  // configurations; those since it gained 1 %
  };
  Found found_of(const std::vector<db::TrialOutcome>& outcomes) const;
  // Whether it ends for good, and notes why.
  bool ends_search();
  // The place among the search's sizes that a trial of it is of; nothing for any other trial.
  std::optional<size_t> search_place(const db::TrialOutcome& outcome) const;
  // What it believes a trial took; see SearchTimes.
  std::optional<double> ns_of(const db::TrialOutcome& outcome) const;
  // A part of a round, in one case with the anchors; again if something else ran beside it.
  void measure_search(size_t point, std::vector<db::Trial> trials);
  // All trials in one case; see Executor.
  std::vector<EntryResult> measure(size_t point, const std::vector<db::Trial>& trials, bool paired);
  TableEvidence evidence(const std::set<db::Role>& roles) const;
  TableEvidence compared(const std::map<db::Hash, std::map<size_t, double>>& times) const;
  void verify_at_all(const std::vector<size_t>& points, const std::set<db::Hash>& finalists);
  bool verify_at(size_t point, const std::set<db::Hash>& finalists);
  // What so many finalists take at a size, in s; the default runs twice.
  double verify_s(size_t point, size_t finalists) const;
  // By size: the least time over the default schedule's that any configuration had beside it in
  // the cross-evaluation.
  std::map<size_t, double> fastest() const;
  // Keeps the `keep` configurations of least regret in the cross-evaluation so far.
  void drop_worst(std::vector<db::Hash>& configs, size_t keep);
  void finish_failed(const db::Trial& trial, db::TrialState state, const std::string& error_class,
                     const std::string& message);

  CampaignContext& context_;
  const TuningTask& task_;
  TaskRecords records_;
  db::Uuid row_;  // the task's, in the database
  TaskCache cache_;
  Builder builder_;
  Expectations expectations_;
  Executor executor_;
  std::vector<Representative> searched_at_;  // the first stands for most
  bool searched_before_ = false;             // by an earlier process, at these
  double opening_ns_ = 0;                    // of the default at the first of them, at the start
  std::vector<double> same_;                 // ratios of A/A pairs
  std::vector<size_t> order_;                // sizes of the cross-evaluation
  double until_s_ = HUGE_VAL;                // the end of the present phase
  std::unique_ptr<Search> search_;
  std::map<size_t, SearchTimes> times_;             // by size that the search runs at
  mutable std::vector<db::TrialOutcome> outcomes_;  // as of the last time that they were asked for
  mutable std::map<db::Uuid, size_t> outcome_at_;   // trial → its place there
  mutable std::set<db::Uuid> changed_;              // trials that are to be read again
  mutable bool outcomes_read_ = false;
  int64_t round_ = 0;
  Found found_;
  std::set<db::Uuid> asked_;  // trials of proposals whose outcome the search does not know yet
  std::set<db::Hash> seeds_;  // what earlier tables hold: measured whatever it takes
  bool exhausted_ = false, crossed_ = false;
  Pace searching_, finishing_;  // this task's own
  int64_t searched_ = 0;        // candidates of it
  double usable_ = 0;           // of those found, the share that is worth evaluating
  size_t crossing_ = 0;         // configurations that are being evaluated; 0: no cross() runs
  size_t sizes_left_ = 0;       // of that
  size_t verifying_ = 0;        // sizes that verify() has before it
  mutable double schedules_ = -1;
  std::optional<db::Hash> vendor_;  // the vendor's routine, of the cross-evaluation
  std::set<size_t> cut_;            // sizes at which the cross-evaluation had not enough time
  // Finalists measured side by side, in this session, by size; complete or empty.
  std::map<db::Hash, std::map<size_t, double>> verified_;
  TaskReport report_;
};

}  // namespace nimble::tuner
