// The planner of a campaign that many workers measure: which cases are wanted next.
//
// Nothing here measures, compiles or asks a database. A plan is a function of what happened (cases
// that were issued, begun, finished, in that order) and of the clock: told the same again, after a
// restart, it goes on with the same cases.
//
// Each task (a workload and a number of threads) goes through its phases by itself:
//
//   baseline  the default schedule at the first representative size, with the first few proposals.
//             The fastest of these becomes the task's second anchor.
//   search    cases of a few proposals each. A proposal is made when a worker needs one, from all
//             that is known then; there are no rounds, so nobody waits for one to be complete. What
//             has a time at the first representative size is then timed at each further one.
//   cross     the best of the search at every size, in cases that any worker may take
//   verify    the finalists and the default, at every size, all on one machine
//
// Times of different machines, or of one machine at different hours, don't mix. So every case holds
// the default schedule and the second anchor, and what is compared is a candidate's time over the
// default's in the same case. The anchors' own ratio tells whether machines of one kind agree
// (machines.h): one that doesn't is set aside. A machine that is slower by the same factor
// whatever it runs does agree; it costs more machine-seconds, and that is all.
//
// No task waits for a straggler: a case that takes several times as long as cases like it do is no
// longer waited for, and what it tells late is still learnt. When there is nothing else to do, such
// a case is issued a second time, for another machine; whoever finishes first counts.
//
// Tasks share the workers as weighted fair queueing does (A. Demers, S. Keshav, S. Shenker,
// Analysis and simulation of a fair queueing algorithm, SIGCOMM 1989): the next case is of the task
// that has used the least of its part of the budget. Campaigns share them alike (FairShare).
// Budgets are in machine-seconds.
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "db/store/records.h"
#include "db/store/vendor_standing.h"
#include "tuner/service/machines.h"
#include "tuner/service/search_end.h"
#include "tuner/service/steadiness.h"

