// Campaigns with candidates that go wrong, and campaigns that are killed.
#include "tuner/service/campaign.h"

#include <gmock/gmock.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <random>
#include <thread>

#include "compiler/ir/infer.h"
#include "compiler/ir/text.h"
#include "compiler/passes/pipeline.h"
#include "db/store/host_records.h"
#include "db/store/test/all.h"
#include "tuner/measure/test/fault_executable.h"
#include "tuner/service/task_state.h"
#include "tuner/service/test/quick_campaign.h"
#include "vm/base/error.h"
#include "vm/base/file.h"
#include "vm/base/hash.h"

namespace nimble::tuner {
namespace {

using db::TrialState;

class CampaignTest : public QuickCampaignTest {
 protected:
  std::vector<db::TrialOutcome> outcomes(const db::Uuid& campaign) {
    return db::Store::open(file("tuning.db"))->outcomes(campaign);
  }
};

// Hands out kernels that go wrong, by what the configuration's hash says.
class FaultyBackend : public CopyingBackend {
 public:
  Built build(const kernels::Workload&, const std::vector<tuned::Candidate>& candidates,
              const kernels::TargetInfo&) override {
    Built b;
    std::vector<std::string> names;
    for (const tuned::Candidate& c : candidates) {
      const uint64_t number = hash64(text_of(c));
      names.push_back(text_of(c) == good ? "test.copy" : kKernels[number % std::size(kKernels)]);
      if (names.back() == "uncompilable") b.error = "the compiler gave up";
      b.code_hashes.push_back(hex(number));
    }
    if (b.error.empty()) b.executable = fault_executable(names);
    b.compile_ms = 1;
    return b;
  }
  static constexpr const char* kKernels[] = {"test.copy", "test.crash",  "test.wrong",
                                             "test.hang", "test.exit",   "test.failing",
                                             "test.slow", "uncompilable"};
  std::string good;  // this one is fine in any case
};

TEST_F(CampaignTest, CandidatesThatGoWrongAreRecordedAndTheCampaignGoesOn) {
  CampaignOptions o = quick(kCopy);
  o.hang_ms = 1500;
  FaultyBackend backend;
  {
    const kernels::TargetInfo target = kernels::target_by_name("native");
    const ir::Module m = ir::infer_types(ir::read_module(o.model));
    passes::PassContext context;
    context.target = target;
    const auto tasks =
        tuning_tasks(passes::run_pipeline(m, context), model_points(m, {}), target, nullptr);
    ASSERT_EQ(tasks.size(), 1u);
    backend.good = text_of(Space(tasks[0].workload(), target).default_candidate());
  }
  const std::atomic<bool> never{false};
  const CampaignReport report = run_campaign(o, backend, never);
  EXPECT_FALSE(report.interrupted);
  ASSERT_EQ(report.tasks.size(), 1u);
  EXPECT_TRUE(report.tasks[0].table) << report.tasks[0].note;
  EXPECT_GT(report.tasks[0].failed, 0);
  std::map<std::string, std::set<TrialState>> states;  // by kernel
  for (const db::TrialOutcome& t : outcomes(report.campaign)) {
    if (t.trial.key.role != db::Role::kSearch) continue;
    const auto info = db::Store::open(file("tuning.db"))->config(t.trial.key.config);
    const tuned::Candidate c = candidate_of(info->template_name, info->json);
    const std::string kernel =
        text_of(c) == backend.good
            ? "test.copy"
            : FaultyBackend::kKernels[hash64(text_of(c)) % std::size(FaultyBackend::kKernels)];
    states[kernel].insert(t.trial.state);
    // What it said stands beside it.
    const auto store = db::Store::open(file("tuning.db"));
    const std::vector<db::FailureLog> logs = store->failures(t.trial.uuid);
    EXPECT_EQ(logs.empty(), t.trial.state == TrialState::kOk || !db::is_final(t.trial.state))
        << kernel;
    for (const db::FailureLog& log : logs) {
      EXPECT_EQ(log.error_class, t.trial.error_class);
      EXPECT_EQ(log.message, t.trial.message);
    }
  }
  const std::map<std::string, TrialState> due = {
      {"test.copy", TrialState::kOk},         {"test.slow", TrialState::kOk},
      {"test.crash", TrialState::kCrashed},   {"test.exit", TrialState::kCrashed},
      {"test.failing", TrialState::kCrashed}, {"test.wrong", TrialState::kWrong},
      {"test.hang", TrialState::kTimeout},    {"uncompilable", TrialState::kCompileFailed}};
  EXPECT_GE(states.size(), 4u);
  for (const auto& [kernel, seen] : states)
    EXPECT_EQ(seen, std::set<TrialState>{due.at(kernel)}) << kernel;
  // Nothing that went wrong is in the table.
  const db::DispatchTable table =
      *db::Store::open(file("tuning.db"))->table(*report.tasks[0].table);
  for (const db::DispatchEntry& e : table.entries) {
    const auto& info = table.configs.at(e.config);
    const tuned::Candidate c = candidate_of(info.template_name, info.json);
    if (text_of(c) == backend.good) continue;
    const std::string kernel =
        FaultyBackend::kKernels[hash64(text_of(c)) % std::size(FaultyBackend::kKernels)];
    EXPECT_TRUE(kernel == "test.copy" || kernel == "test.slow") << kernel;
  }
}

// A decoder's table of positions bounds how far it goes; the search's usual size is behind it.
TEST_F(CampaignTest, SizesThatTheWorkloadCannotMeetAreLeftOut) {
  CampaignOptions o = quick(R"(
fn @main(%table: Tensor[(40, 4), f32], %x: Tensor[(n, 4), f32]) -> Tensor[(n, 4), f32] {
  let %at = range() {start = 0, step = 1, count = n, dtype = i64};
  let %rows = gather(%table, %at) {axis = 0};
  let %y = add(%x, %rows);
  %y
})");
  o.worker = NIMBLE_WORKER;
  const std::atomic<bool> never{false};
  const CampaignReport report = run_campaign(o, *compiler_backend(), never);
  EXPECT_TRUE(report.skipped.empty()) << report.skipped[0];
  ASSERT_EQ(report.tasks.size(), 1u);
  EXPECT_TRUE(report.tasks[0].table) << report.tasks[0].note;
  const auto store = db::Store::open(file("tuning.db"));
  std::set<int64_t> sizes;
  for (const db::TrialOutcome& t : outcomes(report.campaign))
    sizes.insert(store->shape(t.trial.key.shape)->dims.begin()->second);
  ASSERT_FALSE(sizes.empty());
  EXPECT_EQ(*sizes.rbegin(), 37);
  EXPECT_EQ(*sizes.begin(), 1);
}

TEST_F(CampaignTest, AFinishedCampaignIsNotDoneAgain) {
  CampaignOptions o = quick(kCopy);
  o.worker = NIMBLE_WORKER;
  const auto backend = compiler_backend();
  const std::atomic<bool> never{false};
  const CampaignReport first = run_campaign(o, *backend, never);
  const size_t trials = outcomes(first.campaign).size();
  const CampaignReport second = run_campaign(o, *backend, never);
  EXPECT_TRUE(second.nothing_to_do);
  EXPECT_EQ(second.campaign, first.campaign);
  EXPECT_EQ(outcomes(first.campaign).size(), trials);
  // Nothing was searched now; what is told is what was found then.
  EXPECT_EQ(second.spending.candidates, 0);
  ASSERT_TRUE(first.tasks.at(0).table) << first.tasks[0].note;
  const TaskReport &then = first.tasks[0], &now = second.tasks.at(0);
  EXPECT_EQ(now.table, then.table);
  EXPECT_EQ(now.inactive, then.inactive);
  const auto of_kind = [&](auto kind) {
    const std::vector<db::TrialOutcome> all = outcomes(first.campaign);
    return std::count_if(all.begin(), all.end(),
                         [&](const db::TrialOutcome& t) { return kind(t.trial.state); });
  };
  EXPECT_GT(now.trials, 0);
  EXPECT_EQ(now.trials, of_kind([](TrialState s) { return db::is_final(s); }));
  EXPECT_EQ(now.failed,
            of_kind([](TrialState s) { return db::is_final(s) && s != TrialState::kOk; }));
  EXPECT_GT(now.best_ns, 0);
  EXPECT_DOUBLE_EQ(now.best_ns, then.best_ns);
  EXPECT_DOUBLE_EQ(now.default_ns, then.default_ns);
  EXPECT_DOUBLE_EQ(now.worst_regret, then.worst_regret);
  EXPECT_EQ(now.k, then.k);
  EXPECT_EQ(now.share, 1);
  o.seed = 9;
  EXPECT_NE(run_campaign(o, *backend, never).campaign, first.campaign);
}

// One that was killed when its time was over is not begun again only to find that there is none.
TEST_F(CampaignTest, ACampaignWhoseBudgetIsSpentTellsWhatIsStored) {
  CampaignOptions o = quick(kCopy);
  o.worker = NIMBLE_WORKER;
  const auto backend = compiler_backend();
  const std::atomic<bool> never{false};
  const CampaignReport first = run_campaign(o, *backend, never);
  const size_t trials = outcomes(first.campaign).size();
  {
    const auto store = db::Store::open(file("tuning.db"));
    const db::Task task = store->tasks(first.campaign).at(0);
    store->enter_phase(task.uuid, "cross", task.detail, task.share);
    store->set_campaign_state(first.campaign, db::CampaignState::kInterrupted);
    store->record_consumed(first.campaign, 2 * o.budget_s);
  }
  const CampaignReport second = run_campaign(o, *backend, never);
  EXPECT_TRUE(second.nothing_to_do);
  EXPECT_EQ(outcomes(first.campaign).size(), trials);
  EXPECT_EQ(second.tasks.at(0).table, first.tasks.at(0).table);
  EXPECT_GT(second.tasks[0].trials, 0);
  const auto store = db::Store::open(file("tuning.db"));
  EXPECT_EQ(store->campaign(first.campaign)->state, db::CampaignState::kFinished);
  // Who looks at the tasks learns where the campaign left them, and why nothing follows.
  const db::Task task = store->tasks(first.campaign).at(0);
  EXPECT_EQ(task.phase, "cross");
  const TaskState state = task_state_from_json(task.detail);
  EXPECT_THAT(state.note, testing::HasSubstr("the budget is spent"));
  EXPECT_EQ(state.trials, first.tasks[0].trials);
  EXPECT_EQ(task.share, 1);
}

// The times of a finished campaign are another hour's: whoever goes on measures anew, side by side.
TEST_F(CampaignTest, AnExtendedCampaignVerifiesItsFinalistsTogether) {
  CampaignOptions o = quick(
      "fn @main(%x: Tensor[(n, 96), f32]) -> Tensor[(n, 96), f32] {\n"
      "  let %y = softmax(%x) {axis = 1};\n  %y\n}\n");
  o.worker = NIMBLE_WORKER;
  o.budget_s = 4;
  const auto backend = compiler_backend();
  const std::atomic<bool> never{false};
  const CampaignReport first = run_campaign(o, *backend, never);
  o.budget_s = 8;
  const CampaignReport more = run_campaign(o, *backend, never);
  ASSERT_EQ(more.campaign, first.campaign);
  ASSERT_FALSE(more.nothing_to_do);
  ASSERT_TRUE(more.tasks.at(0).table) << more.tasks[0].note;
  EXPECT_NE(more.tasks[0].table, first.tasks.at(0).table);
  const auto store = db::Store::open(file("tuning.db"));
  const db::DispatchTable table = *store->table(*more.tasks[0].table);
  // At each size the newest times of all that the table uses are from the last process.
  int64_t began = 0;
  for (const db::DispatchTable& t : db::all_tables(*store))
    if (t.uuid == *first.tasks[0].table) began = t.created_at;
  ASSERT_GT(began, 0);
  for (const db::DispatchEntry& e : table.entries) {
    ASSERT_TRUE(e.evidence);
    EXPECT_GE(store->measurement(*e.evidence)->created_at, began);
    EXPECT_TRUE(e.regret.has_value());
  }
}

TEST_F(CampaignTest, ABudgetThatIsTooSmallToSearchSaysSo) {
  CampaignOptions o = quick(kCopy);
  o.worker = NIMBLE_WORKER;
  o.budget_s = 1;
  const std::atomic<bool> never{false};
  const CampaignReport report = run_campaign(o, *compiler_backend(), never);
  EXPECT_EQ(report.tasks.at(0).note, "default schedule kept: the budget ended");
  EXPECT_EQ(report.ended, "what is left to try takes longer than the time that is left");
}

TEST_F(CampaignTest, TellsWhereItsTimeWent) {
  CampaignOptions o = quick(kCopy);
  o.worker = NIMBLE_WORKER;
  const std::atomic<bool> never{false};
  const CampaignReport report = run_campaign(o, *compiler_backend(), never);
  const Spending& spending = report.spending;
  EXPECT_GT(spending.candidates, 0);
  EXPECT_EQ(spending.candidates, report.tasks.at(0).candidates);
  double sum = 0;
  for (const auto& [name, seconds] : spending.seconds) sum += seconds;
  EXPECT_NEAR(sum, spending.wall_s, 1e-3);  // read one after the other
  for (const char* activity : {"import", "compile", "time"})
    EXPECT_GT(spending.seconds.at(activity), 0) << activity;
  EXPECT_GT(spending.working_share(), 0);
  EXPECT_LE(spending.working_share(), 1);
  // Sizes that the choice did not see were tried.
  EXPECT_TRUE(report.tasks[0].held_out_regret) << report.tasks[0].note;
  EXPECT_TRUE(report.tasks[0].held_out_single_regret);
  EXPECT_GE(report.tasks[0].held_out_worst_regret, report.tasks[0].held_out_regret);
}

// As a fleet's: what watches campaigns need not know who tuned.
TEST_F(CampaignTest, WorkloadsAndTheirSharesAreListed) {
  const CampaignOptions o = quick(kCopy);
  const std::atomic<bool> never{false};
  const CampaignReport report = run_campaign(o, *compiler_backend(), never);
  ASSERT_EQ(report.tasks.size(), 1u);
  const auto store = db::Store::open(o.database);
  const std::vector<db::Task> tasks = store->tasks(report.campaign);
  ASSERT_EQ(tasks.size(), 1u);
  EXPECT_EQ(tasks[0].workload, report.tasks[0].workload);
  EXPECT_EQ(tasks[0].share, 1);
  EXPECT_EQ(tasks[0].phase, "done");
  EXPECT_GT(tasks[0].weights.size(), 1u);
  const auto detail = nlohmann::json::parse(tasks[0].detail);
  EXPECT_EQ(detail.at("trials"), report.tasks[0].trials);
  EXPECT_GT(detail.at("best_ratio"), 0);
  EXPECT_GT(detail.at("spent_s"), 0);
}

TEST_F(CampaignTest, ColdAndWarmTimesAreKeptApart) {
  CampaignOptions o = quick(kCopy);
  o.worker = NIMBLE_WORKER;
  const auto backend = compiler_backend();
  const std::atomic<bool> never{false};
  const CampaignReport warm = run_campaign(o, *backend, never);
  // The default ran against itself, and again at the end.
  EXPECT_TRUE(warm.tasks.at(0).noise);
  EXPECT_TRUE(warm.tasks.at(0).drift);
  o.policy_class = "cold";
  const CampaignReport cold = run_campaign(o, *backend, never);
  EXPECT_NE(cold.campaign, warm.campaign);
  EXPECT_TRUE(cold.tasks.at(0).table) << cold.tasks.at(0).note;
  auto store = db::Store::open(file("tuning.db"));
  const db::Hash hardware = db::key_of(db::host_hardware());
  const auto policies = store->policies(cold.tasks[0].workload, hardware);
  ASSERT_EQ(policies.size(), 2u);
  EXPECT_NE(policies[0].mode, policies[1].mode);
  for (const db::MeasurePolicy& p : policies) {
    db::ResultQuery q{cold.tasks[0].workload, hardware, db::key_of(p)};
    q.codegen_version = tuned::toolchain_record().codegen_version;
    const db::Uuid& campaign = p.mode == db::CacheMode::kCold ? cold.campaign : warm.campaign;
    const auto results = store->results(q);
    EXPECT_FALSE(results.empty());
    for (const db::Result& r : results) EXPECT_EQ(r.campaign, campaign);
  }
}

TEST_F(CampaignTest, AnInterruptLeavesATable) {
  CampaignOptions o = quick(kCopy);
  o.worker = NIMBLE_WORKER;
  o.budget_s = 60;
  std::atomic<bool> cancel{false};
  // Interrupts once the search has measured something.
  class Interrupting : public Backend {
   public:
    Interrupting(Backend& inner, std::atomic<bool>& cancel) : inner_(inner), cancel_(cancel) {}
    Built build(const kernels::Workload& w, const std::vector<tuned::Candidate>& c,
                const kernels::TargetInfo& t) override {
      if (++builds_ > 4) cancel_ = true;
      return inner_.build(w, c, t);
    }
    Expectation expect(const TuningTask& t, const WorkloadPoint& p, const tuned::Candidate& c,
                       const DefaultResult& run) override {
      // The second size belongs to the cross-evaluation.
      if (++expectations_ > 1) cancel_ = true;
      return inner_.expect(t, p, c, run);
    }

   private:
    Backend& inner_;
    std::atomic<bool>& cancel_;
    std::atomic<int> builds_{0}, expectations_{0};
  };
  const auto compiler = compiler_backend();
  Interrupting backend(*compiler, cancel);
  const CampaignReport report = run_campaign(o, backend, cancel);
  EXPECT_TRUE(report.interrupted);
  ASSERT_EQ(report.tasks.size(), 1u);
  EXPECT_TRUE(report.tasks[0].table) << report.tasks[0].note;
  auto store = db::Store::open(file("tuning.db"));
  EXPECT_EQ(store->campaign(report.campaign)->state, db::CampaignState::kInterrupted);
  // Without a time of the default schedule beside its own it takes nobody's place.
  const db::TableStatus status = store->table(*report.tasks[0].table)->status;
  EXPECT_EQ(status == db::TableStatus::kActive, report.tasks[0].inactive.empty());
  EXPECT_EQ(status == db::TableStatus::kActive,
            !store->comparisons(*report.tasks[0].table).empty());
  // The same command goes on to the end.
  cancel = false;
  const CampaignReport rest = run_campaign(o, *compiler, cancel);
  ASSERT_TRUE(rest.tasks.at(0).table);
  EXPECT_EQ(store->table(*rest.tasks[0].table)->status == db::TableStatus::kActive,
            rest.tasks[0].inactive.empty());
  EXPECT_EQ(rest.campaign, report.campaign);
  EXPECT_TRUE(rest.resumed);
  EXPECT_FALSE(rest.interrupted);
  EXPECT_GE(rest.consumed_s, report.consumed_s);
}

// A full disk is no workload's fault: it ends the campaign, which goes on once there is room.
TEST_F(CampaignTest, AnErrorOfTheDatabaseEndsTheCampaignUnfinished) {
  class Full : public Backend {
   public:
    Full(Backend& inner, std::string database, int from)
        : inner_(inner), database_(std::move(database)), from_(from) {}
    Built build(const kernels::Workload& w, const std::vector<tuned::Candidate>& c,
                const kernels::TargetInfo& t) override {
      return inner_.build(w, c, t);
    }
    Expectation expect(const TuningTask& t, const WorkloadPoint& p, const tuned::Candidate& c,
                       const DefaultResult& run) override {
      if (++expectations_ >= from_)
        throw Error(Status::kExhausted, database_, "the disk is full", "free some space");
      return inner_.expect(t, p, c, run);
    }

   private:
    Backend& inner_;
    std::string database_;
    int from_;
    std::atomic<int> expectations_{0};
  };
  CampaignOptions o = quick(kCopy);
  o.worker = NIMBLE_WORKER;
  o.budget_s = 20;
  const std::atomic<bool> never{false};
  const auto compiler = compiler_backend();
  // While the default schedules are measured, and in the cross-evaluation.
  for (const int from : {1, 2}) {
    Full backend(*compiler, o.database, from);
    try {
      run_campaign(o, backend, never);
      ADD_FAILURE() << "a full disk was no error from expectation " << from << " on";
    } catch (const Error& e) {
      EXPECT_THAT(e.what(), testing::HasSubstr("the disk is full")) << from;
    }
  }
  const CampaignReport report = run_campaign(o, *compiler, never);
  EXPECT_TRUE(report.resumed);
  EXPECT_FALSE(report.nothing_to_do);
  ASSERT_EQ(report.tasks.size(), 1u);
  EXPECT_TRUE(report.tasks[0].table) << report.tasks[0].note;
}

// A table takes another one's place by evidence alone.
TEST_F(CampaignTest, ATableThatIsDisplacedWasMeasuredBesideTheNewOne) {
  CampaignOptions o = quick(kCopy);
  o.worker = NIMBLE_WORKER;
  const auto compiler = compiler_backend();
  std::atomic<bool> cancel{false};
  const CampaignReport first = run_campaign(o, *compiler, cancel);
  ASSERT_TRUE(first.tasks.at(0).table) << first.tasks[0].note;
  auto store = db::Store::open(file("tuning.db"));
  // A campaign with time to spare makes several tables, each against the one before.
  const auto active = [&] {
    std::vector<db::DispatchTable> out;
    for (const db::DispatchTable& t : db::all_tables(*store))
      if (t.status == db::TableStatus::kActive) out.push_back(t);
    EXPECT_EQ(out.size(), 1u);
    return out.at(0);
  };
  const auto is_earned = [&](const db::DispatchTable& t) {
    const auto found = store->comparisons(t.uuid);
    ASSERT_EQ(found.size(), 1u);
    EXPECT_EQ(found[0].rival, t.parent) << "the default schedules, if it has none";
    EXPECT_LE(found[0].ratio, 1);
    EXPECT_GT(found[0].shapes, 1);
  };
  const db::DispatchTable old = active();
  is_earned(old);
  EXPECT_EQ(old.policy_class, "cached") << "a model without weights";

  // Interrupted in its search: no table of it takes the place.
  class Interrupting : public Backend {
   public:
    Interrupting(Backend& inner, std::atomic<bool>& cancel) : inner_(inner), cancel_(cancel) {}
    Built build(const kernels::Workload& w, const std::vector<tuned::Candidate>& c,
                const kernels::TargetInfo& t) override {
      if (++builds_ > 1) cancel_ = true;  // the first is the default
      return inner_.build(w, c, t);
    }
    Expectation expect(const TuningTask& t, const WorkloadPoint& p, const tuned::Candidate& c,
                       const DefaultResult& run) override {
      return inner_.expect(t, p, c, run);
    }

   private:
    Backend& inner_;
    std::atomic<bool>& cancel_;
    std::atomic<int> builds_{0};
  };
  o.seed = 9;
  o.budget_s = 60;
  Interrupting backend(*compiler, cancel);
  const CampaignReport cut = run_campaign(o, backend, cancel);
  EXPECT_TRUE(cut.interrupted);
  EXPECT_EQ(active().uuid, old.uuid);
  if (cut.tasks.at(0).table) {
    EXPECT_EQ(store->table(*cut.tasks[0].table)->status, db::TableStatus::kDraft);
    EXPECT_THAT(cut.tasks[0].inactive, testing::HasSubstr("is stored, not active: "));
  }

  // One that goes to its end was measured beside the active one, and is active if it was no slower.
  cancel = false;
  o.seed = 10;
  o.budget_s = 6;
  const CampaignReport second = run_campaign(o, *compiler, cancel);
  ASSERT_TRUE(second.tasks.at(0).table) << second.tasks[0].note;
  const db::DispatchTable now = active();
  EXPECT_EQ(now.uuid == *second.tasks[0].table, second.tasks[0].inactive.empty());
  db::DispatchTable t = now;
  for (; t.uuid != old.uuid; t = *store->table(*t.parent)) {
    is_earned(t);
    ASSERT_TRUE(t.parent) << "the old one is not among those that were displaced";
  }
  EXPECT_TRUE(store->check().sound());
}

// What a backend was asked for, across processes.
class CountingBackend : public Backend {
 public:
  CountingBackend(Backend& inner, std::atomic<bool>& cancel) : inner_(inner), cancel_(cancel) {}
  Built build(const kernels::Workload& w, const std::vector<tuned::Candidate>& candidates,
              const kernels::TargetInfo& t) override {
    Built b = inner_.build(w, candidates, t);
    const std::lock_guard lock(mutex_);
    for (const tuned::Candidate& c : candidates) ++builds[text_of(c)];
    return b;
  }
  Expectation expect(const TuningTask& t, const WorkloadPoint& p, const tuned::Candidate& c,
                     const DefaultResult& run) override {
    Expectation e = inner_.expect(t, p, c, run);
    const std::lock_guard lock(mutex_);
    ++expectations[p.symbols];
    if (static_cast<int>(expectations.size()) == cancel_at) cancel_ = true;
    return e;
  }
  std::map<std::string, int> builds;
  std::map<std::vector<int64_t>, int> expectations;
  int cancel_at = 0;  // sizes

