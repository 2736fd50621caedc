// Tasks and their phases, requests and the feed of changes.
#include <gmock/gmock.h>

#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "db/store/hash.h"
#include "db/store/test/fixture.h"
#include "db/store/test/fleet.h"

namespace nimble::db {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

TEST_F(StoreTest, TasksPhasesAndWeights) {
  auto store = open();
  World world(*store);
  const Hash shape = world.shape(*store, 64);
  Workload second = world.workload;
  second.canonical = "softmax f32 (m,768) threads=2";
  const Hash second_hash = store->put(second);
  store->add_tasks({{"", world.campaign, second_hash, "attention/softmax", 0.1, 6, {}},
                    {"", world.campaign, world.workload_hash, "dense", 0.4, 12, {{shape, 2.5}}}});
  store->add_tasks({{"", world.campaign, world.workload_hash, "another label", 0.9, 1, {}}});
  std::vector<Task> tasks = store->tasks(world.campaign);
  ASSERT_THAT(tasks, SizeIs(2));
  EXPECT_EQ(tasks[0].label, "dense");
  EXPECT_EQ(tasks[0].share, 0.4);
  EXPECT_EQ(tasks[0].calls, 12);
  EXPECT_EQ(tasks[0].weights.at(shape), 2.5);
  EXPECT_EQ(tasks[0].phase, "");
  store->enter_phase(tasks[0].uuid, "search", "round 1");
  store->enter_phase(tasks[0].uuid, "cross \"x\"", "");
  tasks = store->tasks(world.campaign);
  EXPECT_EQ(tasks[0].phase, "cross \"x\"") << "of the same millisecond, the later";
  EXPECT_EQ(tasks[1].phase, "");
  const std::vector<TaskPhase> phases = store->phases(tasks[0].uuid);
  ASSERT_THAT(phases, SizeIs(2));
  EXPECT_EQ(phases[0].phase, "search");
  EXPECT_EQ(phases[0].detail, "round 1");
  EXPECT_LT(phases[0].created_at, phases[1].created_at);
  EXPECT_THAT(store->phases(new_uuid()), IsEmpty());
  EXPECT_EQ(error_of([&] { store->enter_phase(new_uuid(), "x"); }).status(), Status::kNotFound);
}

// Whoever adds a task may not know its share yet.
TEST_F(StoreTest, ATasksShareIsWhatItsServiceToldLast) {
  auto store = open();
  World world(*store);
  Workload second = world.workload;
  second.canonical = "softmax f32 (m,768) threads=2";
  const Hash second_hash = store->put(second);
  const Hash shape = world.shape(*store, 64);
  store->add_tasks({{"", world.campaign, world.workload_hash, "a", std::nullopt, 1, {{shape, 2}}},
                    {"", world.campaign, second_hash, "b", std::nullopt, 1, {}}});
  const std::vector<Task> fresh = store->tasks(world.campaign);
  EXPECT_EQ(fresh[0].label, "a");
  EXPECT_EQ(fresh[0].share, std::nullopt);
  for (const double useless : {1.5, -0.1, std::numeric_limits<double>::quiet_NaN()})
    EXPECT_EQ(error_of([&] { store->enter_phase(fresh[1].uuid, "search", "", useless); }).status(),
              Status::kInvalidArgument);
  store->enter_phase(fresh[1].uuid, "search", R"({"share":1})");
  EXPECT_EQ(store->tasks(world.campaign)[1].share, std::nullopt) << "a detail is any text";
  store->enter_phase(fresh[1].uuid, "search", "", 0.25);
  store->enter_phase(fresh[1].uuid, "cross", "", 0.75);
  const std::vector<Task> told = store->tasks(world.campaign);
  EXPECT_EQ(told[0].label, "b") << "the largest share first";
  EXPECT_EQ(told[0].share, 0.75);
  EXPECT_THAT(told[0].weights, testing::IsEmpty());
  EXPECT_EQ(told[1].weights.at(shape), 2);
}

TEST_F(StoreTest, RequestsAreAnsweredOnce) {
  auto store = open();
  World world(*store);
  const Uuid pause =
      store->request({"", world.campaign, ControlRequest::kPause, "eva", "demo at noon"});
  clock += 1;
  const Uuid stop = store->request({"", world.campaign, ControlRequest::kStop, "eva", ""});
  std::vector<Control> open_ones = store->open_requests(world.campaign);
  ASSERT_THAT(open_ones, SizeIs(2));
  EXPECT_EQ(open_ones[0].uuid, pause);
  EXPECT_EQ(open_ones[0].reason, "demo at noon");
  EXPECT_TRUE(store->answer(pause, true, "paused after the case at hand"));
  EXPECT_FALSE(store->answer(pause, false, "again"));
  ASSERT_THAT(store->open_requests(world.campaign), SizeIs(1));
  const std::vector<Control> all = store->requests(world.campaign);
  ASSERT_THAT(all, SizeIs(2));
  EXPECT_EQ(all[0].uuid, stop);
  EXPECT_FALSE(all[0].accepted);
  EXPECT_EQ(all[1].accepted, true);
  EXPECT_EQ(all[1].answer, "paused after the case at hand");
  EXPECT_EQ(error_of([&] { store->answer(new_uuid(), true, ""); }).status(), Status::kNotFound);
}

TEST_F(StoreTest, TheFeedTellsWhatChangedInOrder) {
  auto store = open();
  Fleet fleet(*store);
  const int64_t begin = store->last_event();
  store->publish(fleet.job({1}, 64));
  const Uuid worker = fleet.worker("a");
  store->report(fleet.report(store->claim_job({worker}).value(), 100));
  store->set_campaign_state(fleet.world.campaign, CampaignState::kPaused);
  std::vector<std::string> told;
  int64_t last = begin;
  for (const Event& e : store->events(begin)) {
    EXPECT_EQ(e.number, ++last);
    told.push_back(e.kind);
  }
  EXPECT_THAT(told, ElementsAre("job", "worker", "report", "job", "campaign"));
  EXPECT_EQ(last, store->last_event());
  EXPECT_THAT(store->events(begin, 2), SizeIs(2));
  EXPECT_THAT(store->events(last), IsEmpty());
  EXPECT_THAT(store->events(begin, 100, fleet.world.campaign), SizeIs(4));
  // What is undone is not told.
  error_of([&] {
    store->transaction([&] {
      store->set_campaign_state(fleet.world.campaign, CampaignState::kRunning);
      throw Error(Status::kCancelled, "test", "undone", "");
    });
  });
  EXPECT_THAT(store->events(last), IsEmpty());
  store->set_campaign_state(fleet.world.campaign, CampaignState::kRunning);
  EXPECT_THAT(store->events(last), SizeIs(1));
}

}  // namespace
}  // namespace nimble::db
