// Phases of one task, called one by one.
#include <gmock/gmock.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "compiler/ir/infer.h"
#include "compiler/ir/text.h"
#include "compiler/passes/pipeline.h"
#include "compiler/tuned/policy_class.h"
#include "db/store/host_records.h"
#include "tuner/service/task_run.h"
#include "vm/executable/reader.h"
#include "vm/executable/vendor_call.h"
#include "vm/executable/writer.h"

namespace nimble::tuner {
namespace {

class TaskTest : public testing::Test {
 protected:
  TaskTest() : target(kernels::target_by_name("native")), backend(compiler_backend()) {
    std::string pattern = (std::filesystem::temp_directory_path() / "nimble-task-XXXXXX").string();
    folder = mkdtemp(pattern.data());
    store = db::Store::open(folder + "/tuning.db");
    tasks =
        tasks_of("fn @main(%x: Tensor[(n), f32]) -> Tensor[(n), f32] { let %y = relu(%x); %y }");
    db::CampaignKey key;
    key.digest = "program";
    key.hardware = store->put(db::host_hardware());
    campaign = store->create_campaign(key, 600, "test");
    ProgressMeter::Options options;
    options.database = store->path();
    options.campaign = campaign;
    options.budget_s = 600;
    options.show = false;
    meter.emplace(options);
    RunnerOptions worker;
    worker.program = NIMBLE_WORKER;
    runner.emplace(worker);
    Policy policy = Policy::of_class("cached");
    policy.batch_ns = 10'000;
    policy.max_samples = 6;
    context.reset(new CampaignContext{*store, *backend, *runner, *meter, account, target, campaign,
                                      "owner", key.hardware, store->put(tuned::toolchain_record()),
                                      store->put(db::host_machine()), policy});
  }
  ~TaskTest() override {
    context.reset();
    runner.reset();
    meter.reset();
    store.reset();
    std::error_code ignored;
    std::filesystem::remove_all(folder, ignored);
  }

  std::vector<TuningTask> tasks_of(const std::string& program) const {
    const ir::Module typed = ir::infer_types(ir::parse_module(program));
    passes::PassContext passes;
    passes.target = target;
    return tuning_tasks(passes::run_pipeline(typed, passes), model_points(typed, {}), target,
                        nullptr);
  }

