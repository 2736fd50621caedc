// Workers of a fleet on jobs whose candidates go wrong, and workers that are killed.
#include "tuner/fleet/fleet_worker.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <random>
#include <thread>

#include "tuner/fleet/test/fleet_fixture.h"
#include "vm/base/cpu_list.h"
#include "vm/base/error.h"
#include "vm/base/host_state.h"

namespace nimble::tuner {
namespace {

using db::TrialState;
using testing::HasSubstr;

using FleetWorkerTest = FleetTest;

TEST_F(FleetWorkerTest, ReportsWhatBecameOfEachCandidate) {
  work_options.hang_ms = 1500;
  const db::NewJob j = job({"test.copy", "test.crash", "test.wrong", "test.hang", "test.failing"});
  const db::Uuid uuid = store->publish(j);
  const FleetTally tally = work();
  EXPECT_EQ(tally.jobs, 1);
  EXPECT_EQ(tally.trials, 6);
  EXPECT_EQ(store->job(uuid)->state, db::JobState::kDone) << said;
  const TrialState due[] = {TrialState::kOk,    TrialState::kOk,      TrialState::kCrashed,
                            TrialState::kWrong, TrialState::kTimeout, TrialState::kCrashed};
  for (size_t i = 0; i < std::size(due); ++i) EXPECT_EQ(trial(j, i).state, due[i]) << i;
  EXPECT_EQ(trial(j, 4).error_class, "hang");
  const std::vector<db::Consumption> consumed = store->consumption(j.campaign);
  ASSERT_EQ(consumed.size(), 1u);
  EXPECT_GT(consumed[0].consumed_s, 0.3) << "the hang";
  int measured = 0;
  for (const db::TrialOutcome& o : store->outcomes(j.campaign)) measured += o.median_ns.has_value();
  EXPECT_EQ(measured, 2);
}

// No failure, and nothing that the job waits for: another machine may have what this one lacks.
TEST_F(FleetWorkerTest, WhatTheMachineLacksIsToldAsAbsent) {
  const db::NewJob j = job({"vendor.none", "test.wrong"});
  const db::Uuid uuid = store->publish(j);
  const FleetTally tally = work();
  EXPECT_EQ(tally.trials, 2);
  EXPECT_EQ(tally.absent, 1);
  EXPECT_EQ(tally.passed_over.size(), 0u) << said;
  EXPECT_EQ(store->job(uuid)->state, db::JobState::kDone) << said;
  EXPECT_EQ(trial(j, 0).state, TrialState::kOk);
  EXPECT_EQ(trial(j, 1).state, TrialState::kQueued);
  EXPECT_EQ(trial(j, 2).state, TrialState::kWrong);
  EXPECT_THAT(said, HasSubstr("not available here"));
  const std::vector<db::FailureLog> logs = store->failures(trial(j, 1).uuid);
  ASSERT_EQ(logs.size(), 1u);
  EXPECT_EQ(logs[0].error_class, db::kNotAvailable);
  EXPECT_THAT(logs[0].message, HasSubstr("vendor.none"));
  EXPECT_EQ(store->progress(j.campaign).failed, 1) << "the wrong one";
}

// As where the worker is of another version than the service: others may serve the campaign.
TEST_F(FleetWorkerTest, ACampaignOfWhichTheMachineLacksAllIsPassedOver) {
  db::NewJob j = job({});
  j.trials[0].candidate = store->put_blob(fault_executable({"vendor.none"}));
  store->put(db::Candidate{j.trials[0].artifact, *j.trials[0].candidate, "x86-64"});
  const db::Uuid uuid = store->publish(j);
  const FleetTally tally = work();
  EXPECT_EQ(tally.jobs, 0);
  ASSERT_EQ(tally.passed_over.size(), 1u) << said;
  EXPECT_THAT(tally.passed_over.begin()->second, HasSubstr("vendor.none"));
  EXPECT_EQ(store->job(uuid)->state, db::JobState::kQueued);
}

// The default schedule against itself, in the same case: what a gain must exceed.
TEST_F(FleetWorkerTest, OfAPairedCaseTheFirstTrialHasATwin) {
  const db::NewJob alone = job({"test.copy"});
  db::NewJob paired = job({"test.copy", "test.wrong"}, 32);
  paired.limits = R"({"case_s":20,"paired":true})";
  store->publish(alone);
  store->publish(paired);
  EXPECT_EQ(work().trials, 5) << said;
  const std::vector<db::TwinRow> twins = store->twins(fleet->world.workload_hash, paired.hardware);
  ASSERT_EQ(twins.size(), 1u);
  EXPECT_EQ(twins[0].trial, trial(paired, 0).uuid);
  EXPECT_GT(twins[0].twin_median_ns, 0);
  EXPECT_EQ(trial(paired, 2).state, TrialState::kWrong);
}

TEST_F(FleetWorkerTest, AFailedTrialIsRunAgainAndNothingIsStored) {
  const db::NewJob j = job({"test.crash", "test.wrong"});
  store->publish(j);
  work();
  const auto ignore = [](const std::string&) {};
  for (const auto& [i, state] : {std::pair{1, TrialState::kCrashed}, {2, TrialState::kWrong}}) {
    const db::Trial failed = trial(j, static_cast<size_t>(i));
    ASSERT_EQ(failed.state, state);
    const std::vector<db::FailureLog> logs = store->failures(failed.uuid);
    ASSERT_EQ(logs.size(), 1u);
    EXPECT_THAT(logs[0].command, HasSubstr("--rerun " + failed.uuid));
    const Rerun again = rerun_trial(work_options, permission, failed.uuid, never(), ignore);
    EXPECT_EQ(again.finding.state, state);
    EXPECT_EQ(again.finding.error_class, failed.error_class);
    EXPECT_EQ(again.finding.message, failed.message);
    EXPECT_EQ(again.output, logs[0].output);
    EXPECT_EQ(store->failures(failed.uuid).size(), 1u);
    EXPECT_EQ(trial(j, static_cast<size_t>(i)).attempt, failed.attempt);
  }
  permission.answer = [](const db::Job&) { return "not signed"; };
  const db::Uuid crashed = trial(j, 1).uuid;
  EXPECT_THROW(rerun_trial(work_options, permission, crashed, never(), ignore), Error);
  permission.answer = {};
  EXPECT_THROW(rerun_trial(work_options, permission, db::new_uuid(), never(), ignore), Error);
}

TEST_F(FleetWorkerTest, AnAnchorIsMeasuredWithEveryCase) {
  const db::NewJob first = job({"test.copy"});
  db::NewJob second = job({"test.copy", "test.copy"});
  second.trials.erase(second.trials.begin() + 1);
  store->publish(first);
  store->publish(second);
  EXPECT_EQ(work().trials, 4);
  EXPECT_EQ(trial(first, 0).state, TrialState::kOk);
  EXPECT_EQ(trial(second, 1).state, TrialState::kOk);
}

TEST_F(FleetWorkerTest, WhatMayNotRunHereGoesBackUnblamedAndOthersAreServed) {
  const db::NewJob refused = job({"test.copy"});
  const db::Uuid uuid = store->publish(refused);
  const db::NewJob also = job({"test.copy"}, 32);
  store->publish(also);
  const db::NewJob served = job({"test.copy"}, 64, another_campaign());
  store->publish(served);
  permission.answer = [&](const db::Job& j) {
    return j.campaign == refused.campaign ? "it is not signed" : "";
  };
  const FleetTally tally = work();
  EXPECT_EQ(tally.jobs, 1);
  EXPECT_EQ(trial(served, 1).state, TrialState::kOk);
  EXPECT_EQ(store->job(uuid)->state, db::JobState::kQueued);
  for (const db::NewJob& j : {refused, also}) EXPECT_EQ(trial(j, 1).state, TrialState::kQueued);
  ASSERT_EQ(tally.passed_over.size(), 1u);
  EXPECT_THAT(tally.passed_over.at(refused.campaign), HasSubstr("it is not signed"));
  const size_t first = said.find("it is not signed");
  EXPECT_NE(first, std::string::npos);
  EXPECT_EQ(said.find("it is not signed", first + 1), std::string::npos) << said;
}

TEST_F(FleetWorkerTest, ACampaignThatWasPassedOverIsLookedAtAgain) {
  const db::NewJob j = job({"test.copy"});
  store->publish(j);
  work_options.pass_over_ms = 1;
  int asked = 0;
  permission.answer = [&](const db::Job&) { return ++asked <= 3 ? "it is not signed" : ""; };
  const FleetTally tally = work();
  EXPECT_EQ(trial(j, 1).state, TrialState::kOk) << said;
  EXPECT_TRUE(tally.passed_over.empty()) << "it was served in the end";
}

TEST_F(FleetWorkerTest, OtherKeysAreLookedAtAtOnceAndTold) {
  const db::NewJob j = job({"test.copy"});
  store->publish(j);
  work_options.pass_over_ms = 3'600'000;
  permission.answer = [&](const db::Job&) {
    if (permission.keys != "[]") return "";
    permission.keys = "[\"aa\"]";
    permission.changed = true;
    return "it is not signed";
  };
  work();
  EXPECT_EQ(trial(j, 1).state, TrialState::kOk) << said;
  // The record that named the keys of before has ended, and so has the one after it by now.
  EXPECT_TRUE(store->live_workers().empty());
  EXPECT_EQ(connection()->integer("SELECT count(*) FROM worker WHERE trusted_keys = '[\"aa\"]'"),
            1);
}

TEST_F(FleetWorkerTest, WhileItCannotBeToldWhomToTrustNothingRuns) {
  const db::NewJob j = job({"test.copy"});
  store->publish(j);
  permission.answer = [](const db::Job&) { return ""; };
  const db::NewJob second = job({"test.copy"}, 32);
  store->publish(second);
  permission.answer = [&](const db::Job&) {
    permission.broken = "others may write to it";
    return "";
  };
  const FleetTally tally = work();
  EXPECT_EQ(tally.jobs, 1) << "the one that it had begun with";
  EXPECT_EQ(trial(second, 1).state, TrialState::kQueued);
  EXPECT_THAT(said, HasSubstr("nothing may run until this is mended"));
  permission.answer = {};
  permission.broken.clear();
  EXPECT_EQ(work().jobs, 1);
}

TEST_F(FleetWorkerTest, AJobThatIsNotUnderstoodIsPassedOver) {
  db::NewJob j = job({"test.copy"});
  j.limits = R"({"memory":1})";
  store->publish(j);
  db::NewJob without = job({"test.copy"}, 32, another_campaign());
  without.trials[1].candidate.reset();
  store->publish(without);
  const FleetTally tally = work();
  EXPECT_EQ(tally.jobs, 0);
  ASSERT_EQ(tally.passed_over.size(), 2u) << said;
  EXPECT_THAT(tally.passed_over.at(j.campaign), HasSubstr("a limit \"memory\""));
  EXPECT_THAT(tally.passed_over.at(without.campaign), HasSubstr("not in the database"));
}

TEST_F(FleetWorkerTest, TheCpusThatItWasBoundToAreRecorded) {
  const int first = cpu_list_from_text(HostWatch().read().affinity, "here")[0];
  work_options.cpus = {first};
  const db::NewJob j = job({"test.copy"});
  store->publish(j);
  EXPECT_EQ(work().jobs, 1) << said;
  EXPECT_EQ(connection()->text("SELECT h.affinity FROM host_state h JOIN job_report r "
                               "ON r.host_state = h.uuid"),
            std::to_string(first));
}

TEST_F(FleetWorkerTest, ACancelledJobIsLetGoAtOnceAndTheNextOneIsDone) {
  work_options.hang_ms = 60'000;
  work_options.lease_ms = 400;
  const db::NewJob hanging = job({"test.hang"});
  const db::Uuid uuid = store->publish(hanging);
  std::thread canceller([&] {
    const auto other = db::Store::open(place(), options);
    while (other->job(uuid)->state != db::JobState::kClaimed)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    other->cancel_job(uuid);
    store->publish(job({"test.copy"}, 32));
  });
  const FleetTally tally = work();
  canceller.join();
  EXPECT_EQ(tally.leases_lost, 1) << said;
  EXPECT_EQ(tally.jobs, 1);
  EXPECT_EQ(trial(hanging, 1).state, TrialState::kQueued) << "nothing is known of it";
}

TEST_F(FleetWorkerTest, ToldToStopItPutsItsJobBack) {
  work_options.hang_ms = 60'000;
  const db::NewJob j = job({"test.hang"});
  const db::Uuid uuid = store->publish(j);
  std::atomic<bool> cancel{false};
  std::thread stopper([&] {
    const auto other = db::Store::open(place(), options);
    while (other->job(uuid)->state != db::JobState::kClaimed)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    cancel = true;
  });
  const FleetTally tally = work(cancel);
  stopper.join();
  EXPECT_EQ(tally.jobs, 0);
  EXPECT_EQ(store->job(uuid)->state, db::JobState::kQueued);
  EXPECT_TRUE(store->live_workers().empty()) << "it said that it stopped";
}

TEST_F(FleetWorkerTest, AMachineThatCannotMeasureBlamesNobody) {
  work_options.program = "/nonexistent/nimble-worker";
  const db::NewJob j = job({"test.copy"});
  const db::Uuid uuid = store->publish(j);
  EXPECT_THROW(work(), Error);
  EXPECT_EQ(trial(j, 1).state, TrialState::kQueued);
  EXPECT_EQ(store->job(uuid)->state, db::JobState::kQueued);
}

class StoppedFleetWorkerTest : public FleetWorkerTest {
 protected:
  bool takes_writes() {
    try {
      const auto database = connection();
      database->begin(0, false);
      database->roll_back(0);
      return true;
    } catch (const Error&) {
      return false;
    }
  }
};

// It stood still for longer than its lease, and goes on: what it tells late changes nothing that
// another has told meanwhile.
TEST_F(StoppedFleetWorkerTest, BeyondItsLeaseItIsNotBelievedAndHarmsNothing) {
  work_options.lease_ms = 150;
  work_options.hang_ms = 60'000;
  work_options.device = "its own";  // it stands still with its machine's lock
  // One after another, so that it is in the middle of one whenever it is stopped.
  std::vector<db::NewJob> jobs;
  for (int64_t n = 8; n < 72; ++n) {
    jobs.push_back(job({"test.copy", "test.slow"}, n));
    store->publish(jobs.back());
  }
  for (int round = 0; round < 4; ++round) {
    const pid_t child = ::fork();
    if (child == 0) {
      try {
        serve_jobs(work_options, permission, never(), [](const std::string&) {});
      } catch (...) {
      }
      ::_exit(0);
    }
    // Not in the middle of a write, where a file has one writer: nobody could take its place.
    do {
      ::kill(child, SIGCONT);
      while (store->open_jobs(jobs[0].campaign).claimed == 0 &&
             store->open_jobs(jobs[0].campaign).queued > 0)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      ::kill(child, SIGSTOP);
      ::waitpid(child, nullptr, WUNTRACED);
    } while (!takes_writes());
    const struct GoesOn {  // and ends, also where the test does
      pid_t child;
      ~GoesOn() {
        ::kill(child, SIGCONT);
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        ::kill(child, SIGTERM);
        ::waitpid(child, nullptr, 0);
      }
    } goes_on{child};
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    work_options.device = "another";
    work_options.once = round < 3;
    work();
    work_options.device = "its own";
  }
  work_options.once = false;
  work_options.max_idle_s = 1;
  work();
  for (const db::NewJob& j : jobs)
    for (size_t i = 1; i < j.trials.size(); ++i) EXPECT_EQ(trial(j, i).state, TrialState::kOk);
  EXPECT_TRUE(store->check().sound());
}

// kill -9 at any moment: every trial is finished once, with one measurement, by whoever came later.
// NIMBLE_KILLS: how many; 1000 take some minutes.
TEST_F(FleetWorkerTest, KilledAgainAndAgainNothingIsLostAndNothingCountsTwice) {
  work_options.lease_ms = 150;
  work_options.poll_ms = 10;
  std::vector<db::NewJob> jobs;
  const char* asked = std::getenv("NIMBLE_KILLS");
  const int kills = asked ? std::max(1, std::atoi(asked)) : on_server() ? 15 : 50;
  for (int64_t n = 8; n < 8 + 5 * kills; ++n) {
    jobs.push_back(job({"test.copy", "test.copy", "test.copy"}, n));
    store->publish(jobs.back());
  }
  std::mt19937_64 random(7);
  int killed = 0;
  for (; killed < kills && store->open_jobs(jobs[0].campaign).queued > 0; ++killed) {
    const pid_t child = ::fork();
    if (child == 0) {
      try {
        serve_jobs(work_options, permission, never(), [](const std::string&) {});
      } catch (...) {
      }
      ::_exit(0);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20 + random() % 100));
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
  }
  EXPECT_GT(killed, kills / 10);
  RecordProperty("kills", killed);
  work_options.max_idle_s = 2;
  work();
  const db::OpenJobs open = store->open_jobs(jobs[0].campaign);
  EXPECT_EQ(open.queued + open.claimed, 0);
  for (const db::NewJob& j : jobs)
    for (size_t i = 1; i < j.trials.size(); ++i) {
      const db::Trial t = trial(j, i);
      EXPECT_EQ(t.state, TrialState::kOk) << t.error_class << " " << t.message;
    }
  EXPECT_TRUE(store->check().sound());
}

TEST(CaseRecord, SaysWhatTheCaseSays) {
  Case c = copy_case(0, 0, 48);
  c.seed = ~uint64_t{0};
  c.inputs[0].constant = true;
  c.stepping = {1, 0};
  c.policy.choose_class("cold");
  const db::MeasureCase record = case_record(c, "workload", "shape", "expected");
  EXPECT_EQ(case_of(record, expected_bytes(c)), c);

  db::MeasureCase other = record;
  other.policy = db::key_of(policy_record(Policy::of_class("warm"), 1));
  EXPECT_THROW(case_of(other, expected_bytes(c)), Error) << "filed under another policy";
  other = record;
  for (const char* text : {"", "{}", "[]", "{\"data\":1}"}) {
    other.fills = text;
    EXPECT_THROW(case_of(other, expected_bytes(c)), Error) << text;
  }
}

}  // namespace
}  // namespace nimble::tuner
