// One campaign of the service: its plan, tied to the database.
//
// The database is the plan's memory. What the plan wants becomes jobs that bear it (plan_record.h);
// what comes of them is read from the feed of events, in its order, and from nowhere else. A
// service that starts anew reads the feed from the beginning and so arrives where the one before it
// was: a case that was published is there, one that was not is wanted again. Each published case
// says which events were known when it was wanted, so it takes its old place among them.
//
// A case may become several jobs: one whose lease ran out is split, one that was half done goes on
// elsewhere. It is told to the plan once, when nothing of it is open any more. Times of its parts
// are brought together by the default schedule that each of them holds.
#pragma once

#include <chrono>
#include <cmath>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "db/store/rank_correlations.h"
#include "tuner/search/search.h"
#include "tuner/service/plan.h"
#include "tuner/service/publisher.h"
#include "tuner/service/submission.h"
#include "tuner/service/table_maker.h"

namespace nimble::tuner {

struct ServiceTask {
  const TuningTask* task = nullptr;
  int64_t threads = 1;
  std::unique_ptr<Publisher> publisher;
  std::vector<size_t> points;    // of the plan → of the task; the sizes of the search first
  std::vector<double> searched;  // what each of these stands for
  std::unique_ptr<Search> search;
  // What a model said of each that it ranked, by size: its ratio to the default. And how well the
  // ranks of all of these agree with the times that are known: by the number of those, since there
  // are no rounds.
  std::map<db::Hash, std::vector<std::optional<double>>> foretold;
  db::RankCorrelations ranked;
  std::optional<db::Hash> vendor;                // the vendor's routine; and why it
  std::string no_vendor;                         // took no part, or none on some machine
  std::map<db::Hash, double> default_ns;         // by shape, from the latest case
  std::map<size_t, double> verified_default_ns;  // by the plan's point
  std::set<db::Hash> verified;                   // timed side by side
  // By the plan's point: by how much the default differed from itself there, relative.
  std::map<size_t, double> apart;
  // Their median: gains below it are none. Nothing: no size was verified.
  std::optional<double> noise() const;
  std::string told_phase;  // and how it stood when it was told
  double told_best = 0;
  db::Uuid uuid;
  db::Uuid table;  // that was made of it
};

class CampaignService {
 public:
  // Reads all that happened so far. `shared` and its store stay the caller's. Errors: as of
  // Publisher::possible; kUnsupported if no workload can be measured at any size.
  CampaignService(Publishing& shared, Submission submission);
  ~CampaignService();
  const db::Uuid& uuid() const { return shared_.campaign.uuid; }

  // Takes up what happened since. Returns the machine-seconds that came to be known.
  double follow();
  // Acts on what people asked for, answers, and takes a larger budget. True if the campaign ended.
  bool steer();
  bool paused() const { return paused_; }
  // What is wanted now, by workers of the campaign's hardware. To be called under the machine's
  // lock, as publish().
  bool may_want(const plan::Fleet& fleet) const;
  std::vector<plan::WantedCase> want(plan::Fleet fleet);
  void publish(const plan::WantedCase& wanted);
  // Once the plan is done: makes the tables and ends the campaign. True if it did. One that was
  // told to stop ends without what nobody verifies, too: after `patience_s` without a worker.
  bool finish(double patience_s = HUGE_VAL);
  // Of a campaign that has ended: keeps the code of its tables as text. To be called under the
  // machine's lock, as publish().
  void keep_code();
  // Workers that are alive, of the campaign's hardware.
  plan::Fleet fleet() const;
  const plan::CampaignPlan& plan() const { return *plan_; }
  int64_t seen() const { return seen_; }

 private:
  // A case that is out: its jobs, and what they told.
  struct Live {
    plan::WantedCase wanted;
    std::set<db::Uuid> open;
    std::vector<db::StoredReport> reports;
    std::map<db::Uuid, db::Hash> trials;  // of its configurations
    std::set<db::Hash> given_up;          // took their workers down
    bool cancelled = false, lost = false;
  };

  void open_tasks();
  void open_task(const TuningTask& task, int64_t threads);
  void make_plan(double budget_s);
  void replay();
  std::vector<db::Hash> propose(size_t task, size_t count, const plan::SearchEvidence& known);
  std::vector<db::Hash> finalists(size_t task, const plan::CrossEvidence& known) const;
  void take_issued(const PlanRecord& record, const db::Uuid& job);
  void handle(const db::Event& event, bool replaying);
  void handle_job(const db::Event& event, const std::string& state);
  // Tells the plan if nothing of the case is open any more.
  void close(const std::string& key);
  plan::CaseOutcome outcome_of(const std::string& key, const Live& live) const;
  void note_defaults(const Live& live, const plan::CaseOutcome& outcome);
  void tell_begun();
  // `unverified`: the campaign ends though tasks are not done, and they say so.
  void tell_phases(bool unverified = false);
  void tell_machines(bool ended = false);
  void answer(const db::Control& control);
  void make_table(size_t t);
  double now_s() const;
  // Whether nobody has been there for so long to verify what a campaign that stops has found.
  bool left_alone(double patience_s);

  Publishing& shared_;
  Submission submission_;
  std::vector<ServiceTask> tasks_;
  std::optional<plan::CampaignPlan> plan_;
  std::map<std::string, Live> live_;        // by key
  std::map<db::Uuid, std::string> key_of_;  // of jobs
  std::map<db::Uuid, int64_t> begun_;       // attempt of jobs that the plan knows to be begun
  std::set<std::string> issued_;            // keys that the plan knows
  std::map<db::Uuid, bool> set_aside_;      // of machines, as it was told
  int64_t seen_ = 0;
  double consumed_s_ = 0;  // told since the last follow()
  bool paused_ = false, stopping_ = false;
  std::optional<double> alone_since_s_;  // of one that stops: since when it has no worker
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace nimble::tuner
