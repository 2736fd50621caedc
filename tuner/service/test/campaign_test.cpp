// Campaigns with candidates that go wrong, campaigns that go on, and what they tell.
#include "tuner/service/campaign.h"

#include <gmock/gmock.h>

#include "compiler/ir/infer.h"
#include "compiler/ir/text.h"
#include "compiler/passes/pipeline.h"
#include "db/store/host_records.h"
#include "db/store/test/all.h"
#include "tuner/measure/test/fault_executable.h"
#include "tuner/service/task_state.h"
#include "tuner/service/test/quick_campaign.h"
#include "vm/base/hash.h"

namespace nimble::tuner {
namespace {

using db::TrialState;

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

}  // namespace
}  // namespace nimble::tuner