namespace nimble::tuner::plan {

enum class Phase { kBaseline, kSearch, kCross, kVerify, kDone };
const char* name_of(Phase phase);

// A case that should be measured.
struct WantedCase {
  std::string key;  // of the campaign's cases; a second issue has one of its own
  size_t task = 0, point = 0;
  Phase phase = Phase::kBaseline;
  int slice = 0;                    // of the task's budget: each begins with a search
  std::vector<db::Hash> configs;    // without the anchors
  std::vector<db::Hash> anchors;    // the default schedule first
  std::optional<db::Uuid> machine;  // nothing: any that is not set aside
  std::optional<db::Uuid> avoid;    // where it straggles
  std::string first;                // of a second issue: the key of the first; else empty
  double priority = 0;              // higher is claimed earlier
  double expected_s = 0;            // machine-seconds, as far as is known
};

// What a worker found out. Anchors are among the times. Failed: no time, for good, whatever else
// the case tells. Entries whose turn never came are left out. A machine without a UUID: nobody's.
struct CaseOutcome {
  std::string key;
  Machine machine;
  double consumed_s = 0;  // of the machine
  std::map<db::Hash, std::optional<double>> times_ns;
  // What a machine lacks something for, such as a vendor's library, and which. It may have a time
  // elsewhere.
  std::map<db::Hash, db::Uuid> absent = {};
  // Of those without a time: compiled and not measured, for what their code takes of a GPU. They
  // say nothing of what measuring still gains.
  std::set<db::Hash> pruned = {};
};

struct PointSpec {
  double weight = 1;
  // What timing one candidate takes, roughly and in s; only its size relative to other points and
  // tasks matters once cases were measured.
  double entry_s = 1;
};

struct TaskSpec {
  std::string label;
  db::Hash default_config;
  double calls = 1;  // per run of the model
  // Those that the search runs at first, then in the order in which the cross-evaluation adds them.
  std::vector<PointSpec> points;
  // What each of those that the search runs at stands for, as a share of 1. It runs at the first
  // ones, as many as the task's part of the budget has time for (shapes_in_time).
  std::vector<double> searched = {1};
  // The vendor's routine: compared with ours at every size once it has a time, however it did in
  // the search, and never an anchor, for some machines may lack it.
  std::optional<db::Hash> vendor = {};
};

struct CampaignSpec {
  double budget_s = 0;  // machine-seconds
  std::vector<TaskSpec> tasks;
  size_t top_k = 100;
  size_t per_case = 8;  // candidates, anchors not counted
  double only_hot = 1;  // share of the model's time that is tuned
  SearchEnd search_end;
};

// What is known of a task's candidates at a size that the search runs at.
struct SizeEvidence {
  std::map<db::Hash, std::optional<double>> ratios;  // over the default's; nothing: it failed
  std::set<db::Hash> issued;                         // those that have no result yet among them
};
struct SearchEvidence {
  std::vector<SizeEvidence> sizes;  // in the order of the task's points
};

// Where candidates come from. What it returns may depend on its arguments alone, or a plan would
// not be the same after a restart. Configurations that were issued are not proposed again; fewer
// than asked for: there are no more.
using Propose =
    std::function<std::vector<db::Hash>(size_t task, size_t count, const SearchEvidence&)>;

// Ratios at the sizes of the cross-evaluation, of configurations that were right at all of them.
struct CrossEvidence {
  std::vector<size_t> points;
  std::map<db::Hash, std::vector<double>> ratios;  // in the order of `points`
};
// The configurations that a table would use, of those in the evidence, and what it would displace.
// Asked when the evidence changed and when a verification begins, since choosing takes a while; a
// plan made anew takes those that are verified from the cases that were issued.
using Finalists = std::function<std::vector<db::Hash>(size_t task, const CrossEvidence&)>;

struct TaskStatus {
  Phase phase = Phase::kBaseline;
  double share = 0;    // of the model's time
  double allot_s = 0;  // of the budget
  double spent_s = 0;
  int64_t trials = 0, failed = 0;
  int64_t searched = 0;           // of the trials, those of the search
  double best_ratio = 1;          // the best of each size of the search, by what these stand for
  size_t sizes_searched = 1;      // the first of TaskSpec::searched
  std::optional<db::Uuid> judge;  // the machine that verifies
  // Complete when the phase is kDone. Where nothing was faster it is the default schedule alone, as
  // the cross-evaluation has it.
  CrossEvidence verified;
  std::string note;  // why it keeps its default schedule; empty: it does not
  // Where the cross-evaluation has come to, if there is a vendor's routine; sizes by number, as
  // ratios to the default schedule's times in the same cases.
  std::vector<std::pair<size_t, db::BothSides>> both_sides = {};
  int64_t pruned = 0;  // of the failed trials: CaseOutcome::pruned
};

// The workers there are. Their number may change at any time.
struct Fleet {
  double now_s = 0;
  size_t workers = 0;
  std::set<db::Uuid> machines;  // alive
};

class CampaignPlan {
 public:
  CampaignPlan(CampaignSpec spec, Propose propose, Finalists finalists);

  // Cases to issue now: as many as keep the workers busy, with some in the queue. They count as
  // issued. Of several, the first is wanted most.
  std::vector<WantedCase> want(const Fleet& fleet);
  // Cases that are out though another issue of them is finished.
  std::vector<std::string> obsolete() const;

  // For a plan that is made anew: what an earlier one wanted, in the same order among outcomes.
  void issued(const WantedCase& wanted);
  // A worker began with it. Again: it began anew elsewhere.
  void begun(const std::string& key, const db::Uuid& machine, double now_s);
  // Told twice it counts once. Of a case that was issued twice what came first counts, and the
  // machine-seconds of both.
  void finished(const CaseOutcome& outcome);
  // Nobody will measure it any more (it was cancelled): what it was for is wanted again.
  void dropped(const std::string& key);

