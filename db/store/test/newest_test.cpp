// The newest measurement of each configuration at each shape, which triggers keep beside the facts.
#include <gmock/gmock.h>

#include "db/store/migrations.h"
#include "db/store/sqlite.h"
#include "db/store/test/fixture.h"
#include "db/store/test/world.h"

namespace nimble::db {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;

std::vector<double> medians(Store& store, const World& world) {
  std::vector<double> all;
  for (const Result& r : store.results({world.workload_hash, world.hardware_hash, world.policy, 3}))
    all.push_back(r.median_ns);
  return all;
}

TEST_F(StoreTest, ALaterMeasurementIsTheNewestAndAnEarlierOneIsNot) {
  auto store = open();
  World world(*store);
  const Uuid trial = world.tried(*store, 8, 64, 300);
  const Measurement m = world.measured(*store, *store->trial(trial), 200);
  const int64_t before = clock;
  clock += 10;
  store->add(m);
  EXPECT_THAT(medians(*store, world), ElementsAre(200));
  clock = before - 10;
  Measurement earlier = m;
  earlier.median_ns = earlier.ci_low_ns = earlier.ci_high_ns = 100;
  earlier.samples_ns = {100};
  earlier.outliers.clear();
  store->add(earlier);
  EXPECT_THAT(medians(*store, world), ElementsAre(200));
  EXPECT_TRUE(store->check().sound()) << testing::PrintToString(store->check().problems);
}

TEST_F(StoreTest, WhatWasMeasuredBeforeItsTrialWasOkCountsOnceItIs) {
  auto store = open();
  World world(*store);
  store->enqueue({{world.trial_key(*store, 8, 64)}});
  const Trial trial = store->claim({world.campaign, "me"}).at(0);
  const Measurement early = world.measured(*store, trial, 200);
  clock += 10;
  store->add(early);
  EXPECT_THAT(medians(*store, world), ElementsAre());
  EXPECT_TRUE(store->policies(world.workload_hash, world.hardware_hash).empty());
  clock -= 10;
  ASSERT_TRUE(store->finish(
      {trial.uuid, "me", TrialState::kOk, "", "", world.measured(*store, trial, 300)}));
  EXPECT_THAT(medians(*store, world), ElementsAre(200));
  EXPECT_TRUE(store->check().sound()) << testing::PrintToString(store->check().problems);
}

TEST_F(StoreTest, ANewestMeasurementThatIsNoneIsFound) {
  auto store = open();
  World world(*store);
  world.tried(*store, 8, 64, 300);
  ASSERT_TRUE(store->check().sound());
  const auto raw = connection();
  raw->run("UPDATE newest_measured SET median_ns = 1");
  EXPECT_THAT(store->check().problems, Contains(HasSubstr("is not known as that")));
  raw->run("UPDATE newest_measured SET measurement = 'none'");
  EXPECT_THAT(store->check().problems, Contains(HasSubstr("for the newest that is none")));
  raw->run("DELETE FROM newest_measured");
  EXPECT_THAT(store->check().problems, Contains(HasSubstr("is not known as that")));
}

// However a merge orders its rows, the same is the newest on both sides.
TEST_F(StoreTest, MergedDatabasesAgreeOnWhatIsNewest) {
  auto store = open();
  World world(*store);
  const Uuid trial = world.tried(*store, 8, 64, 300);
  world.tried(*store, 16, 64, 400);
  store->export_to(file("copy.nimbledb"));
  auto copy = Store::open(file("copy.nimbledb"), options);
  clock += 5;
  store->add(world.measured(*store, *store->trial(trial), 250));
  clock += 5;
  copy->add(world.measured(*copy, *copy->trial(trial), 200));
  copy->add(world.measured(*copy, *copy->trial(trial), 210));
  const std::vector<double> there = medians(*copy, world);
  copy.reset();
  EXPECT_THAT(medians(*store, world), ElementsAre(250, 400));
  store->import_from(file("copy.nimbledb"));
  EXPECT_EQ(medians(*store, world), there);
  EXPECT_TRUE(store->check().sound()) << testing::PrintToString(store->check().problems);
}

// A forged time, or one of a clock that was ahead, would stay the newest whatever is measured
// later.
TEST_F(StoreTest, MeasurementsOfTheFutureAreNotImported) {
  constexpr int64_t kHourMs = 3'600'000;
  auto store = open();
  World world(*store);
  const Uuid trial = world.tried(*store, 8, 64, 300);
  store->export_to(file("copy.nimbledb"));
  auto copy = Store::open(file("copy.nimbledb"), options);
  clock += 30 * kHourMs;
  copy->add(world.measured(*copy, *copy->trial(trial), 200));
  copy->add(world.measured(*copy, *copy->trial(trial), 210));
  copy.reset();
  clock -= 30 * kHourMs;
  const Error error = error_of([&] { store->import_from(file("copy.nimbledb")); });
  EXPECT_EQ(error.status(), Status::kInvalidArgument);
  EXPECT_THAT(error.what(), HasSubstr("2 measurements are from the future"));
  EXPECT_THAT(error.what(), HasSubstr("30 hours ahead"));
  EXPECT_THAT(error.what(), HasSubstr("this machine's clock"));
  EXPECT_THAT(medians(*store, world), ElementsAre(300)) << "all or nothing";
  clock += 6 * kHourMs;  // clocks of two machines may be a day apart
  EXPECT_GT(store->import_from(file("copy.nimbledb")).rows_added, 0);
  // What is here already is not looked at again.
  clock -= 6 * kHourMs;
  EXPECT_EQ(store->import_from(file("copy.nimbledb")).rows_added, 0);
}

// Rows of an older schema are found without being measured again.
TEST(NewestMeasured, AnOlderDatabaseHasItAfterItsMigration) {
  const auto old = connect_to_memory();
  migrate(*old, 15, [] { return int64_t{5}; });
  old->script("PRAGMA foreign_keys = OFF");
  const std::string hash(32, 'a'), uuid(36, 'b');
  old->run("INSERT INTO hardware VALUES (?,'v',1,1,1,'m','isa','c','t',0)", hash);
  old->run("INSERT INTO machine VALUES (?,'box',?)", uuid, hash);
  old->run("INSERT INTO toolchain VALUES (?,'llvm','1','',3,'',0)", hash);
  old->run("INSERT INTO artifact VALUES (?,'code',?,?,?,1,1)", hash, hash, hash, hash);
  old->run(
      "INSERT INTO trial (uuid, campaign, workload, config, shape, role, threads, round, priority, "
      "state, created_at, finished_at) VALUES (?1,?1,?2,?2,?2,'search',2,0,0,'ok',1,1)",
      uuid, hash);
  for (const auto& [name, at] : {std::pair('c', 1), std::pair('d', 2)})
    old->run(
        "INSERT INTO measurement (uuid, trial, artifact, policy, machine, host_state, n, "
        "median_ns, "
        "mad_ns, ci_low_ns, ci_high_ns, stop_reason, created_at) "
        "VALUES (?1,?2,?3,?3,?2,?2,1,7,0,7,7,'ci',?4)",
        std::string(36, name), uuid, hash, at);
  migrate(*old, latest_schema_version(), [] { return int64_t{6}; });
  EXPECT_EQ(old->integer("SELECT count(*) FROM newest_measured"), 1);
  EXPECT_EQ(old->text("SELECT measurement FROM newest_measured"), std::string(36, 'd'));
}

}  // namespace
}  // namespace nimble::db