 private:
  std::mutex mutex_;
  Backend& inner_;
  std::atomic<bool>& cancel_;
};

TEST_F(CampaignTest, AResumedCrossEvaluationCompilesNothingTwice) {
  CampaignOptions o = quick(kCopy);
  o.worker = NIMBLE_WORKER;
  o.budget_s = 20;
  std::atomic<bool> cancel{false};
  const auto compiler = compiler_backend();
  CountingBackend backend(*compiler, cancel);
  // The sizes come one by one in the cross-evaluation: stop at several of them.
  int stops = 0;
  CampaignReport report;
  do {
    cancel = false;
    backend.cancel_at = static_cast<int>(backend.expectations.size()) + 2;
    report = run_campaign(o, backend, cancel);
    stops += report.interrupted;
    const std::string folder = fmt::format("{}.{}.work", o.database, report.campaign.substr(0, 8));
    EXPECT_EQ(std::filesystem::exists(folder), report.interrupted);
  } while (report.interrupted && stops < 20);
  EXPECT_FALSE(report.interrupted);
  EXPECT_GE(stops, 2);
  EXPECT_GT(backend.builds.size(), 3u);
  for (const auto& [candidate, n] : backend.builds) EXPECT_EQ(n, 1) << candidate;
  // What was computed in the moment of the interrupt is lost, once for each stop.
  int repeated = 0;
  for (const auto& [size, n] : backend.expectations) repeated += n - 1;
  EXPECT_LE(repeated, stops);
}

// ---- kill -9

std::set<pid_t> workers_of(pid_t parent) {
  std::set<pid_t> out;
  const std::string flag = fmt::format("--parent={}", parent);
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    std::ifstream in(entry.path() / "cmdline");
    std::string text((std::istreambuf_iterator<char>(in)), {});
    if (text.find(flag) != std::string::npos) out.insert(std::stoi(name));
  }
  return out;
}

TEST_F(CampaignTest, SurvivesFiftyKills) {
  // A few reductions: more work than the test has time for, in small pieces.
  const std::string model =
      "fn @main(%x: Tensor[(n, 64), f32]) -> Tensor[(n, 64), f32] {\n"
      "  let %a = softmax(%x) {axis = 1};\n"
      "  let %b = l2_normalize(%a) {axis = 1, epsilon = 0.001};\n"
      "  let %d = log_softmax(%b) {axis = 1};\n"
      "  let %e = cumsum(%d) {axis = 1};\n  %e\n}\n";
  std::ofstream(file("model.nir")) << model;
  const std::string database = file("tuning.db"), path = file("model.nir");

  std::mt19937 random(11);
  std::uniform_int_distribution<int> delay_ms(150, 750);
  std::map<db::Uuid, std::pair<TrialState, int64_t>> finished;  // state and attempts
  std::map<db::Uuid, double> consumed;                          // by campaign
  constexpr int kKills = 50;
  int seed = 1;  // a campaign that comes to its end is followed by another
  for (int killed = 0, runs = 0; killed < kKills && runs < 2 * kKills; ++runs) {
    const std::string seed_text = std::to_string(seed);
    const pid_t tuner = ::fork();
    ASSERT_GE(tuner, 0);
    if (tuner == 0) {
      std::freopen("/dev/null", "w", stdout);
      ::execl(NIMBLE_TUNE, NIMBLE_TUNE, path.c_str(), "--db", database.c_str(), "--budget", "10m",
              "--threads", "1", "--quiet", "--seed", seed_text.c_str(),
              static_cast<char*>(nullptr));
      ::_exit(127);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(delay_ms(random)));
    ::kill(tuner, SIGKILL);
    int status = 0;
    ::waitpid(tuner, &status, 0);
    killed += WIFSIGNALED(status);
    if (WIFEXITED(status)) {
      EXPECT_EQ(WEXITSTATUS(status), 0);
      ++seed;
    }
    // The worker goes with it.
    bool alone = false;
    for (int wait = 0; wait < 300 && !alone; ++wait) {
      alone = workers_of(tuner).empty();
      if (!alone) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    EXPECT_TRUE(alone) << "a worker outlived its campaign";

    if (!std::filesystem::exists(database)) continue;  // killed before it was made
    auto store = db::Store::open(database);
    const auto all = db::all_campaigns(*store);
    EXPECT_LE(static_cast<int>(all.size()), seed) << "a resumed campaign became another one";
    std::set<db::Uuid> seen;
    for (const db::Campaign& c : all) {
      EXPECT_GE(c.consumed_s, consumed[c.uuid]);
      consumed[c.uuid] = c.consumed_s;
      for (const db::TrialOutcome& t : store->outcomes(c.uuid)) {
        EXPECT_TRUE(seen.insert(t.trial.uuid).second);
        if (!db::is_final(t.trial.state)) continue;
        const auto now = std::pair(t.trial.state, t.trial.attempt);
        const auto [it, fresh] = finished.emplace(t.trial.uuid, now);
        EXPECT_EQ(it->second, now) << "a finished trial was touched again";
      }
    }
    for (const auto& [uuid, state] : finished) EXPECT_TRUE(seen.contains(uuid));
    if (HasFailure()) break;
    ASSERT_LT(runs + 1, 2 * kKills) << "too few of the processes lived to be killed";
  }
  EXPECT_GT(finished.size(), 50u) << "no progress between the kills";
  auto store = db::Store::open(database);
  EXPECT_TRUE(store->check().sound());
  // One measurement each, however often the process died.
  std::map<db::Uuid, int> measurements;
  for (const db::Workload& w : db::all_workloads(*store))
    for (const db::MeasurePolicy& p :
         store->policies(db::key_of(w), db::key_of(db::host_hardware()))) {
      db::ResultQuery q{db::key_of(w), db::key_of(db::host_hardware()), db::key_of(p)};
      q.codegen_version = tuned::toolchain_record().codegen_version;
      for (const db::Result& r : store->results(q)) ++measurements[r.trial];
    }
  EXPECT_FALSE(measurements.empty());
  for (const auto& [trial, n] : measurements) EXPECT_EQ(n, 1);
}

TEST_F(CampaignTest, CtrlCEndsWith130AndTheBestIsStored) {
  std::ofstream(file("model.nir"))
      << "fn @main(%x: Tensor[(n, 256), f32]) -> Tensor[(n, 256), f32] {\n"
         "  let %y = softmax(%x) {axis = 1};\n  %y\n}\n";
  const std::string database = file("tuning.db"), path = file("model.nir");
  const pid_t tuner = ::fork();
  ASSERT_GE(tuner, 0);
  if (tuner == 0) {
    std::freopen("/dev/null", "w", stdout);
    ::execl(NIMBLE_TUNE, NIMBLE_TUNE, path.c_str(), "--db", database.c_str(), "--threads", "1",
            "--quiet", static_cast<char*>(nullptr));
    ::_exit(127);
  }
  // Once something has been measured in the search.
  bool measured = false;
  for (int i = 0; i < 1000 && !measured; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    if (!std::filesystem::exists(database)) continue;
    try {
      db::OpenOptions read;
      read.create = false;
      auto store = db::Store::open(database, read);
      for (const db::Campaign& c : db::all_campaigns(*store))
        for (const db::TrialOutcome& t : store->outcomes(c.uuid))
          measured |= t.trial.key.role == db::Role::kSearch && t.median_ns.has_value();
    } catch (const Error&) {
      // It is being made.
    }
  }
  ASSERT_TRUE(measured);
  ::kill(tuner, SIGINT);
  int status = 0;
  ::waitpid(tuner, &status, 0);
  ASSERT_TRUE(WIFEXITED(status));
  // It may have come to its end in that very moment.
  EXPECT_TRUE(WEXITSTATUS(status) == 130 || WEXITSTATUS(status) == 0) << WEXITSTATUS(status);
  EXPECT_FALSE(db::all_tables(*db::Store::open(database)).empty());
}

}  // namespace
}  // namespace nimble::tuner