  const kernels::TargetInfo target;
  std::unique_ptr<Backend> backend;
  std::string folder;
  std::unique_ptr<db::Store> store;
  std::vector<TuningTask> tasks;
  db::Uuid campaign;
  std::optional<ProgressMeter> meter;
  std::optional<Runner> runner;
  Account account;
  std::unique_ptr<CampaignContext> context;
};

// The least of many noisy times says too much: not even the first table is believed on it.
TEST_F(TaskTest, WithoutAnActiveTableTheCrossEvaluationActivatesNoneEither) {
  ASSERT_EQ(tasks.size(), 1u);
  TaskRun task(*context, tasks[0], 1);
  ASSERT_GT(task.baseline(), 0);
  ASSERT_TRUE(task.search(meter->consumed_s() + 1));
  task.cross(10, meter->consumed_s() + 60);
  task.make_table(true);
  ASSERT_TRUE(task.report().table);
  EXPECT_THAT(task.report().inactive, testing::HasSubstr("verify it against the default schedule"));
  EXPECT_EQ(store->table(*task.report().table)->status, db::TableStatus::kDraft);

  // No time is no evidence.
  task.verify(meter->consumed_s());
  task.make_table(true);
  EXPECT_EQ(store->table(*task.report().table)->status, db::TableStatus::kDraft);
  EXPECT_TRUE(store->comparisons(*task.report().table).empty());

  task.verify(meter->consumed_s() + 60);
  task.make_table(true);
  const auto compared = store->comparisons(*task.report().table);
  ASSERT_EQ(compared.size(), 1u) << task.report().inactive;
  EXPECT_FALSE(compared[0].rival) << "the default schedules";
  EXPECT_EQ(store->table(*task.report().table)->status == db::TableStatus::kActive,
            compared[0].ratio <= 1);
}

TEST_F(TaskTest, TheWorkLeftIsOfAllPhasesAndComesToItsEnd) {
  TaskRun task(*context, tasks.at(0), 1);
  EXPECT_EQ(task.work_left_s(100), 0) << "nothing is known yet";
  ASSERT_GT(task.baseline(), 0);
  const double all = task.work_left_s(100);
  EXPECT_GT(all, 0);
  EXPECT_LT(task.work_left_s(1), all) << "fewer configurations are evaluated sooner";
  int told = 0;
  context->progressed = [&] {
    ++told;
    EXPECT_GT(task.work_left_s(100), 0);
  };
  while (!task.exhausted()) task.search(meter->consumed_s() + 60);
  EXPECT_GT(task.work_left_s(100), 0) << "the cross-evaluation and the verification are due";
  const int rounds = told;
  EXPECT_GT(rounds, 0);
  task.cross(100, meter->consumed_s() + 60);
  task.verify(meter->consumed_s() + 60);
  EXPECT_GT(told, rounds + static_cast<int>(tasks[0].points.size()));
  task.make_table(true);
  context->progressed = nullptr;
  EXPECT_EQ(task.work_left_s(100), 0);
}

// Candidates are told by what they took over the default beside them, also to a later process.
TEST_F(TaskTest, ASearchComparesWithinCases) {
  TaskRun task(*context, tasks.at(0), 1);
  const double opening = task.baseline();
  ASSERT_GT(opening, 0);
  task.search(meter->consumed_s() + 1);
  db::Uuid baseline;
  std::map<db::Uuid, double> defaults;  // by case
  const std::vector<db::TrialOutcome> outcomes = store->outcomes(campaign);
  for (const db::TrialOutcome& o : outcomes)
    if (o.trial.key.role == db::Role::kBaseline) {
      baseline = o.trial.uuid;
      for (const db::MeasurementSummary& m : store->measurements(baseline))
        defaults[m.measurement.host_state] = m.measurement.median_ns;
    }
  EXPECT_GT(defaults.size(), 1u) << "by itself, and in each case of the search";
  SearchTimes later;
  later.begin(*store, baseline, opening, outcomes);
  int found = 0;
  for (const db::TrialOutcome& o : outcomes) {
    if (o.trial.key.role != db::Role::kSearch || !o.median_ns) continue;
    const db::Measurement m = store->measurements(o.trial.uuid).at(0).measurement;
    ASSERT_TRUE(defaults.contains(m.host_state));
    EXPECT_DOUBLE_EQ(*later.ns(o), m.median_ns / defaults.at(m.host_state) * opening);
    ++found;
  }
  EXPECT_GT(found, 1);
}

// The sizes at which a campaign's search has trials, and of each configuration.
struct Searched {
  std::set<int64_t> sizes, baselines;
  std::map<db::Hash, std::set<int64_t>> of;
};
Searched searched_in(db::Store& store, const db::Uuid& campaign) {
  Searched out;
  for (const db::TrialOutcome& o : store.outcomes(campaign)) {
    const int64_t size = o.dims.begin()->second;
    if (o.trial.key.role == db::Role::kBaseline) out.baselines.insert(size);
    if (o.trial.key.role != db::Role::kSearch) continue;
    out.sizes.insert(size);
    out.of[o.trial.key.config].insert(size);
  }
  return out;
}

TEST_F(TaskTest, ASearchTimesEachCandidateAtAllOfItsSizes) {
  for (WorkloadPoint& p : tasks.at(0).points)
    p.representative = p.symbols[0] == 8 || p.symbols[0] == 256;
  context->search_end.max_trials = 20;
  TaskRun task(*context, tasks[0], 1);
  ASSERT_GT(task.baseline(), 0);
  ASSERT_TRUE(task.search(meter->consumed_s() + 600));
  const Searched found = searched_in(*store, campaign);
  EXPECT_EQ(found.sizes, (std::set<int64_t>{8, 256}));
  EXPECT_EQ(found.baselines, found.sizes) << "each candidate has a default beside it";
  EXPECT_GT(found.of.size(), 1u);
  for (const auto& [config, sizes] : found.of) EXPECT_EQ(sizes, found.sizes) << config;
  double shares = 0;
  std::set<int64_t> told;
  for (const auto& [shape, share] : task.report().searched_at) {
    told.insert(shape.begin()->second);
    shares += share;
  }
  EXPECT_EQ(told, found.sizes);
  EXPECT_NEAR(shares, 1, 1e-9);
  task.cross(4, meter->consumed_s() + 60);
  task.verify(meter->consumed_s() + 60);
  task.make_table(true);
  EXPECT_TRUE(task.report().table);
  EXPECT_TRUE(store->check().sound()) << testing::PrintToString(store->check().problems);
}

TEST_F(TaskTest, ASearchWithoutTimeForMoreRunsAtOneSize) {
  for (WorkloadPoint& p : tasks.at(0).points)
    p.representative = p.symbols[0] == 8 || p.symbols[0] == 256;
  const size_t first = representatives_of(tasks[0]).at(0).point;
  TaskRun task(*context, tasks[0], 1);
  ASSERT_GT(task.baseline(), 0);
  task.search(meter->consumed_s() + 0.001);
  const Searched found = searched_in(*store, campaign);
  EXPECT_EQ(found.sizes, (std::set<int64_t>{tasks[0].points[first].symbols[0]}));
  ASSERT_EQ(task.report().searched_at.size(), 1u);
  EXPECT_EQ(task.report().searched_at[0].second, 1);
}

TEST_F(TaskTest, RankCorrelationsAreToldByRoundAndKept) {
  tasks = tasks_of(
      "fn @main(%x: Tensor[(n, 32), f32], %w: Tensor[(32, 32), f32]) -> Tensor[(n, 32), f32] {\n"
      "  let %y = matmul(%x, %w);\n  %y\n}\n");
  ASSERT_EQ(tasks.size(), 1u);
  db::RankCorrelations before;
  {
    context->search_end.max_trials = 64;
    TaskRun task(*context, tasks.at(0), 1);
    ASSERT_GT(task.baseline(), 0);
    for (int slices = 0; !task.exhausted() && slices < 100; ++slices)
      task.search(meter->consumed_s() + 600);
    before = task.report().ranked;
    task.enter(plan::Phase::kDone);
  }
  ASSERT_FALSE(before.empty());
  for (const auto& [round, correlation] : before) EXPECT_LE(std::fabs(correlation), 1);
  EXPECT_TRUE(std::ranges::is_sorted(before));
  EXPECT_EQ(db::rank_correlations_of(store->tasks(campaign).at(0).detail), before);
  TaskRun later(*context, tasks.at(0), 1);
  EXPECT_EQ(later.report().ranked, before);
  later.enter(plan::Phase::kBaseline);
  EXPECT_EQ(db::rank_correlations_of(store->tasks(campaign).at(0).detail), before);
}

// The compiler's, of another machine as far as the vendor's library goes.
class VendorBackend : public Backend {
 public:
  Built build(const kernels::Workload& w, const std::vector<tuned::Candidate>& candidates,
              const kernels::TargetInfo& target) override {
    Built out = real_->build(w, candidates, target);
    const bool theirs = std::ranges::any_of(
        candidates, [](const tuned::Candidate& c) { return !c.vendor.empty(); });
    if (!theirs) return out;
    // What cannot be loaded takes what is beside it with it.
    EXPECT_EQ(candidates.size(), 1u);
    if (version.empty()) return out;
    exec::Executable e = exec::deserialize(out.executable, {}, "candidate");
    exec::Implementation& routine = e.kernels.at(0).implementations.at(0);
    exec::VendorCall call = exec::vendor_call_of(routine.config);
    call.library = version;
    routine.config = exec::to_json(call);
    out.executable = exec::serialize(e);
    return out;
  }
  Expectation expect(const TuningTask& task, const WorkloadPoint& point,
                     const tuned::Candidate& default_schedule, const DefaultResult& run) override {
    return real_->expect(task, point, default_schedule, run);
  }
  std::string why_no_vendor(const std::string& routine) const override {
    return missing.empty() ? real_->why_no_vendor(routine) : missing;
  }
  std::string version, missing;

