// What lists show of everything says what the single queries say.
#include <gmock/gmock.h>

#include "db/store/hash.h"
#include "db/store/pages.h"
#include "db/store/test/fixture.h"
#include "db/store/toolchains.h"

namespace nimble::db {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;
using testing::SizeIs;

std::vector<TableSummary> deciding(Store& store) {
  std::vector<TableSummary> all;
  each_deciding_table(store, [&](const TableSummary& t) { all.push_back(t); });
  return all;
}

TEST_F(StoreTest, TheNewestActiveTableDecidesElseTheNewest) {
  auto store = open();
  World w(*store);
  EXPECT_THAT(deciding(*store), IsEmpty());
  w.tried(*store, 1, 64, 100);
  const WorkloadPlace here{w.workload_hash, w.hardware_hash};
  EXPECT_THAT(store->measured_places(), ElementsAre(here));
  NewDispatchTable warm = w.draft(*store, 1);
  warm.campaign = w.campaign;
  clock += 1;
  const Uuid first = store->create_table(warm);
  ASSERT_THAT(deciding(*store), SizeIs(1));
  EXPECT_EQ(deciding(*store)[0].uuid, first);
  EXPECT_FALSE(deciding(*store)[0].active);
  store->activate(first, "tuned");
  clock += 1;
  // Another class of policy is another slot: both stay active, and the newer one decides.
  NewDispatchTable cold = w.draft(*store, 4);
  cold.policy = store->put(MeasurePolicy{CacheMode::kCold, 3, 2, "rdtsc", "ci<1%", "cold"});
  cold.entries[0].regret = 0.25;
  const Uuid second = store->create_table(cold);
  EXPECT_EQ(deciding(*store)[0].uuid, first) << "a draft decides nothing beside an active one";
  store->activate(second, "tuned");
  clock += 1;
  const Uuid draft = store->create_table(w.draft(*store, 7));
  store->add(Comparison{"", second, first, 2, 0.9, 1.1});
  clock += 1;
  store->add(Comparison{"", second, std::nullopt, 2, 0.7, 0.75});
  clock += 1;
  store->add(Comparison{"", second, std::nullopt, 2, 0.8, 0.9});
  const TableSummary t = deciding(*store).at(0);
  EXPECT_EQ(t.uuid, second);
  EXPECT_EQ(t.of, here);
  EXPECT_TRUE(t.active);
  EXPECT_EQ(t.policy, cold.policy);
  EXPECT_EQ(t.policy_class, "cold");
  EXPECT_EQ(t.entries, std::ssize(cold.entries));
  EXPECT_EQ(t.worst_regret, 0.25);
  EXPECT_EQ(t.ratio, 0.8) << "as compared last with the default schedules";
  EXPECT_EQ(t.worst_ratio, 0.9);
  EXPECT_EQ(t.version, store->table(second)->version);
  EXPECT_EQ(t.created_at, store->table(second)->created_at);
  EXPECT_FALSE(t.campaign);
  // Rolled back, the other slot's decides again.
  store->roll_back(second, "slow");
  EXPECT_EQ(deciding(*store)[0].uuid, first);
  EXPECT_EQ(deciding(*store)[0].campaign, w.campaign);
  EXPECT_EQ(deciding(*store)[0].command, "nimble tune m");
  store->roll_back(first, "slow");
  EXPECT_EQ(deciding(*store)[0].uuid, draft) << "the newest, where none is active";
  // A page begins behind the last one's place.
  EXPECT_THAT(store->deciding_tables(10, here), IsEmpty());
}

TEST_F(StoreTest, OverridesAreCountedByPlace) {
  auto store = open();
  World w(*store);
  w.tried(*store, 1, 64, 100);
  const WorkloadPlace here{w.workload_hash, w.hardware_hash};
  EXPECT_THAT(store->override_counts(), IsEmpty());
  const Hash config = w.config(*store, 1);
  const Uuid one = store->add(NewOverride{here.workload, here.hardware, {}, config, "latency"});
  store->add(NewOverride{here.workload, here.hardware, {{"m", {1, 8}}}, config, "tail"});
  EXPECT_THAT(store->override_counts(), ElementsAre(Pair(here, 2)));
  store->withdraw(one, "over");
  EXPECT_THAT(store->override_counts(), ElementsAre(Pair(here, 1)));
}

TEST_F(StoreTest, TheBestOfEachShapeIsThatOfTheResults) {
  auto store = open();
  World w(*store);
  for (int tile : {1, 4, 7})
    for (int64_t m : {1, 64})
      w.tried(*store, tile, m, (tile == 4 ? 90.0 : 100.0) + static_cast<double>(m));
  const WorkloadPlace here{w.workload_hash, w.hardware_hash};
  const std::vector<BestResult> best = store->best_results(here);
  ASSERT_THAT(best, SizeIs(2));
  const auto all = store->results({w.workload_hash, w.hardware_hash, w.policy, 3});
  ASSERT_THAT(all, SizeIs(6));
  for (const BestResult& b : best) {
    EXPECT_EQ(b.result.config, w.config(*store, 4));
    EXPECT_EQ(b.machine, w.machine);
    EXPECT_EQ(b.flops, store->shape(b.result.shape)->flops);
    EXPECT_EQ(b.bytes, store->shape(b.result.shape)->bytes);
    for (const Result& r : all) {
      if (r.shape == b.result.shape) EXPECT_GE(r.median_ns, b.result.median_ns);
    }
    const auto same = std::ranges::find(all, b.result.measurement, &Result::measurement);
    ASSERT_NE(same, all.end());
    EXPECT_EQ(same->config_json, b.result.config_json);
    EXPECT_EQ(same->created_at, b.result.created_at);
  }
}

TEST_F(StoreTest, CampaignsAreCountedTogether) {
  auto store = open();
  World w(*store);
  w.tried(*store, 1, 64, 100);
  store->enqueue({{w.trial_key(*store, 4, 64)}});
  CampaignKey other = w.key;
  other.seed = 8;
  const Uuid empty = store->create_campaign(other, 60, "");
  EXPECT_THAT(store->progress_of({}), IsEmpty());
  const auto all = store->progress_of({w.campaign, empty, new_uuid()});
  ASSERT_THAT(all, SizeIs(2)) << "of what is not there nothing is told";
  for (const auto& [uuid, progress] : all) {
    const CampaignProgress own = store->progress(uuid);
    EXPECT_EQ(progress.trials, own.trials);
    EXPECT_EQ(progress.ok, own.ok);
    EXPECT_EQ(progress.queued, own.queued);
    EXPECT_EQ(progress.claimed, own.claimed);
    EXPECT_EQ(progress.failed, own.failed);
  }
  EXPECT_EQ(error_of([&] { store->progress_of(std::vector<Uuid>(1001, empty)); }).status(),
            Status::kInvalidArgument);

  EXPECT_THAT(store->last_requests(), IsEmpty());
  Control c;
  c.campaign = w.campaign;
  c.requested_by = "me";
  store->request(c);
  clock += 1;
  c.request = ControlRequest::kResume;
  const Uuid last = store->request(c);
  const auto requests = store->last_requests();
  ASSERT_THAT(requests, SizeIs(1));
  EXPECT_EQ(requests.at(w.campaign).uuid, last);
  EXPECT_EQ(requests.at(w.campaign).campaign, w.campaign);
  EXPECT_EQ(requests.at(w.campaign).request, ControlRequest::kResume);
}

TEST_F(StoreTest, AModelsShareIsThatOfTheNewestCampaignThatKnowsIt) {
  auto store = open();
  World w(*store);
  const WorkloadPlace here{w.workload_hash, w.hardware_hash};
  EXPECT_THAT(store->model_shares(), IsEmpty());
  store->add_tasks({{"", w.campaign, w.workload_hash, "dense", 0.5, 1, {}}});
  EXPECT_THAT(store->model_shares(), ElementsAre(Pair(here, 0.5)));
  clock += 1;
  CampaignKey other = w.key;
  other.seed = 8;
  const Uuid later = store->create_campaign(other, 60, "");
  store->add_tasks({{"", later, w.workload_hash, "dense", std::nullopt, 1, {}}});
  EXPECT_THAT(store->model_shares(), ElementsAre(Pair(here, 0.5))) << "the later knows none";
  EXPECT_THAT(store->model_shares(1), IsEmpty());
}

TEST_F(StoreTest, TimesOfASearchTellTheirSessions) {
  auto store = open();
  World w(*store);
  w.tried(*store, 1, 64, 100, Role::kBaseline);
  w.tried(*store, 4, 64, 80);
  w.tried(*store, 7, 64, 90, Role::kCross);
  const auto times = store->session_times(w.campaign, w.workload_hash);
  ASSERT_THAT(times, SizeIs(2)) << "of the search and its default schedule";
  for (const SessionTime& t : times) {
    EXPECT_EQ(t.host_state, w.host_state);
    EXPECT_EQ(t.median_ns, store->measurements(t.trial)[0].measurement.median_ns);
  }
  EXPECT_THAT(store->session_times(w.campaign, w.workload_hash, 1), SizeIs(1));
}

TEST(Toolchains, AnOlderOneIsOlderThanAnyThatIsKnown) {
  const Toolchain own{"llvm", "19.1.7", "-O2", 3, "abc", false};
  Toolchain later = own;
  EXPECT_EQ(age_of(own, std::vector{own}), ToolchainAge::kNewest);
  later.version = "19.1.10";  // later as numbers, not as text
  EXPECT_EQ(age_of(own, std::vector{own, later}), ToolchainAge::kOlderCompiler);
  EXPECT_EQ(age_of(later, std::vector{own, later}), ToolchainAge::kNewest);
  later.compiler = "nvrtc";
  EXPECT_EQ(age_of(own, std::vector{own, later}), ToolchainAge::kNewest);
  later.codegen_version = 4;
  EXPECT_EQ(age_of(own, std::vector{own, later}), ToolchainAge::kOlderCodegen);
}

}  // namespace
}  // namespace nimble::db
