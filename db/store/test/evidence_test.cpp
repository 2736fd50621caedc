// Generated code, failures, ceilings, peers, counts; and retention.
#include <gmock/gmock.h>

#include "db/store/hash.h"
#include "db/store/test/fixture.h"
#include "db/store/test/fleet.h"

namespace nimble::db {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

std::vector<uint8_t> bytes_of(std::string_view text) {
  return {text.begin(), text.end()};
}

TEST_F(StoreTest, TwinsDriftAndRunsOfASampleAreKept) {
  auto store = open();
  World world(*store);
  const Uuid trial = world.tried(*store, 8, 64, 100);
  Measurement m = world.measured(*store, *store->trial(trial), 100);
  m.runs_per_sample = 32;
  m.drift = -0.01;
  m.twin_ns = {99, 101, 100.5};
  const Measurement read = store->measurement(store->add(m)).value();
  EXPECT_EQ(read.runs_per_sample, 32);
  EXPECT_EQ(read.drift, -0.01);
  EXPECT_EQ(read.twin_ns, m.twin_ns);
  m.twin_ns = {99, -1};
  EXPECT_EQ(error_of([&] { store->add(m); }).status(), Status::kInvalidArgument);
  m.twin_ns.clear();
  m.runs_per_sample = {};
  m.drift = {};
  const Measurement plain = store->measurement(store->add(m)).value();
  EXPECT_FALSE(plain.runs_per_sample);
  EXPECT_FALSE(plain.drift);
  EXPECT_THAT(plain.twin_ns, IsEmpty());
  EXPECT_TRUE(store->check().sound()) << testing::PrintToString(store->check().problems);
}

TEST_F(StoreTest, CodeIsFoundByItsHash) {
  auto store = open();
  const Digest ir = store->put_blob(bytes_of("for i in m")),
               text = store->put_blob(bytes_of("vmulps"));
  store->put(GeneratedCode{"c0de", "llvm-ir", ir});
  store->put(GeneratedCode{"c0de", "assembly", text});
  store->put(GeneratedCode{"c0de", "assembly", ir});
  const std::vector<GeneratedCode> all = store->generated_code("c0de");
  ASSERT_THAT(all, SizeIs(2));
  EXPECT_EQ(all[0].kind, "assembly");
  EXPECT_EQ(all[0].digest, text);
  EXPECT_THAT(store->generated_code("other"), IsEmpty());
}

TEST_F(StoreTest, AFailureIsReportedWithWhatTheProcessSaid) {
  auto store = open();
  Fleet fleet(*store);
  store->publish(fleet.job({1}, 64));
  const Job job = store->claim_job({fleet.worker("a")}).value();
  JobReport report = fleet.report(job, 100);
  const std::string output = std::string(100'000, 'x') + "Segmentation fault\n";
  report.results[1] = {
      report.results[1].trial, TrialState::kCrashed, "segfault", "signal 11", {}, {}};
  report.results[1].failure =
      FailureLog{"", "", 0, {}, "segfault", "signal 11", output, "nimble worker --run-case 1a2b"};
  EXPECT_EQ(store->report(report), ReportOutcome::kStored);
  EXPECT_EQ(store->report(report), ReportOutcome::kDuplicate);
  const std::vector<FailureLog> logs = store->failures(report.results[1].trial);
  ASSERT_THAT(logs, SizeIs(1));
  EXPECT_EQ(logs[0].worker, report.worker);
  EXPECT_EQ(logs[0].attempt, 1);
  EXPECT_EQ(logs[0].command, "nimble worker --run-case 1a2b");
  EXPECT_EQ(logs[0].output, output.substr(output.size() - (64 << 10))) << "the end of it";
}

TEST_F(StoreTest, ACostModelSaysWhatItWasLearnedFrom) {
  auto store = open();
  World world(*store);
  CostModel model{"", world.campaign, world.workload_hash, 3, {1, 2, 3}, 0.75};
  model.feature_version = 4;
  const CostModel read = store->cost_model(store->add(model)).value();
  EXPECT_EQ(read.round, 3);
  EXPECT_EQ(read.model, model.model);
  EXPECT_EQ(read.rank_correlation, 0.75);
  EXPECT_EQ(read.feature_version, 4);
  EXPECT_EQ(read.digest, digest_of(model.model));
  EXPECT_FALSE(store->cost_model(new_uuid()));
  EXPECT_TRUE(store->check().sound()) << testing::PrintToString(store->check().problems);
}

TEST_F(StoreTest, CeilingsVerdictsAndPeers) {
  auto store = open();
  World world(*store);
  store->add(Ceiling{"", world.machine, "f32", 2, "compute", 1e11});
  clock += 5;
  store->add(Ceiling{"", world.machine, "f32", 2, "compute", 2e11});
  store->add(Ceiling{"", world.machine, "", 1, "memory", 1.5e10});
  const std::vector<Ceiling> ceilings = store->ceilings(world.machine);
  ASSERT_THAT(ceilings, SizeIs(2));
  EXPECT_EQ(ceilings[0].value, 2e11) << "the newest";
  EXPECT_EQ(error_of([&] {
              store->add(Ceiling{"", world.machine, "f32", 2, "compute", 0});
            }).status(),
            Status::kInvalidArgument);

  EXPECT_EQ(store->verdict(world.machine), std::nullopt);
  const auto judge = [&](double apart, bool aside) {
    clock += 5;
    store->add(MachineVerdict{"", world.campaign, world.machine, 8, apart, 0.01, 1.5, aside});
  };
  judge(0.4, true);
  judge(0.02, false);
  ASSERT_THAT(store->verdicts(world.campaign), SizeIs(1));
  EXPECT_EQ(store->verdicts(world.campaign)[0].apart, 0.02) << "the newest";
  EXPECT_FALSE(store->verdict(world.machine)->set_aside);
  EXPECT_EQ(store->verdict(world.machine)->slowness, 1.5);

  PeerFigure figure;
  figure.run = new_uuid();
  figure.peer = "onnxruntime";
  figure.version = "1.31";
  figure.settings = R"({"threads": 2, "graph": "all"})";
  figure.machine = world.machine;
  figure.subject = "all-MiniLM-L6-v2";
  figure.dims = {{"n", 53}};
  figure.dtype = "f32";
  figure.threads = 2;
  figure.samples_ns = {5e6, 6e6, 7e6};
  figure.median_ns = 6e6;
  store->add(figure);
  const std::vector<PeerFigure> figures = store->peer_figures("all-MiniLM-L6-v2");
  ASSERT_THAT(figures, SizeIs(1));
  EXPECT_EQ(figures[0].settings, R"({"graph":"all","threads":2})");
  EXPECT_EQ(figures[0].samples_ns, figure.samples_ns);
  EXPECT_EQ(figures[0].dims, figure.dims);
  EXPECT_THAT(store->peer_run(figure.run), SizeIs(1));
  EXPECT_THAT(store->peer_run(new_uuid()), IsEmpty());
  figure.median_ns = 1;
  EXPECT_EQ(error_of([&] { store->add(figure); }).status(), Status::kInvalidArgument);
  // Of an experiment that kept no single times, and of another hour.
  figure.median_ns = 6e6;
  figure.samples_ns.clear();
  EXPECT_EQ(error_of([&] { store->add(figure); }).status(), Status::kInvalidArgument);
  figure.ci_low_ns = 5e6;
  EXPECT_EQ(error_of([&] { store->add(figure); }).status(), Status::kInvalidArgument);
  figure.ci_high_ns = 5.5e6;
  EXPECT_EQ(error_of([&] { store->add(figure); }).status(), Status::kInvalidArgument);
  figure.ci_high_ns = 7e6;
  figure.created_at = clock - 1000;
  figure.uuid = new_uuid();
  const Uuid first = std::exchange(figure.run, new_uuid());
  for (int i = 0; i < 2; ++i) EXPECT_EQ(store->add(figure), figure.uuid) << "once";
  const std::vector<PeerFigure> untimed = store->peer_run(figure.run);
  ASSERT_THAT(untimed, SizeIs(1));
  EXPECT_THAT(untimed[0].samples_ns, IsEmpty());
  EXPECT_EQ(untimed[0].ci_low_ns, 5e6);
  EXPECT_EQ(untimed[0].ci_high_ns, 7e6);
  const std::vector<PeerRun> runs = store->peer_runs();
  ASSERT_THAT(runs, SizeIs(2));
  EXPECT_EQ(runs[0].run, first) << "the one that was measured last";
  EXPECT_EQ(runs[1].created_at, clock - 1000);
  figure.uuid.clear();
  figure.created_at = clock + 2 * 24 * 3600 * 1000;
  EXPECT_EQ(error_of([&] { store->add(figure); }).status(), Status::kInvalidArgument);
  EXPECT_TRUE(store->check().sound()) << testing::PrintToString(store->check().problems);
}

class Retention {
 public:
  explicit Retention(Store& s) : store(s), world(s) {}
  Uuid measured(int tile, Role role = Role::kSearch) {
    const Uuid trial = world.tried(store, tile, 64, 100 + tile, role);
    return store.add(world.measured(store, *store.trial(trial), 100 + tile));
  }
  Store& store;
  World world;
};

TEST_F(StoreTest, RetentionKeepsSummariesAndWhatDecides) {
  auto store = open();
  Retention r(*store);
  const Uuid plain = r.measured(1), active = r.measured(2), by_config = r.measured(3),
             named = r.measured(4), baseline = r.measured(5, Role::kBaseline),
             draft = r.measured(6), named_by_retired = r.measured(7);
  NewDispatchTable old_table = r.world.draft(*store, 7);
  old_table.entries[0].evidence = named_by_retired;
  const Uuid retired = store->create_table(old_table);
  store->activate(retired, "first");
  NewDispatchTable table = r.world.draft(*store, 2);
  table.entries[0].evidence = active;
  store->activate(store->create_table(table), "tuned");
  store->create_table(r.world.draft(*store, 6));
  store->add(NewOverride{
      r.world.workload_hash, r.world.hardware_hash, {}, r.world.config(*store, 3), "latency"});
  Fleet fleet(*store);
  NewJob job = fleet.job({8}, 64);
  job.trials[1].candidate = store->put_blob(std::vector<uint8_t>(1000, 3));
  store->put(Candidate{job.trials[1].artifact, *job.trials[1].candidate, "x86-64-v4"});
  const Uuid job_uuid = store->publish(job);
  const Job claimed = store->claim_job({fleet.worker("a")}).value();

  clock += 1000;
  const Uuid young =
      store->add(r.world.measured(*store, *store->trial(store->measurement(named)->trial), 104));
  RetentionRequest request;
  request.older_than_ms = 500;
  request.reason = "disk";
  request.dry_run = true;
  const RetentionReport asked = store->remove_old(request);
  EXPECT_TRUE(store->measurement(plain)->samples_ns.size() == 3) << "it only asked";
  request.dry_run = false;
  const RetentionReport done = store->remove_old(request);
  EXPECT_EQ(asked.samples, done.samples);
  EXPECT_EQ(done.samples, 5) << "two of tile 1, two of tile 4, one of tile 7";
  EXPECT_EQ(done.blobs, 0) << "a worker holds the job";
  const Measurement gone = store->measurement(plain).value();
  EXPECT_THAT(gone.samples_ns, IsEmpty());
  EXPECT_EQ(gone.median_ns, 101);
  EXPECT_THAT(store->measurement(named)->samples_ns, IsEmpty());
  for (const Uuid& kept : {active, by_config, baseline, draft, named_by_retired, young})
    EXPECT_THAT(store->measurement(kept)->samples_ns, SizeIs(3));
  EXPECT_TRUE(store->check().sound()) << testing::PrintToString(store->check().problems);
  EXPECT_EQ(store->roll_back(store->active_in_slot(table).value(), "slow"), retired);

  // Once the job is over and old, its candidate's bytes go, and may come back.
  store->report(fleet.report(claimed, 100));
  clock += 1000;
  const RetentionReport later = store->remove_old(request);
  EXPECT_EQ(later.blobs, 1);
  EXPECT_EQ(later.jobs, 0) << "its campaign goes on, and is planned anew from it after a restart";
  EXPECT_TRUE(store->job(job_uuid));
  store->set_campaign_state(job.campaign, CampaignState::kFinished);
  EXPECT_EQ(store->remove_old(request).jobs, 1);
  EXPECT_FALSE(store->job(job_uuid));
  EXPECT_FALSE(store->has_blob(*job.trials[1].candidate));
  EXPECT_THAT(store->candidates(job.trials[1].artifact), SizeIs(1));
  EXPECT_TRUE(store->check().sound()) << testing::PrintToString(store->check().problems);
  EXPECT_EQ(store->put_blob(std::vector<uint8_t>(1000, 3)), *job.trials[1].candidate);
  EXPECT_TRUE(store->has_blob(*job.trials[1].candidate));
  request.reason = "";
  EXPECT_EQ(error_of([&] { store->remove_old(request); }).status(), Status::kInvalidArgument);
}

TEST_F(StoreTest, RetentionComesPastWhatStays) {
  auto store = open();
  Retention r(*store);
  // Far more than one call looks at are protected, and the oldest.
  for (int tile = 0; tile < 15; ++tile) r.measured(tile, Role::kBaseline);
  const Uuid plain = r.measured(20);
  const auto remove = [&](bool dry_run) {
    RetentionRequest request;
    request.older_than_ms = 500;
    request.reason = "disk";
    request.limit = 1;
    request.dry_run = dry_run;
    RetentionReport total;
    int calls = 0;
    for (bool more = true; more && calls < 100; ++calls) {
      const RetentionReport some = store->remove_old(request);
      total.samples += some.samples;
      total.kept += some.kept;
      more = some.more;
      request.from = some.next;
    }
    EXPECT_LT(calls, 10) << "what stays is met once";
    return total;
  };
  clock += 1000;
  EXPECT_EQ(remove(true).samples, 2);
  EXPECT_THAT(store->measurement(plain)->samples_ns, SizeIs(3)) << "it only asked";
  const RetentionReport total = remove(false);
  EXPECT_EQ(total.samples, 2);
  EXPECT_EQ(total.kept, 30) << "each trial has two measurements";
  EXPECT_THAT(store->measurement(plain)->samples_ns, IsEmpty());
}

TEST_F(StoreTest, WhatWentDoesNotComeBackWithAnImport) {
  auto store = open();
  Retention r(*store);
  const Uuid plain = r.measured(1);
  store->export_to(file("whole.nimbledb"));
  clock += 1000;
  ASSERT_EQ(store->remove_old({500, "disk"}).samples, 2);
  EXPECT_EQ(store->import_from(file("whole.nimbledb")).rows_added, 0);
  EXPECT_THAT(store->measurement(plain)->samples_ns, IsEmpty());
  // A third database that hears of both keeps what it has, and takes no samples that are gone.
  store->export_to(file("pruned.nimbledb"));
  auto third = open("third.db");
  third->import_from(file("pruned.nimbledb"));
  EXPECT_THAT(third->measurement(plain)->samples_ns, IsEmpty());
  EXPECT_TRUE(third->check().sound()) << testing::PrintToString(third->check().problems);
  EXPECT_EQ(third->import_from(file("whole.nimbledb")).rows_added, 0);
  auto fourth = open("fourth.db");
  fourth->import_from(file("whole.nimbledb"));
  fourth->import_from(file("pruned.nimbledb"));
  EXPECT_THAT(fourth->measurement(plain)->samples_ns, SizeIs(3)) << "importing removes nothing";
  EXPECT_TRUE(fourth->check().sound()) << testing::PrintToString(fourth->check().problems);
}

TEST_F(StoreTest, SamplesGoOnlyUnderATombstone) {
  auto store = open();
  Retention r(*store);
  r.measured(1);
  const auto raw = connection();
  EXPECT_EQ(error_of([&] { raw->script("DELETE FROM samples"); }).status(),
            Status::kInvalidArgument);
  EXPECT_EQ(raw->integer("SELECT count(*) FROM samples"), 2);
}

}  // namespace
}  // namespace nimble::db
