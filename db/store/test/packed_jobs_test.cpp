// Jobs that are for no machine's own hardware.
#include <gmock/gmock.h>

#include "db/store/test/fixture.h"
#include "db/store/test/fleet.h"

namespace nimble::db {
namespace {

using testing::SizeIs;

// As those that were packed for any GPU, which nobody is.
TEST_F(StoreTest, JobsForAnotherKindOfHardwareAreTakenByWhoAsksForThem) {
  auto store = open();
  Fleet fleet(*store);
  Hardware any;
  any.model_name = "any GPU of sm_90a";
  any.isa = "any";
  NewJob job = fleet.job({1}, 64);
  job.hardware = store->put(any);
  const Uuid uuid = store->publish(job);
  JobRequest request{fleet.worker("a")};
  EXPECT_FALSE(store->claim_job(request)) << "its own kind's alone";
  request.hardware = job.hardware;
  const Job taken = store->claim_job(request).value();
  EXPECT_EQ(taken.uuid, uuid);
  store->report(fleet.report(taken, 1000));
  EXPECT_EQ(store->job(uuid)->state, JobState::kDone);
  const std::vector<Consumption> consumed = store->consumption(job.campaign);
  ASSERT_THAT(consumed, SizeIs(1));
  EXPECT_EQ(consumed[0].hardware, fleet.world.hardware_hash);
  EXPECT_TRUE(store->check().sound()) << testing::PrintToString(store->check().problems);
}

}  // namespace
}  // namespace nimble::db