 private:
  std::unique_ptr<Backend> real_ = compiler_backend();
};

class VendorTaskTest : public TaskTest {
 protected:
  VendorTaskTest() {
    auto own = std::make_unique<VendorBackend>();
    vendor = own.get();
    context.reset();
    backend = std::move(own);
    tasks = tasks_of(
        "fn @main(%x: Tensor[(n, 32), f32], %w: Tensor[(32, 48), f32]) -> Tensor[(n, 48), f32] {\n"
        "  let %y = matmul(%x, %w);\n  %y\n}\n");
    Policy policy = Policy::of_class("cached");
    policy.batch_ns = 10'000;
    policy.max_samples = 6;
    context.reset(new CampaignContext{*store, *backend, *runner, *meter, account, target, campaign,
                                      "owner", store->put(db::host_hardware()),
                                      store->put(tuned::toolchain_record()),
                                      store->put(db::host_machine()), policy});
  }
  // All phases; what is told at the end.
  TaskReport tune() {
    context->search_end.max_trials = 24;
    TaskRun task(*context, tasks.at(0), 1);
    EXPECT_GT(task.baseline(), 0);
    for (int slices = 0; !task.exhausted() && slices < 100; ++slices)
      task.search(meter->consumed_s() + 600);
    task.cross(8, meter->consumed_s() + 600);
    task.verify(meter->consumed_s() + 600);
    task.make_table(true);
    task.enter(plan::Phase::kDone);
    return task.report();
  }
  static bool is_vendors(const db::TrialOutcome& o) {
    return o.config_json.find("routine") != std::string::npos;
  }
  int trials_of_vendor() const {
    int n = 0;
    for (const db::TrialOutcome& o : store->outcomes(campaign)) n += is_vendors(o);
    return n;
  }
  VendorBackend* vendor = nullptr;
};

TEST_F(VendorTaskTest, TheDatabaseTellsWhatTheReportDoes) {
  if (const std::string why = vendor->why_no_vendor("onednn.matmul"); !why.empty())
    GTEST_SKIP() << why;
  const TaskReport report = tune();
  ASSERT_TRUE(report.vendor);
  EXPECT_EQ(report.no_vendor, "");
  EXPECT_GT(report.vendor->sizes, 1u);
  EXPECT_EQ(report.vendor->sizes, report.vendor->of);
  EXPECT_LE(report.vendor->wins, report.vendor->sizes);
  EXPECT_EQ(db::vendor_standing_of(store->tasks(campaign).at(0).detail), report.vendor);
}

// As after the library was upgraded: neither a failure, nor one of those beside it.
TEST_F(VendorTaskTest, AnotherVersionOfTheLibraryIsNoFailure) {
  if (const std::string why = vendor->why_no_vendor("onednn.matmul"); !why.empty())
    GTEST_SKIP() << why;
  vendor->version = "oneDNN 0.0.0";
  const TaskReport report = tune();
  EXPECT_EQ(report.failed, 0);
  EXPECT_GT(trials_of_vendor(), 0);
  ASSERT_TRUE(report.vendor);
  EXPECT_EQ(report.vendor->sizes, 0u);
  EXPECT_GT(report.vendor->of, 1u);
  EXPECT_EQ(report.vendor->failed, 0u);
  EXPECT_THAT(report.no_vendor, testing::HasSubstr("oneDNN 0.0.0"));
  for (const db::TrialOutcome& o : store->outcomes(campaign))
    if (!is_vendors(o)) {
      EXPECT_EQ(o.trial.state, db::TrialState::kOk) << o.trial.message;
    }
}

TEST_F(VendorTaskTest, WithoutTheLibraryItIsNoCandidate) {
  vendor->missing = "libdnnl.so.2 is not installed";
  const TaskReport report = tune();
  EXPECT_EQ(trials_of_vendor(), 0);
  EXPECT_FALSE(report.vendor);
  EXPECT_EQ(report.no_vendor, "libdnnl.so.2 is not installed");
  EXPECT_GT(report.best_ns, 0);
}

// Of a program that knew one size for all.
TEST_F(TaskTest, ACampaignThatSearchedAtOneSizeGoesOnThere) {
  int64_t size = 0;
  {
    size = tasks.at(0).points[tasks[0].representative()].symbols[0];
    context->search_end.max_trials = 2;
    TaskRun earlier(*context, tasks[0], 1);
    ASSERT_GT(earlier.baseline(), 0);
    earlier.search(meter->consumed_s() + 1);
  }
  const size_t before = searched_in(*store, campaign).of.size();
  for (WorkloadPoint& p : tasks[0].points)
    p.representative = p.symbols[0] == 8 || p.symbols[0] == 256;
  context->search_end = {1'000'000, 20};
  TaskRun later(*context, tasks[0], 1);
  ASSERT_GT(later.baseline(), 0);
  later.search(meter->consumed_s() + 600);
  const Searched found = searched_in(*store, campaign);
  EXPECT_EQ(found.sizes, (std::set<int64_t>{size}));
  EXPECT_GT(found.of.size(), before);
}

TEST_F(TaskTest, ASearchEndsWhenTrialsGainNothingOrAreEnough) {
  context->search_end = {1'000'000, 2};
  TaskRun task(*context, tasks.at(0), 1);
  ASSERT_GT(task.baseline(), 0);
  for (int slices = 0; !task.exhausted() && slices < 100; ++slices)
    task.search(meter->consumed_s() + 60);
  EXPECT_TRUE(task.exhausted());
  EXPECT_EQ(task.report().search_ended, "2 trials are the most");
  const size_t few = searched_in(*store, campaign).of.size();
  EXPECT_GE(few, 2u);

  // A later process knows what there was, and is told that it may go on.
  context->search_end = {3, 1'000'000};
  TaskRun later(*context, tasks.at(0), 1);
  ASSERT_GT(later.baseline(), 0);
  for (int slices = 0; !later.exhausted() && slices < 100; ++slices)
    later.search(meter->consumed_s() + 60);
  EXPECT_TRUE(later.exhausted());
  EXPECT_THAT(later.report().search_ended,
              testing::AnyOf("3 trials gained less than 1 %", kAllTried));
  EXPECT_GE(searched_in(*store, campaign).of.size(), few);
}

// Who looks into it later finds how it was measured and what the code is.
TEST_F(TaskTest, WhatATableRestsOnIsKept) {
  TaskRun task(*context, tasks.at(0), 1);
  ASSERT_GT(task.baseline(), 0);
  task.search(meter->consumed_s() + 1);
  task.cross(4, meter->consumed_s() + 60);
  task.verify(meter->consumed_s() + 60);
  task.make_table(true);
  ASSERT_TRUE(task.report().table);
  const std::vector<db::TwinRow> twins = store->twins(task.report().workload, context->hardware);
  EXPECT_FALSE(twins.empty()) << "the default ran beside itself";
  bool drifted = false;
  for (const db::TrialOutcome& o : store->outcomes(campaign))
    for (const db::MeasurementSummary& s : store->measurements(o.trial.uuid)) {
      EXPECT_GT(s.measurement.runs_per_sample.value_or(0), 0);
      drifted |= s.measurement.drift.has_value();
    }
  EXPECT_TRUE(drifted);
  for (const db::TwinRow& t : twins) EXPECT_EQ(store->trial(t.trial)->key.role, db::Role::kVerify);
  const db::DispatchTable table = *store->table(*task.report().table);
  for (const db::DispatchEntry& e : table.entries) {
    const std::vector<db::GeneratedCode> code = store->generated_code(e.code_hash);
    ASSERT_EQ(code.size(), 3u) << e.code_hash;
    const char* const kinds[] = {"assembly", "kernel-ir", "llvm-ir"};
    const char* const words[] = {"ret", "kernel", "define"};
    for (size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(code[i].kind, kinds[i]);
      const auto bytes = store->blob(code[i].digest);
      ASSERT_TRUE(bytes);
      EXPECT_THAT(std::string(bytes->begin(), bytes->end()), testing::HasSubstr(words[i]));
    }
  }
  EXPECT_TRUE(store->check().sound()) << testing::PrintToString(store->check().problems);
}

// The machine was faster an hour ago, or nobody else ran on it: what a table loses is told by times
// of one case.
TEST_F(TaskTest, TimesOfAnotherHourAreNoRegret) {
  TaskRun task(*context, tasks.at(0), 1);
  ASSERT_GT(task.baseline(), 0);
  task.search(meter->consumed_s() + 1);
  task.cross(4, meter->consumed_s() + 60);
  task.verify(meter->consumed_s() + 60);
  db::TrialKey key;
  db::Measurement fast;
  for (const db::TrialOutcome& o : store->outcomes(campaign))
    if (o.trial.key.role == db::Role::kSearch && o.median_ns) {
      key = o.trial.key;
      fast = *store->measurement(store->measurements(o.trial.uuid).at(0).measurement.uuid);
    }
  ASSERT_FALSE(fast.uuid.empty());
  key.role = db::Role::kBaseline;
  store->enqueue({{key, 0, 1e9, std::nullopt}});
  db::ClaimRequest request{campaign, "somebody"};
  request.role = db::Role::kBaseline;
  const std::vector<db::Trial> claimed = store->claim(request);
  ASSERT_EQ(claimed.size(), 1u);
  fast.uuid.clear();
  fast.trial = claimed[0].uuid;
  fast.samples_ns = {1e-3, 1e-3, 1e-3};
  fast.outliers.clear();
  fast.twin_ns.clear();
  fast.median_ns = fast.ci_low_ns = fast.ci_high_ns = 1e-3;
  ASSERT_TRUE(store->finish({claimed[0].uuid, "somebody", db::TrialState::kOk, "", "", fast}));
  task.make_table(true);
  ASSERT_TRUE(task.report().table);
  EXPECT_LT(task.report().worst_regret, 1000);
  const db::DispatchTable made = store->table(*task.report().table).value();
  for (const db::DispatchEntry& e : made.entries) EXPECT_LT(e.regret.value_or(0), 1000);
}

// That a campaign's task was finished is its phase's to tell, not a word in a table.
TEST_F(TaskTest, ATaskIsFinishedOnceItSaysSo) {
  {
    TaskRun task(*context, tasks.at(0), 1);
    EXPECT_FALSE(task.finished_before());
    ASSERT_GT(task.baseline(), 0);
    task.search(meter->consumed_s() + 1);
    task.cross(4, meter->consumed_s() + 60);
    task.make_table(true);
    ASSERT_TRUE(task.report().table);
  }
  TaskRun later(*context, tasks.at(0), 1);
  EXPECT_FALSE(later.finished_before()) << "it ended before its last step";
  later.enter(plan::Phase::kVerify);
  EXPECT_FALSE(later.finished_before());
  later.enter(plan::Phase::kDone);
  EXPECT_TRUE(later.finished_before());
  later.enter(plan::Phase::kSearch);
  EXPECT_TRUE(TaskRun(*context, tasks.at(0), 1).finished_before()) << "another slice was begun";
}

// A task knows its trials as the store does, though it asks for few of them.
TEST_F(TaskTest, ALaterProcessKnowsTheSameOfATasksTrials) {
  TaskRun task(*context, tasks.at(0), 1);
  ASSERT_GT(task.baseline(), 0);
  task.search(meter->consumed_s() + 1);
  task.cross(4, meter->consumed_s() + 60);
  const std::vector<db::TrialOutcome> stored = store->outcomes(campaign);
  const std::vector<db::TrialOutcome>& known = task.outcomes();
  ASSERT_EQ(known.size(), stored.size());
  std::map<db::Uuid, const db::TrialOutcome*> by_uuid;
  for (const db::TrialOutcome& o : known) by_uuid[o.trial.uuid] = &o;
  for (const db::TrialOutcome& o : stored) {
    ASSERT_TRUE(by_uuid.contains(o.trial.uuid));
    EXPECT_EQ(db::is_final(by_uuid[o.trial.uuid]->trial.state), db::is_final(o.trial.state));
    EXPECT_EQ(by_uuid[o.trial.uuid]->median_ns, o.median_ns);
  }
}

// Nothing is listed for a campaign that has no time left.
TEST_F(TaskTest, WithoutTimeNoCodeIsListed) {
  TaskRun task(*context, tasks.at(0), 1);
  ASSERT_GT(task.baseline(), 0);
  context->end_s = 0;
  task.make_table(true);
  ASSERT_TRUE(task.report().table);
  const db::DispatchTable made = store->table(*task.report().table).value();
  for (const db::DispatchEntry& e : made.entries)
    EXPECT_TRUE(store->generated_code(e.code_hash).empty());
}

}  // namespace
}  // namespace nimble::tuner
