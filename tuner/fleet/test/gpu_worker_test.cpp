// Workers of a fleet that measure on a GPU, a stand-in of its driver: what goes wrong there costs
// itself alone, and cards of one machine do not wait for each other.
#include <chrono>
#include <map>
#include <thread>

#include "db/store/gpu_records.h"
#include "tuner/fleet/test/fleet_fixture.h"
#include "tuner/measure/machine_lock.h"
#include "tuner/measure/test/gpu_fault_executable.h"
#include "vm/base/test/scoped_variable.h"
#include "vm/runtime/cuda_facts.h"

namespace nimble::tuner {
namespace {

using db::TrialState;
using testing::HasSubstr;

class GpuWorkerTest : public FleetTest {
 protected:
  void SetUp() override {
    FleetTest::SetUp();
    if (IsSkipped()) return;
    standin_cuda(NIMBLE_STANDIN_CUDA).reset();
    work_options.program = NIMBLE_GPU_FAULT_WORKER;
    work_options.hang_ms = 1500;
    work_options.gpu = rt::cuda_facts();
  }
  // As job(), of kernels of the GPU.
  db::NewJob gpu_job(const std::vector<std::string>& kernels, int64_t n = 64,
                     const db::Uuid& campaign = {}) {
    db::NewJob out = job(kernels, n, campaign, "sm_90a");
    out.hardware = store->put(db::gpu_hardware(*work_options.gpu));
    for (size_t i = 0; i < out.trials.size(); ++i) {
      const db::Digest digest =
          store->put_blob(gpu_fault_executable({i == 0 ? "copy" : kernels[i - 1]}));
      store->put(db::Candidate{out.trials[i].artifact, digest, "sm_90a"});
      out.trials[i].candidate = digest;
    }
    return out;
  }

  const ScopedVariable library_{"NIMBLE_CUDA_DRIVER", NIMBLE_STANDIN_CUDA};
};

TEST_F(GpuWorkerTest, ReportsWhatBecameOfEachCandidateUnderTheCardsName) {
  const db::NewJob j = gpu_job({"copy", "trap", "wrong", "hang", "failing", "slow"});
  const db::Uuid uuid = store->publish(j);
  const FleetTally tally = work();
  EXPECT_EQ(tally.jobs, 1) << said;
  EXPECT_EQ(store->job(uuid)->state, db::JobState::kDone) << said;
  const TrialState due[] = {TrialState::kOk,    TrialState::kOk,      TrialState::kCrashed,
                            TrialState::kWrong, TrialState::kTimeout, TrialState::kCrashed,
                            TrialState::kOk};
  for (size_t i = 0; i < std::size(due); ++i) EXPECT_EQ(trial(j, i).state, due[i]) << i;
  EXPECT_THAT(trial(j, 2).message, HasSubstr("ILLEGAL_ADDRESS"));
  const std::vector<db::FailureLog> logs = store->failures(trial(j, 2).uuid);
  ASSERT_EQ(logs.size(), 1u);
  EXPECT_THAT(logs[0].command, HasSubstr("--device gpu --rerun " + trial(j, 2).uuid));

  const std::vector<db::Consumption> consumed = store->consumption(j.campaign);
  ASSERT_EQ(consumed.size(), 1u);
  EXPECT_EQ(consumed[0].hardware, db::key_of(db::gpu_hardware(*work_options.gpu)));
  EXPECT_THAT(consumed[0].hostname, HasSubstr(" GPU 0000:3b:00"));
  // By its own clock: the slow one takes nine milliseconds more.
  std::map<db::Uuid, double> times;
  for (const db::TrialOutcome& o : store->outcomes(j.campaign))
    if (o.median_ns) times[o.trial.uuid] = *o.median_ns;
  ASSERT_EQ(times.size(), 3u);
  EXPECT_NEAR(times[trial(j, 6).uuid] - times[trial(j, 1).uuid], 9e6, 1e5);
}

TEST_F(GpuWorkerTest, AFailedTrialIsRunAgainOnTheGpu) {
  const db::NewJob j = gpu_job({"trap"});
  store->publish(j);
  work();
  const db::Trial failed = trial(j, 1);
  ASSERT_EQ(failed.state, TrialState::kCrashed);
  const Rerun again =
      rerun_trial(work_options, permission, failed.uuid, never(), [](const std::string&) {});
  EXPECT_EQ(again.finding.state, TrialState::kCrashed);
  EXPECT_THAT(again.finding.message, HasSubstr("ILLEGAL_ADDRESS"));
}

TEST_F(GpuWorkerTest, JobsOfCpusAndOfGpusAreDoneByTheirOwn) {
  const db::Uuid cpus = store->publish(job({"test.copy"}));
  const db::Uuid gpus = store->publish(gpu_job({"copy"}, 32));
  EXPECT_EQ(work().jobs, 1) << said;
  EXPECT_EQ(store->job(gpus)->state, db::JobState::kDone);
  EXPECT_EQ(store->job(cpus)->state, db::JobState::kQueued);
  work_options.gpu.reset();
  work_options.program = NIMBLE_FAULT_WORKER;
  EXPECT_EQ(work().jobs, 1) << said;
  EXPECT_EQ(store->job(cpus)->state, db::JobState::kDone);
}

// The driver makes machine code of assembly: another one's times are of other code.
TEST_F(GpuWorkerTest, ACampaignOfAnotherDriverIsPassedOver) {
  const auto campaign_of = [&](int driver) {
    db::CampaignKey key = fleet->world.key;
    key.options = fmt::format(R"({{"driver":{}}})", driver);
    return store->create_campaign(key, 300, "test");
  };
  const db::Uuid older = campaign_of(12080), own = campaign_of(work_options.gpu->driver);
  const db::Uuid left = store->publish(gpu_job({"copy"}, 64, older));
  const db::Uuid done = store->publish(gpu_job({"copy"}, 64, own));
  const FleetTally tally = work();
  EXPECT_EQ(tally.jobs, 1) << said;
  EXPECT_EQ(store->job(done)->state, db::JobState::kDone) << said;
  EXPECT_EQ(store->job(left)->state, db::JobState::kQueued);
  ASSERT_TRUE(tally.passed_over.contains(older)) << said;
  EXPECT_THAT(tally.passed_over.at(older),
              HasSubstr("is to be of CUDA 12.8; this worker's is of 13.0"));
}

TEST_F(GpuWorkerTest, OnlyItsOwnCardAndWhoWantsTheWholeMachineKeepItWaiting) {
  const std::atomic<bool>& go = never();
  const auto nobody = [](const std::string&) {};
  const auto jobs = [&] {
    std::atomic<bool> cancel{false};
    std::thread end([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
      cancel = true;
    });
    const int64_t done = work(cancel).jobs;
    end.join();
    return done;
  };
  store->publish(gpu_job({"copy"}));
  {
    const MachineLock card("gpu-0000:3b:00", "the same card", go, nobody);
    EXPECT_EQ(jobs(), 0);
  }
  {
    // As another container may number it.
    ASSERT_NE(work_options.gpu->uuid, "");
    const MachineLock card("gpu-" + work_options.gpu->uuid, "the same card, in another slot", go,
                           nobody);
    EXPECT_EQ(jobs(), 0);
  }
  {
    const MachineLock machine("cpu", "a build", go, nobody);
    EXPECT_EQ(jobs(), 0);
  }
  const MachineLock card("gpu-0000:3c:00", "another card", go, nobody);
  const MachineLock machine("cpu", "another card's worker", go, nobody, Hold::kBesideOthers);
  EXPECT_EQ(work().jobs, 1) << said;
}

}  // namespace
}  // namespace nimble::tuner
