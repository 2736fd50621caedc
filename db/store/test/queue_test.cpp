// Cases, jobs and their leases; workers and reports.
#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include "db/store/hash.h"
#include "db/store/test/fixture.h"
#include "db/store/test/fleet.h"

namespace nimble::db {
namespace {

using testing::HasSubstr;
using testing::SizeIs;

TEST_F(StoreTest, ATrialsKeyTellsHardwareAndPolicyApart) {
  auto store = open();
  World world(*store);
  const TrialKey plain = world.trial_key(*store, 8, 64);
  TrialKey other = plain, cold = plain;
  Hardware hardware = world.hardware;
  hardware.stepping = 9;
  other.hardware = store->put(hardware);
  cold.policy = store->put(MeasurePolicy{CacheMode::kCold, 3, 2, "rdtsc", "ci<1%", "cold"});
  EXPECT_EQ(store->enqueue({{plain}, {other}, {cold}, {other}}), 3);
  const Trial read = store->trial(uuid_of(other)).value();
  EXPECT_EQ(read.key.hardware, other.hardware);
  EXPECT_EQ(read.key.policy, std::nullopt);
  EXPECT_EQ(store->trial(uuid_of(cold))->key.policy, cold.policy);
  EXPECT_TRUE(store->check().sound()) << testing::PrintToString(store->check().problems);
}

TEST_F(StoreTest, AJobIsPublishedClaimedAndReportedOnce) {
  auto store = open();
  Fleet fleet(*store);
  const NewJob job = fleet.job({1, 2, 3}, 64);
  const Uuid uuid = store->publish(job);
  EXPECT_EQ(store->publish(job), uuid);
  EXPECT_EQ(store->open_jobs(fleet.world.campaign).queued, 1);
  const Uuid worker = fleet.worker("a");
  const Job claimed = store->claim_job({worker}).value();
  EXPECT_EQ(claimed.uuid, uuid);
  EXPECT_EQ(claimed.attempt, 1);
  EXPECT_EQ(claimed.worker, worker);
  EXPECT_EQ(claimed.lease_until, clock + 60'000);
  ASSERT_THAT(claimed.trials, SizeIs(4)) << "with the anchor";
  EXPECT_TRUE(claimed.trials[0].anchor);
  EXPECT_FALSE(store->claim_job({fleet.worker("b")}));
  EXPECT_THAT(store->claimed_jobs(), SizeIs(1));

  const JobReport report = fleet.report(claimed, 100);
  EXPECT_EQ(store->report(report), ReportOutcome::kStored);
  EXPECT_EQ(store->report(report), ReportOutcome::kDuplicate);
  EXPECT_EQ(store->job(uuid)->state, JobState::kDone);
  EXPECT_EQ(store->open_jobs(fleet.world.campaign).queued, 0);
  EXPECT_EQ(store->progress(fleet.world.campaign).ok, 4);
  const auto raw = connection();
  EXPECT_EQ(raw->integer("SELECT count(*) FROM measurement"), 4);
  EXPECT_EQ(raw->integer("SELECT count(DISTINCT host_state) FROM measurement"), 1);
  ASSERT_THAT(store->consumption(fleet.world.campaign), SizeIs(1));
  EXPECT_EQ(store->consumption(fleet.world.campaign)[0].consumed_s, report.consumed_s);
  EXPECT_EQ(store->publish(job), uuid) << "a finished job is not published again";
  EXPECT_FALSE(store->claim_job({worker}));

  // The anchor is measured again with the next case.
  const Uuid next = store->publish(fleet.job({4}, 64));
  const Uuid anchor = uuid_of(job.trials[0].trial.key), done = uuid_of(job.trials[1].trial.key);
  EXPECT_EQ(store->job_of(anchor)->uuid, next) << "the latest";
  EXPECT_EQ(store->job_of(done)->uuid, uuid);
  ASSERT_THAT(store->job_of(done)->trials, SizeIs(1));
  EXPECT_EQ(store->job_of(done)->trials[0].trial.uuid, done);
  EXPECT_FALSE(store->job_of(new_uuid()));
  const Job second = store->claim_job({worker}).value();
  EXPECT_EQ(second.uuid, next);
  EXPECT_EQ(store->report(fleet.report(second, 90)), ReportOutcome::kStored);
  EXPECT_EQ(raw->integer("SELECT count(*) FROM measurement"), 6);
  EXPECT_EQ(store->progress(fleet.world.campaign).ok, 5);
  EXPECT_TRUE(store->check().sound()) << testing::PrintToString(store->check().problems);
}

TEST_F(StoreTest, AJobsTrialsAreOfItsCase) {
  auto store = open();
  Fleet fleet(*store);
  NewJob job = fleet.job({1}, 64);
  job.trials.push_back(fleet.job({1}, 37).trials.back());
  EXPECT_EQ(error_of([&] { store->publish(job); }).status(), Status::kInvalidArgument);
  job.trials.clear();
  EXPECT_EQ(error_of([&] { store->publish(job); }).status(), Status::kInvalidArgument);
  job = fleet.job({1}, 64);
  job.measure_case = std::string(32, '0');
  EXPECT_EQ(error_of([&] { store->publish(job); }).status(), Status::kInvalidArgument);
  EXPECT_EQ(store->progress(fleet.world.campaign).trials, 0);
}

TEST_F(StoreTest, AJobGoesToItsHardwareAndMachine) {
  auto store = open();
  Fleet fleet(*store);
  Hardware other = fleet.world.hardware;
  other.isa = "x86-64-v3";
  NewJob bound = fleet.job({1}, 64);
  bound.machine = fleet.machine("b");
  store->publish(bound);
  NewJob elsewhere = fleet.job({2}, 64);
  elsewhere.hardware = store->put(other);
  store->publish(elsewhere);
  EXPECT_FALSE(store->claim_job({fleet.worker("a")}));
  EXPECT_EQ(store->claim_job({fleet.worker("b")})->uuid, uuid_of(bound));
  const Uuid machine = store->put(Machine{"", "old", elsewhere.hardware});
  EXPECT_EQ(store->claim_job({store->add(Worker{"", machine})})->uuid, uuid_of(elsewhere));
}

TEST_F(StoreTest, JobsComeByPriorityOfRunningCampaigns) {
  auto store = open();
  Fleet fleet(*store);
  const Uuid worker = fleet.worker("a");
  NewJob low = fleet.job({1}, 64), high = fleet.job({2}, 64);
  high.priority = 2;
  store->publish(low);
  store->publish(high);
  store->set_campaign_state(fleet.world.campaign, CampaignState::kPaused);
  EXPECT_FALSE(store->claim_job({worker}));
  EXPECT_FALSE(store->claim_job({worker, fleet.world.campaign}));
  store->set_campaign_state(fleet.world.campaign, CampaignState::kRunning);
  EXPECT_EQ(store->claim_job({worker})->uuid, uuid_of(high));
  EXPECT_EQ(store->claim_job({worker, fleet.world.campaign})->uuid, uuid_of(low));
}

TEST_F(StoreTest, CampaignsShareWorkersFairly) {
  auto store = open();
  Fleet fleet(*store);
  std::map<Uuid, int> served;
  std::vector<Uuid> campaigns = {fleet.world.campaign};
  for (int seed = 20; seed < 22; ++seed) {
    CampaignKey key = fleet.world.key;
    key.seed = seed;
    campaigns.push_back(store->create_campaign(key, 100, "nimble tune"));
  }
  for (const Uuid& campaign : campaigns) {
    fleet.world.campaign = campaign;
    for (int tile = 0; tile < 8; ++tile) store->publish(fleet.job({tile}, 64));
  }
  // Two long jobs of the first one do not keep the others waiting.
  for (int i = 0; i < 12; ++i) {
    clock += 10;
    const Job job = store->claim_job({fleet.worker("w" + std::to_string(i))}).value();
    ++served[job.campaign];
  }
  for (const Uuid& campaign : campaigns) EXPECT_EQ(served[campaign], 4);
}

TEST_F(StoreTest, ALeaseIsRenewedByHeartbeats) {
  auto store = open();
  Fleet fleet(*store);
  store->publish(fleet.job({1}, 64));
  const Uuid worker = fleet.worker("a"), other = fleet.worker("b");
  const Job job = store->claim_job({worker, {}, 1000}).value();
  const Heartbeat beat{worker, WorkerState::kMeasuring, job.uuid, 0.5, "softmax"};
  for (int i = 0; i < 5; ++i) {
    clock += 900;
    EXPECT_TRUE(store->heartbeat(beat, job.attempt, 1000));
    EXPECT_FALSE(store->claim_job({other, {}, 1000}));
  }
  const std::vector<LiveWorker> live = store->live_workers(10'000);
  ASSERT_THAT(live, SizeIs(2));
  EXPECT_EQ(live[0].heartbeat->state, WorkerState::kMeasuring);
  EXPECT_EQ(live[0].heartbeat->job, job.uuid);
  EXPECT_EQ(live[0].heartbeat->message, "softmax");
  EXPECT_EQ(live[0].hostname, "a");
  EXPECT_FALSE(live[1].heartbeat);
  EXPECT_FALSE(store->heartbeat(beat, job.attempt + 1, 1000)) << "another lease of the same job";
  EXPECT_EQ(store->cancel_jobs(fleet.world.campaign), 1);
  EXPECT_FALSE(store->heartbeat(beat, job.attempt, 1000)) << "it was cancelled";
  EXPECT_TRUE(store->heartbeat({worker, WorkerState::kIdle}));
  EXPECT_TRUE(store->heartbeat({worker, WorkerState::kStopped}));
  EXPECT_THAT(store->live_workers(10'000), SizeIs(1));
  EXPECT_EQ(error_of([&] { store->heartbeat({new_uuid()}); }).status(), Status::kNotFound);
}

TEST_F(StoreTest, AReleasedJobIsClaimedAgainAndCountsAsNoLoss) {
  auto store = open();
  Fleet fleet(*store);
  store->publish(fleet.job({1}, 64));
  const Uuid worker = fleet.worker("a");
  for (int i = 0; i < 20; ++i) {
    const Job job = store->claim_job({worker}).value();
    EXPECT_EQ(job.lost, 0);
    if (i % 2 == 0) {
      EXPECT_FALSE(store->release_job(job.uuid, worker, job.attempt + 1));
      EXPECT_TRUE(store->release_job(job.uuid, worker, job.attempt));
    } else {
      EXPECT_EQ(store->release_jobs(worker), 1);
    }
  }
}

// The machine may have been to blame, or one of several candidates: the rest goes elsewhere in
// halves until a trial stands alone.
TEST_F(StoreTest, AnExpiredJobIsSplitAndTriedElsewhere) {
  auto store = open();
  Fleet fleet(*store);
  store->publish(fleet.job({1, 2, 3}, 64));
  const Uuid a = fleet.worker("a"), b = fleet.worker("b");
  store->heartbeat({b});
  const Job whole = store->claim_job({a, {}, 1000}).value();
  clock += 1000;
  EXPECT_FALSE(store->claim_job({a, {}, 1000})) << "b is alive, and has not tried it";
  EXPECT_EQ(store->job(whole.uuid)->state, JobState::kSplit);
  const Job first = store->claim_job({b, {}, 1000}).value();
  const Job second = store->claim_job({b, {}, 1000}).value();
  EXPECT_EQ(first.parent, whole.uuid);
  EXPECT_EQ(first.avoid, fleet.machine("a"));
  EXPECT_THAT(first.trials, SizeIs(3)) << "two and the anchor";
  EXPECT_THAT(second.trials, SizeIs(2));
  EXPECT_EQ(store->progress(fleet.world.campaign).failed, 0);
  // b goes silent too. When it is no longer heard of, a may have them again.
  clock += 200'000;
  for (int i = 0; i < 3; ++i) {
    const Job part = store->claim_job({a, {}, 1000}).value();
    EXPECT_THAT(part.trials, SizeIs(2));
    EXPECT_EQ(store->report(fleet.report(part, 100)), ReportOutcome::kStored);
  }
  EXPECT_FALSE(store->claim_job({a, {}, 1000}));
  EXPECT_EQ(store->progress(fleet.world.campaign).ok, 4);
  EXPECT_EQ(store->progress(fleet.world.campaign).queued, 0);
}

// Finalists are compared anew, side by side, whatever is known of them.
TEST_F(StoreTest, AJobOfAnchorsAloneIsMeasuredOnceAndNeverSplit) {
  auto store = open();
  Fleet fleet(*store);
  NewJob job = fleet.job({1, 2}, 64);
  for (NewJobTrial& t : job.trials) t.anchor = true;
  store->publish(fleet.job({1, 2}, 64));
  const Uuid a = fleet.worker("a");
  store->report(fleet.report(store->claim_job({a}).value(), 100));
  const Uuid uuid = store->publish(job);
  JobRequest request{a, {}, 1000};
  request.max_losses = 2;
  const Job lost = store->claim_job(request).value();
  EXPECT_EQ(lost.uuid, uuid);
  clock += 1000;
  const Job again = store->claim_job(request).value();
  EXPECT_EQ(again.uuid, uuid);
  EXPECT_EQ(again.lost, 1);
  EXPECT_THAT(again.trials, SizeIs(3));
  JobReport report = fleet.report(again, 90);
  report.results.resize(2);
  EXPECT_EQ(store->report(report), ReportOutcome::kStored);
  EXPECT_EQ(store->job(uuid)->state, JobState::kDone);
  EXPECT_FALSE(store->claim_job(request));

  // One that takes down whoever has it ends without a verdict.
  job.limits = R"({"case_s":1})";
  const Uuid bad = store->publish(job);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(store->claim_job(request)->uuid, bad);
    clock += 1000;
  }
  EXPECT_FALSE(store->claim_job(request));
  EXPECT_EQ(store->job(bad)->state, JobState::kDone);
  EXPECT_EQ(store->progress(fleet.world.campaign).failed, 0);
}

TEST_F(StoreTest, AReportIsReadAsItWasTold) {
  auto store = open();
  Fleet fleet(*store);
  store->publish(fleet.job({1, 2}, 64));
  const Uuid a = fleet.worker("a");
  const Job job = store->claim_job({a}).value();
  JobReport report = fleet.report(job, 100);
  report.results[2].state = TrialState::kCrashed;
  report.results[2].error_class = "SIGSEGV";
  report.results[2].measurement.reset();
  report.results[2].correctness.reset();
  store->report(report);
  EXPECT_FALSE(store->stored_report(job.uuid));
  const StoredReport read = store->stored_report(report.uuid).value();
  EXPECT_EQ(read.job, job.uuid);
  EXPECT_EQ(read.worker, a);
  EXPECT_EQ(read.machine, fleet.machine("a"));
  EXPECT_EQ(read.hardware, fleet.world.hardware_hash);
  EXPECT_EQ(read.consumed_s, report.consumed_s);
  EXPECT_FALSE(read.late);
  ASSERT_THAT(read.results, SizeIs(3));
  std::map<Uuid, std::optional<double>> times;
  for (const StoredReport::Result& r : read.results) {
    times[r.trial] = r.median_ns;
    EXPECT_EQ(r.config, store->trial(r.trial)->key.config);
  }
  EXPECT_EQ(times.at(job.trials[0].trial.uuid), 100);
  EXPECT_EQ(times.at(job.trials[1].trial.uuid), 100);
  EXPECT_EQ(times.at(job.trials[2].trial.uuid), std::nullopt);
  // Of the next report the failure is no part.
  store->publish(fleet.job({3}, 64));
  const Job next = store->claim_job({a}).value();
  const JobReport second = fleet.report(next, 90);
  store->report(second);
  EXPECT_THAT(store->stored_report(second.uuid)->results, SizeIs(2));
}

class JumpTest : public FileTest {};

TEST_F(JumpTest, WhoHoldsALeaseKeepsItThoughTheClockIsSetForward) {
  int64_t elapsed = 5;
  options.elapsed_ms = [&] { return elapsed; };
  auto store = open();
  Fleet fleet(*store);
  store->publish(fleet.job({1}, 64));
  const Uuid holder = fleet.worker("a"), other = fleet.worker("b");
  const Job job = store->claim_job({holder, {}, 1000}).value();
  clock += 3'600'000;
  elapsed += 10;
  EXPECT_FALSE(store->claim_job({other, {}, 1000}));
  elapsed += 200;
  clock += 200;
  EXPECT_TRUE(store->heartbeat({holder, WorkerState::kMeasuring, job.uuid}, job.attempt, 1000));
  elapsed += 900;
  clock += 900;
  EXPECT_FALSE(store->claim_job({other, {}, 1000}));
  // One that is dead loses it, that much later.
  elapsed += 100;
  clock += 100;
  EXPECT_EQ(store->claim_job({other, {}, 1000})->uuid, job.uuid);
  EXPECT_FALSE(store->heartbeat({holder, WorkerState::kMeasuring, job.uuid}, job.attempt, 1000));
}

TEST_F(JumpTest, AClockThatIsSetBackKeepsLeases) {
  int64_t elapsed = 5;
  options.elapsed_ms = [&] { return elapsed; };
  auto store = open();
  Fleet fleet(*store);
  store->publish(fleet.job({1}, 64));
  const Uuid holder = fleet.worker("a"), other = fleet.worker("b");
  const Job job = store->claim_job({holder, {}, 1000}).value();
  clock -= 500'000;
  elapsed += 900;
  EXPECT_FALSE(store->claim_job({other, {}, 1000}));
  EXPECT_TRUE(store->heartbeat({holder, WorkerState::kMeasuring, job.uuid}, job.attempt, 1000));
  // From then on it is by the new clock, which goes on as time does.
  clock += 1000;
  elapsed += 1000;
  EXPECT_EQ(store->claim_job({other, {}, 1000})->uuid, job.uuid);
}

TEST_F(StoreTest, ATrialThatTakesItsWorkerDownAloneEndsAsCrashed) {
  auto store = open();
  Fleet fleet(*store);
  store->publish(fleet.job({1}, 64));
  const Uuid worker = fleet.worker("a");
  JobRequest request{worker, {}, 1000};
  request.max_losses = 3;
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(store->claim_job(request)->lost, i);
    clock += 1000;
  }
  EXPECT_FALSE(store->claim_job(request));
  const Trial t = store->trial(uuid_of(fleet.job({1}, 64).trials[1].trial.key)).value();
  EXPECT_EQ(t.state, TrialState::kCrashed);
  EXPECT_EQ(t.error_class, "lease-expired");
  EXPECT_EQ(store->progress(fleet.world.campaign).failed, 1);
}

// Whoever may claim and tell that it lives may write any number: one never ends, and the other
// must not end others.
TEST_F(StoreTest, NumbersThatCannotBeStopNobody) {
  auto store = open();
  Fleet fleet(*store);
  const Uuid uuid = store->publish(fleet.job({1}, 64));
  const Uuid a = fleet.worker("a"), b = fleet.worker("b");
  store->heartbeat({b});
  connection()->script("UPDATE heartbeat SET at = 9223372036854775807");
  connection()->run("UPDATE job SET avoid = ? WHERE uuid = ?", fleet.machine("a"), uuid);
  EXPECT_THAT(store->live_workers(10'000), SizeIs(1)) << "the one that has only just begun";
  const JobRequest request{a, {}, 1000};
  ASSERT_TRUE(store->claim_job(request)) << "nobody else is there";
  connection()->script("UPDATE job SET lost = 9223372036854775807");
  clock += 1000;
  EXPECT_FALSE(store->claim_job(request));
  EXPECT_EQ(store->job(uuid)->state, JobState::kDone);
}

// A machine that goes down by itself, with whatever it has at hand.
TEST_F(StoreTest, ATrialIsNotBlamedForOneMachineWhileAnotherIsAlive) {
  auto store = open();
  Fleet fleet(*store);
  store->publish(fleet.job({1}, 64));
  const Uuid a = fleet.worker("a"), b = fleet.worker("b");
  JobRequest request{a, {}, 1000};
  request.max_losses = 2;
  Job job = store->claim_job(request).value();  // b is not heard of yet
  for (int i = 0; i < 4; ++i) {
    store->heartbeat({b});
    clock += 1000;
    EXPECT_FALSE(store->claim_job(request)) << "b is alive: it is b's turn";
    job = store->job(job.uuid).value();
    EXPECT_EQ(job.state, JobState::kQueued);
    EXPECT_EQ(job.lost, 1) << "the first time, and no more";
    clock += 200'000;  // b goes silent for a while, and a has it again
    EXPECT_EQ(store->claim_job(request)->uuid, job.uuid);
  }
  // Where b loses it, too, there is something about it.
  clock += 1000;
  store->heartbeat({b});
  EXPECT_FALSE(store->claim_job(request));
  request.worker = b;
  EXPECT_EQ(store->claim_job(request)->lost, 1);
  clock += 1000;
  store->heartbeat({a});
  request.worker = a;
  EXPECT_FALSE(store->claim_job(request));
  EXPECT_EQ(store->job(job.uuid)->state, JobState::kDone);
  EXPECT_EQ(store->progress(fleet.world.campaign).failed, 1);
}

TEST_F(StoreTest, AWorkerThatLivedOnSaysNothingAboutItsCandidate) {
  auto store = open();
  Fleet fleet(*store);
  store->publish(fleet.job({1}, 64));
  const Uuid worker = fleet.worker("a");
  JobRequest request{worker, {}, 1000};
  request.max_losses = 2;
  for (int i = 0; i < 5; ++i) {
    const Job job = store->claim_job(request).value();
    EXPECT_EQ(job.lost, 0);
    clock += 1000;
    EXPECT_TRUE(store->heartbeat({worker})) << "late, but it speaks";
  }
  EXPECT_EQ(store->progress(fleet.world.campaign).failed, 0);
}

TEST_F(StoreTest, CampaignsThatAWorkerLeavesOutAreServedByOthers) {
  auto store = open();
  Fleet fleet(*store);
  const Uuid first = fleet.world.campaign;
  store->publish(fleet.job({1}, 64));
  CampaignKey key = fleet.world.key;
  key.seed = 8;
  fleet.world.campaign = store->create_campaign(key, 300, "nimble tune m");
  store->publish(fleet.job({1}, 64));
  const Uuid worker = fleet.worker("a");
  JobRequest request{worker, {}, 1000};
  request.leave_out = {first, fleet.world.campaign};
  EXPECT_FALSE(store->claim_job(request));
  request.campaign = first;
  EXPECT_FALSE(store->claim_job(request)) << "though it asks for it";
  request.campaign.reset();
  request.leave_out = {first};
  EXPECT_EQ(store->claim_job(request)->campaign, fleet.world.campaign);
  EXPECT_FALSE(store->claim_job(request));
  request.leave_out.clear();
  EXPECT_EQ(store->claim_job(request)->campaign, first);
}

// A worker that stalled beyond its lease and then reports.
TEST_F(StoreTest, ALateReportIsNeitherLostNorCountedTwice) {
  auto store = open();
  Fleet fleet(*store);
  store->publish(fleet.job({1}, 64));
  const Uuid slow = fleet.worker("slow"), quick = fleet.worker("quick");
  const Job stalled = store->claim_job({slow, {}, 1000}).value();
  clock += 1000;
  const Job again = store->claim_job({quick, {}, 1000}).value();
  EXPECT_EQ(again.uuid, stalled.uuid);
  EXPECT_EQ(again.attempt, 2);
  const Uuid trial = again.trials[1].trial.uuid;

  // Its crash says nothing: the other one still tries.
  JobReport crashed = fleet.report(stalled, 100);
  for (TrialReport& r : crashed.results)
    r = {r.trial, TrialState::kCrashed, "segfault", "", {}, {}};
  EXPECT_EQ(store->report(crashed), ReportOutcome::kLate);
  EXPECT_EQ(store->trial(trial)->state, TrialState::kQueued);
  EXPECT_TRUE(store->heartbeat({quick, WorkerState::kMeasuring, again.uuid}, again.attempt, 1000));

  // Its times count, and the other's are kept beside them.
  EXPECT_EQ(store->report(fleet.report(stalled, 100)), ReportOutcome::kLate);
  EXPECT_EQ(store->trial(trial)->state, TrialState::kOk);
  EXPECT_EQ(store->report(fleet.report(again, 110)), ReportOutcome::kStored);
  EXPECT_EQ(store->job(again.uuid)->state, JobState::kDone);
  const CampaignProgress progress = store->progress(fleet.world.campaign);
  EXPECT_EQ(progress.ok, 2);
  EXPECT_EQ(progress.trials, 2);
  EXPECT_EQ(connection()->integer("SELECT count(*) FROM measurement"), 4);
  EXPECT_EQ(store->consumption(fleet.world.campaign).size(), 2u) << "both machines worked";
  EXPECT_TRUE(store->check().sound()) << testing::PrintToString(store->check().problems);
}

TEST_F(StoreTest, AJobWhoseTrialsALateReportFinishedIsDone) {
  auto store = open();
  Fleet fleet(*store);
  store->publish(fleet.job({1, 2}, 64));
  const Uuid worker = fleet.worker("a");
  const Job stalled = store->claim_job({worker, {}, 1000}).value();
  clock += 1000;
  const Job half = store->claim_job({worker, {}, 1000}).value();
  EXPECT_EQ(store->report(fleet.report(stalled, 100)), ReportOutcome::kLate);
  EXPECT_TRUE(store->release_job(half.uuid, worker, half.attempt));
  EXPECT_FALSE(store->claim_job({worker, {}, 1000})) << "both halves are measured";
  EXPECT_EQ(store->open_jobs(fleet.world.campaign).queued, 0);
}

TEST_F(StoreTest, WhatAReportLeavesOutGoesBackIntoTheQueue) {
  auto store = open();
  Fleet fleet(*store);
  store->publish(fleet.job({1, 2, 3}, 64));
  const Uuid worker = fleet.worker("a");
  const Job job = store->claim_job({worker}).value();
  JobReport part = fleet.report(job, 100);
  part.results.resize(2);  // the anchor and one
  part.last = false;
  EXPECT_EQ(store->report(part), ReportOutcome::kStored);
  EXPECT_EQ(store->job(job.uuid)->state, JobState::kClaimed);
  part = fleet.report(job, 100);
  part.results.erase(part.results.begin() + 3);
  part.results.erase(part.results.begin(), part.results.begin() + 2);
  EXPECT_EQ(store->report(part), ReportOutcome::kStored);
  const Job rest = store->claim_job({worker}).value();
  EXPECT_EQ(rest.uuid, job.uuid);
  ASSERT_THAT(rest.trials, SizeIs(2));
  EXPECT_EQ(rest.trials[1].trial.uuid, job.trials[3].trial.uuid);
}

TEST_F(StoreTest, AReportThatIsNoneIsRefusedAsAWhole) {
  auto store = open();
  Fleet fleet(*store);
  store->publish(fleet.job({1, 2}, 64));
  const Job job = store->claim_job({fleet.worker("a")}).value();
  const JobReport good = fleet.report(job, 100);
  for (auto spoil : std::vector<void (*)(JobReport&)>{
           [](JobReport& r) { r.results[2].measurement.reset(); },
           [](JobReport& r) { r.results[2].measurement->median_ns = -1; },
           [](JobReport& r) { r.results[2].state = TrialState::kQueued; },
           [](JobReport& r) { r.results[2].trial = new_uuid(); },
           [](JobReport& r) { r.consumed_s = -1; }, [](JobReport& r) { r.uuid = "x"; }}) {
    JobReport bad = good;
    spoil(bad);
    EXPECT_EQ(error_of([&] { store->report(bad); }).status(), Status::kInvalidArgument);
  }
  EXPECT_EQ(connection()->integer("SELECT count(*) FROM measurement"), 0);
  EXPECT_EQ(connection()->integer("SELECT count(*) FROM job_report"), 0);
  JobReport unknown = good;
  unknown.job = new_uuid();
  EXPECT_EQ(error_of([&] { store->report(unknown); }).status(), Status::kNotFound);
  EXPECT_EQ(store->report(good), ReportOutcome::kStored);
}

TEST_F(StoreTest, ManyWorkersNeverHoldTheSameJob) {
  constexpr int kJobs = 40;
  options.clock_ms = nullptr;
  Uuid campaign;
  {
    auto store = open();
    Fleet fleet(*store);
    campaign = fleet.world.campaign;
    for (int tile = 0; tile < kJobs; ++tile) store->publish(fleet.job({tile}, 64));
  }
  std::vector<pid_t> children;
  for (int i = 0; i < 4; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      int code = 1;
      try {
        auto store = open();
        Fleet fleet(*store);
        const Uuid worker = fleet.worker(fmt::format("w{}", i));
        code = 0;
        while (const std::optional<Job> job = store->claim_job({worker}))
          if (job->attempt != 1 || store->report(fleet.report(*job, 100)) != ReportOutcome::kStored)
            code = 2;
      } catch (const std::exception& error) {
        fprintf(stderr, "child: %s\n", error.what());
      }
      _exit(code);
    }
    children.push_back(child);
  }
  for (pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
  auto store = open();
  EXPECT_EQ(store->progress(campaign).ok, kJobs + 1);
  const auto raw = connection();
  EXPECT_EQ(raw->integer("SELECT count(*) FROM measurement"), 2 * kJobs);
  EXPECT_EQ(raw->integer("SELECT max(number) - count(*) FROM event"), 0) << "no number is left out";
}

// A claim reads what is open by an index, not the jobs that are done.
TEST_F(FileTest, AClaimsPlanReadsAnIndex) {
  { open(); }
  const auto raw = connection();
  for (const auto& [sql, index] : std::vector<std::pair<std::string, std::string>>{
           {"SELECT uuid FROM job WHERE campaign = 'a' AND hardware = 'b' AND state = 'queued' AND "
            "(machine IS NULL OR machine = 'c') AND (avoid IS NULL OR avoid <> 'c') "
            "ORDER BY priority DESC, position LIMIT 1",
            "job_queue"},
           {"SELECT uuid, worker FROM job WHERE state = 'claimed' AND lease_until <= 5 "
            "ORDER BY lease_until LIMIT 8",
            "job_lease"},
           {"SELECT max(claimed_at) FROM job WHERE campaign = 'a'", "job_served"}}) {
    Statement plan = raw->prepare("EXPLAIN QUERY PLAN " + sql);
    std::string text;
    while (plan.step()) text += plan.text(3) + "; ";
    EXPECT_THAT(text, HasSubstr("SEARCH job USING")) << sql;
    EXPECT_THAT(text, HasSubstr(index)) << sql;
    EXPECT_THAT(text, testing::Not(HasSubstr("TEMP B-TREE"))) << sql;
  }
}

}  // namespace
}  // namespace nimble::db