  // A size that the workload cannot meet: none of its cases is wanted. Not the first one.
  void impossible(size_t task, size_t point);

  // Lets tasks come to their ends from what is known: no more search, and no sizes that were not
  // begun.
  void stop() { stopping_ = true; }
  // More machine-seconds for a campaign, finished, stopped or not.
  void extend(double budget_s);

  bool done() const;
  double spent_s() const { return spent_s_; }
  double budget_s() const { return spec_.budget_s; }
  size_t outstanding() const { return open_.size(); }
  const CampaignSpec& spec() const { return spec_; }
  std::vector<TaskStatus> tasks() const;
  std::vector<MachineStatus> machines() const { return machines_.status(); }

 private:
  using Times = std::map<db::Hash, std::optional<double>>;  // or ratios; nothing: it failed
  struct Open {
    WantedCase wanted;
    std::optional<double> begun_s;
    std::optional<db::Uuid> machine;  // that has it
    bool doubled = false;             // another issue of it is out
    int copies = 0;                   // other issues so far
  };
  struct Task {
    Phase phase = Phase::kBaseline;
    double share = 0, allot_s = 0;
    double spent_s = 0, search_s = 0;  // machine-seconds of finished cases
    double search_allot_s = 0;         // up to which search_s may grow
    std::optional<db::Hash> anchor;
    std::optional<double> default_ns;
    SearchEvidence search;
    std::vector<double> best;    // by size of the search; empty: nothing is known yet
    std::vector<double> gained;  // the same when it last gained: gains that are small alone add up
    size_t at_once = 1;          // of these sizes, the first ones, that its part has time for
    int64_t stale = 0;           // results since it gained, in this slice
    int64_t since_gain = 0;      // the same, in all of them
    int64_t pruned_in_row = 0;   // of the search, with none between that was measured
    int slice = 0, dry_slices = 0;
    double best_before = HUGE_VAL;  // this slice
    bool exhausted = false;
    std::vector<db::Hash> chosen;               // for the cross-evaluation
    size_t sizes = 0;                           // of it
    std::map<size_t, Times> crossed, verified;  // by point
    std::map<size_t, std::set<db::Hash>> cross_issued;
    std::set<size_t> impossible;
    std::map<std::pair<size_t, db::Hash>, int> unanswered;
    std::set<std::pair<size_t, db::Hash>> gave_up_on;  // those that nobody will answer for
    std::optional<db::Uuid> absent_on;  // the machine that was the last to lack what it needs
    std::map<std::pair<size_t, db::Uuid>, Steadiness> steadiness;  // by point and machine
    // Of the cross-evaluation as it stands; nothing: not asked for since it changed.
    std::optional<std::vector<db::Hash>> likely;
    std::vector<db::Hash> finalists;
    std::optional<db::Uuid> judge;
    std::set<size_t> verify_issued;
    CrossEvidence result;
    int64_t trials = 0, failed = 0, pruned = 0, searched = 0, cases = 0;
    int default_failures = 0;
    std::string note;
  };

  void take(const CaseOutcome& outcome);
  void drop(const std::string& key);
  void learn(Task& task, const WantedCase& wanted, const CaseOutcome& outcome, double default_ns);
  void learn_failures(Task& task, const WantedCase& wanted, const CaseOutcome& outcome);
  void forget(Task& task, const WantedCase& wanted, const std::vector<db::Hash>& configs,
              double anchor_ratio);
  void unlearn(const WantedCase& wanted);  // what it was for is wanted again

