// Workers of a fleet on jobs whose candidates go wrong, and workers that are killed.
#include "tuner/fleet/fleet_worker.h"

#include <gmock/gmock.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <random>
#include <thread>

#include "db/store/host_records.h"
#include "db/store/test/fleet.h"
#include "tuner/fleet/case_record.h"
#include "tuner/fleet/finding.h"
#include "tuner/measure/test/fault_executable.h"
#include "vm/base/error.h"

namespace nimble::tuner {
namespace {

using db::TrialState;
using ::testing::HasSubstr;

class FleetWorkerTest : public testing::Test {
 protected:
  FleetWorkerTest() {
    const std::filesystem::path root =
        ::access("/dev/shm", W_OK) == 0 ? "/dev/shm" : std::filesystem::temp_directory_path();
    std::string pattern = (root / "nimble-fleet-XXXXXX").string();
    folder = mkdtemp(pattern.data());
    ::setenv("NIMBLE_LOCK_FOLDER", folder.c_str(), 1);
    options.database = folder + "/tuning.db";
    options.program = NIMBLE_FAULT_WORKER;
    options.hang_ms = 300;
    options.poll_ms = 20;
    options.max_idle_s = 0.3;
    store = db::Store::open(options.database);
    fleet.emplace(*store);
  }
  ~FleetWorkerTest() override {
    fleet.reset();
    store.reset();
    std::error_code ignored;
    std::filesystem::remove_all(folder, ignored);
  }

  // A job of kernels of the fault worker at one size, behind a copy as the anchor.
  db::NewJob job(const std::vector<std::string>& kernels, int64_t n = 64) {
    Case c = copy_case(0, 0, n);
    c.policy.batch_ns = 10'000;
    c.policy.max_samples = 6;
    store->put(policy_record(c.policy, c.threads));
    db::NewJob out;
    out.campaign = fleet->world.campaign;
    out.hardware = store->put(db::host_hardware());
    out.measure_case =
        store->put(case_record(c, fleet->world.workload_hash, fleet->world.shape(*store, n),
                               store->put_blob(expected_bytes(c))));
    out.limits = R"({"case_s":20})";
    for (size_t i = 0; i <= kernels.size(); ++i) {
      const bool anchor = i == 0;
      const int tile = anchor ? 1000 : static_cast<int>(i);
      const db::Hash artifact = fleet->artifact(tile);
      const db::Digest digest =
          store->put_blob(fault_executable({anchor ? "test.copy" : kernels[i - 1]}));
      store->put(db::Candidate{artifact, digest, "x86-64-v2"});
      out.trials.push_back({{fleet->world.trial_key(
                                *store, tile, n, anchor ? db::Role::kBaseline : db::Role::kSearch)},
                            artifact,
                            digest,
                            anchor});
    }
    return out;
  }
  FleetTally work(const std::atomic<bool>& cancel = never()) {
    return serve_jobs(options, permission, cancel, [&](const std::string& text) { said += text; });
  }
  static const std::atomic<bool>& never() {
    static const std::atomic<bool> flag{false};
    return flag;
  }
  db::Trial trial(const db::NewJob& j, size_t i) {
    return *store->trial(db::uuid_of(j.trials[i].trial.key));
  }

  std::string folder, said;
  FleetWorkerOptions options;
  Permission permission = [](const db::Job&, const db::JobTrial&, std::span<const uint8_t>) {};
  std::unique_ptr<db::Store> store;
  std::optional<db::Fleet> fleet;
};

TEST_F(FleetWorkerTest, ReportsWhatBecameOfEachCandidate) {
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

TEST_F(FleetWorkerTest, WhatMayNotRunHereGoesBackAndIsNotBlamed) {
  const db::NewJob j = job({"test.copy"});
  const db::Uuid uuid = store->publish(j);
  permission = [](const db::Job&, const db::JobTrial&, std::span<const uint8_t>) {
    throw Error(Status::kInvalidArgument, "candidate", "it is not signed");
  };
  EXPECT_THROW(work(), Error);
  EXPECT_EQ(store->job(uuid)->state, db::JobState::kQueued);
  EXPECT_EQ(trial(j, 1).state, TrialState::kQueued);
}

TEST_F(FleetWorkerTest, ACancelledJobIsLetGoAtOnceAndTheNextOneIsDone) {
  options.hang_ms = 60'000;
  options.lease_ms = 400;
  const db::NewJob hanging = job({"test.hang"});
  const db::Uuid uuid = store->publish(hanging);
  std::thread canceller([&] {
    const auto other = db::Store::open(options.database);
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
  options.hang_ms = 60'000;
  const db::NewJob j = job({"test.hang"});
  const db::Uuid uuid = store->publish(j);
  std::atomic<bool> cancel{false};
  std::thread stopper([&] {
    const auto other = db::Store::open(options.database);
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
  options.program = "/nonexistent/nimble-worker";
  const db::NewJob j = job({"test.copy"});
  const db::Uuid uuid = store->publish(j);
  EXPECT_THROW(work(), Error);
  EXPECT_EQ(trial(j, 1).state, TrialState::kQueued);
  EXPECT_EQ(store->job(uuid)->state, db::JobState::kQueued);
}

// It stood still for longer than its lease, and goes on: what it tells late changes nothing that
// another has told meanwhile.
TEST_F(FleetWorkerTest, StoppedBeyondItsLeaseItIsNotBelievedAndHarmsNothing) {
  options.lease_ms = 150;
  options.hang_ms = 60'000;
  options.device = "its own";  // it stands still with its machine's lock
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
        serve_jobs(options, permission, never(), [](const std::string&) {});
      } catch (...) {
      }
      ::_exit(0);
    }
    while (store->open_jobs(jobs[0].campaign).claimed == 0 &&
           store->open_jobs(jobs[0].campaign).queued > 0)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    ::kill(child, SIGSTOP);
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    options.device = "another";
    options.once = round < 3;
    work();
    options.device = "its own";
    ::kill(child, SIGCONT);
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    ::kill(child, SIGTERM);
    ::waitpid(child, nullptr, 0);
  }
  options.once = false;
  options.max_idle_s = 1;
  work();
  for (const db::NewJob& j : jobs)
    for (size_t i = 1; i < j.trials.size(); ++i) EXPECT_EQ(trial(j, i).state, TrialState::kOk);
  EXPECT_TRUE(store->check().sound());
}

// kill -9 at any moment: every trial is finished once, with one measurement, by whoever came later.
// NIMBLE_KILLS: how many; 1000 take some minutes.
TEST_F(FleetWorkerTest, KilledAgainAndAgainNothingIsLostAndNothingCountsTwice) {
  options.lease_ms = 150;
  options.poll_ms = 10;
  std::vector<db::NewJob> jobs;
  const char* asked = std::getenv("NIMBLE_KILLS");
  const int kills = asked ? std::max(1, std::atoi(asked)) : 50;
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
        serve_jobs(options, permission, never(), [](const std::string&) {});
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
  options.max_idle_s = 2;
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
