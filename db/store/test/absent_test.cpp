// Trials that a machine lacks something for, such as a vendor's library.
#include <gmock/gmock.h>

#include "db/store/test/fixture.h"
#include "db/store/test/fleet.h"
#include "vm/base/error.h"

namespace nimble::db {
namespace {

using testing::SizeIs;

// The job does not wait for it; the trial stays open, for a machine that has what it needs.
TEST_F(StoreTest, AnAbsentTrialEndsItsJobAndStaysOpen) {
  auto store = open();
  Fleet fleet(*store);
  const Uuid uuid = store->publish(fleet.job({1, 2}, 64));
  const Uuid a = fleet.worker("a");
  const Job job = store->claim_job({a}).value();
  JobReport report = fleet.report(job, 100);
  report.results.pop_back();
  const Trial& lacked = job.trials[2].trial;
  report.absent = {{lacked.uuid, "libdnnl.so.2 is not installed"}};
  EXPECT_EQ(store->report(report), ReportOutcome::kStored);
  EXPECT_EQ(store->report(report), ReportOutcome::kDuplicate);
  EXPECT_EQ(store->job(uuid)->state, JobState::kDone);
  EXPECT_EQ(store->trial(lacked.uuid)->state, TrialState::kQueued);
  EXPECT_EQ(store->progress(fleet.world.campaign).failed, 0);
  const StoredReport read = store->stored_report(report.uuid).value();
  EXPECT_THAT(read.results, SizeIs(2));
  EXPECT_EQ(read.absent,
            (std::map<Hash, std::string>{{lacked.key.config, "libdnnl.so.2 is not installed"}}));
  const std::vector<FailureLog> logs = store->failures(lacked.uuid);
  ASSERT_THAT(logs, SizeIs(1));
  EXPECT_EQ(logs[0].error_class, kNotAvailable);
  EXPECT_EQ(logs[0].worker, a);

  // With others that are open as well the job goes on, and whoever takes it may have it.
  store->publish(fleet.job({2, 3}, 64));
  const Job again = store->claim_job({a}).value();
  ASSERT_THAT(again.trials, SizeIs(3));
  JobReport part = fleet.report(again, 100);
  part.results.resize(1);
  part.absent = {{lacked.uuid, "libdnnl.so.2 is not installed"}};
  store->report(part);
  EXPECT_EQ(store->job(again.uuid)->state, JobState::kQueued);
  const Uuid b = fleet.worker("b");
  const Job taken = store->claim_job({b}).value();
  const JobReport whole = fleet.report(taken, 90);
  store->report(whole);
  EXPECT_EQ(store->trial(lacked.uuid)->state, TrialState::kOk);
  EXPECT_TRUE(store->stored_report(whole.uuid)->absent.empty());
  EXPECT_TRUE(store->check().problems.empty());
}

TEST_F(StoreTest, AnAbsentTrialIsOfTheJob) {
  auto store = open();
  Fleet fleet(*store);
  store->publish(fleet.job({1}, 64));
  const Job job = store->claim_job({fleet.worker("a")}).value();
  JobReport report = fleet.report(job, 100);
  report.absent = {{new_uuid(), "?"}};
  EXPECT_THROW(store->report(report), Error);
  EXPECT_EQ(store->job(job.uuid)->state, JobState::kClaimed);
}

}  // namespace
}  // namespace nimble::db