  // The next case; nothing: none is wanted now.
  std::optional<WantedCase> want_one(const Fleet& fleet);
  std::optional<WantedCase> next_of(size_t t, const Fleet& fleet);
  std::optional<WantedCase> search_case(size_t t, const Fleet& fleet);
  // Of what has a time at the first size and none at a further one: `least` of them or more.
  std::optional<WantedCase> further_case(size_t t, size_t least) const;
  std::optional<WantedCase> cross_case(size_t t);
  std::optional<WantedCase> verify_case(size_t t);
  // Of a case that straggles: where others wait for it, or, `idle`, where nothing else is to do.
  std::optional<WantedCase> second_issue(const Fleet& fleet, bool idle);
  std::optional<size_t> next_slice() const;  // the task whose turn it is
  std::optional<WantedCase> another_slice(const Fleet& fleet);
  double slice_s() const;
  WantedCase make(size_t t, size_t point, std::vector<db::Hash> configs) const;
  // Whether a machine is there that is not known to lack what a vendor's routine needs.
  bool others_may_have_it() const;

  // Ends tasks that nothing follows for: what is told decides it, not the clock.
  void settle();
  // Passes the borders that may be passed now.
  void advance(size_t t, const Fleet& fleet);
  void allot();
  void enter_slice(size_t t);
  void enter_cross(size_t t);
  // `finalists`: of an earlier plan's case; null: from what is known now.
  void enter_verify(size_t t, const std::optional<db::Uuid>& judge,
                    const std::vector<db::Hash>* finalists = nullptr);
  void finish_task(size_t t);
  bool dry(size_t t) const;
  // Of its sizes together, by what they stand for; HUGE_VAL: nothing is known yet.
  double ratio_of(size_t t, const std::vector<double>& by_size) const;
  double best_of(size_t t) const { return ratio_of(t, tasks_[t].best); }
  size_t sizes_in_time(size_t t) const;
  bool search_is_over(size_t t) const;
  const std::vector<db::Hash>& finalists_of(size_t t);
  bool wants_search(size_t t) const;
  bool begins_size(size_t point) const;
  bool wants_cross(size_t t) const;
  bool verifies_vendor(size_t t);
  std::optional<db::Uuid> judge_among(size_t task, const Fleet& fleet);
  CrossEvidence complete(size_t t, const std::map<size_t, Times>& at) const;
  CrossEvidence default_alone(size_t t) const;
  std::vector<std::pair<size_t, db::BothSides>> both_sides(size_t t) const;

  bool straggles(const Open& open, const Fleet& fleet) const;
  // Whether cases of the task's phase are out that it waits for.
  bool awaits(size_t t, Phase phase, const Fleet& fleet) const;
  double raw_s(const WantedCase& wanted) const;
  double pace() const { return expected_s_ > 0 ? spent_s_ / expected_s_ : 1; }
  double price_s(size_t t, size_t point, size_t entries) const;
  double open_s(size_t t, std::optional<Phase> phase = {}) const;  // of what is out
  double free_s() const;  // of the budget, less what is out

  CampaignSpec spec_;
  Propose propose_;
  Finalists finalists_;
  std::vector<Task> tasks_;
  std::map<std::string, Open> open_;
  std::set<std::string> told_;    // keys of outcomes
  std::set<std::string> closed_;  // keys of first issues that either issue answered
  Machines machines_;
  std::set<db::Uuid> lacking_;           // machines that lack something for a vendor's routine
  std::set<db::Uuid> alive_;             // when cases were wanted last
  double spent_s_ = 0, expected_s_ = 0;  // of finished cases
  bool stopping_ = false;
};

// Which campaign the next free worker serves: of those that want one, that which has used the least
// for its weight. A campaign that joins, or comes back from a pause, begins where the others are:
// it is owed nothing for the time that it was away.
class FairShare {
 public:
  void join(const db::Uuid& campaign, double weight = 1);
  void leave(const db::Uuid& campaign) { used_.erase(campaign); }
  void charge(const db::Uuid& campaign, double machine_s);
  // Nothing if none of them has joined.
  std::optional<db::Uuid> next(const std::vector<db::Uuid>& wanting) const;

 private:
  struct Used {
    double weight = 1, virtual_s = 0;
  };
  std::map<db::Uuid, Used> used_;
};

}  // namespace nimble::tuner::plan
