// Pages by key, landmarks, cancellation, and what lies behind a measurement.
#include <gmock/gmock.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

#include "db/store/hash.h"
#include "db/store/test/fixture.h"
#include "db/store/test/fleet.h"

namespace nimble::db {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;

// 20 trials with times that repeat, a failed one and a queued one.
struct Many {
  explicit Many(Store& store, int64_t* clock) : world(store) {
    for (int tile = 0; tile < 20; ++tile) {
      *clock += tile % 3;  // some end in the same millisecond
      world.tried(store, tile, 64, 100 + tile % 7, tile % 2 ? Role::kCross : Role::kSearch,
                  90 + tile % 5);
    }
    store.enqueue({{world.trial_key(store, 50, 64)}});
    const Uuid failed = store.claim({world.campaign, "me"}).at(0).uuid;
    store.finish({failed, "me", TrialState::kWrong, "mismatch", "0.3 off"});
    store.enqueue({{world.trial_key(store, 51, 64)}});
  }
  World world;
};

std::vector<Uuid> all_by(Store& store, PageRequest request) {
  std::vector<Uuid> uuids;
  for (;;) {
    const std::vector<TrialRow> page = store.trials(request);
    EXPECT_LE(page.size(), static_cast<size_t>(request.limit));
    for (const TrialRow& row : page) uuids.push_back(row.trial.uuid);
    if (page.empty()) return uuids;
    request.from = page.back().key;
  }
}

TEST_F(StoreTest, PagesGiveEveryRowOnceInEachOrderAndDirection) {
  auto store = open();
  Many many(*store, &clock);
  for (TrialOrder order : {TrialOrder::kQueue, TrialOrder::kFinished, TrialOrder::kTime,
                           TrialOrder::kPredicted, TrialOrder::kState})
    for (bool descending : {false, true}) {
      PageRequest request;
      request.filter.campaign = many.world.campaign;
      request.order = order;
      request.descending = descending;
      request.limit = 1000;
      const std::vector<TrialRow> whole = store->trials(request);
      std::vector<Uuid> expected;
      for (const TrialRow& row : whole) expected.push_back(row.trial.uuid);
      const std::map<TrialOrder, size_t> sizes = {{TrialOrder::kQueue, 22},
                                                  {TrialOrder::kFinished, 21},
                                                  {TrialOrder::kTime, 20},
                                                  {TrialOrder::kPredicted, 20},
                                                  {TrialOrder::kState, 22}};
      ASSERT_THAT(whole, SizeIs(sizes.at(order)));
      EXPECT_TRUE(
          std::is_sorted(whole.begin(), whole.end(), [&](const TrialRow& x, const TrialRow& y) {
            const TrialRow &a = descending ? y : x, &b = descending ? x : y;
            switch (order) {
              case TrialOrder::kQueue:
                return a.trial.position < b.trial.position;
              case TrialOrder::kFinished:
                return a.finished_at < b.finished_at;
              case TrialOrder::kTime:
                return a.median_ns < b.median_ns;
              case TrialOrder::kPredicted:
                return a.trial.predicted_ns < b.trial.predicted_ns;
              case TrialOrder::kState:
                break;
            }
            return name_of(a.trial.state) < name_of(b.trial.state);
          }));
      for (int64_t limit : {1, 3, 7}) {
        request.limit = limit;
        EXPECT_EQ(all_by(*store, request), expected);
      }
      // Backwards from the end, the same rows.
      request.limit = 4;
      request.backwards = true;
      std::vector<Uuid> back;
      for (;;) {
        const std::vector<TrialRow> page = store->trials(request);
        if (page.empty()) break;
        for (auto row = page.rbegin(); row != page.rend(); ++row) back.push_back(row->trial.uuid);
        request.from = page.front().key;
      }
      std::reverse(back.begin(), back.end());
      EXPECT_EQ(back, expected);
      // A landmark leads to the rows behind it.
      const Landmarks marks = store->landmarks(request.filter, order, descending, 6);
      EXPECT_EQ(marks.rows, static_cast<int64_t>(expected.size()));
      ASSERT_THAT(marks.keys, SizeIs(expected.size() / 6));
      request = {request.filter, order, descending, marks.keys[1], false, 1};
      EXPECT_EQ(store->trials(request).at(0).trial.uuid, expected[12]);
    }
}

TEST_F(StoreTest, PagesAreFiltered) {
  auto store = open();
  Many many(*store, &clock);
  const auto count = [&](auto change) {
    PageRequest request;
    request.limit = 1000;
    change(request.filter);
    return store->trials(request).size();
  };
  EXPECT_EQ(count([](TrialFilter&) {}), 21u);
  EXPECT_EQ(count([](TrialFilter& f) { f.role = Role::kCross; }), 10u);
  EXPECT_EQ(count([](TrialFilter& f) { f.failed = true; }), 1u);
  EXPECT_EQ(count([](TrialFilter& f) { f.error_class = "mismatch"; }), 1u);
  EXPECT_EQ(count([](TrialFilter& f) { f.state = TrialState::kOk; }), 20u);
  EXPECT_EQ(count([&](TrialFilter& f) { f.config = many.world.config(*store, 3); }), 1u);
  EXPECT_EQ(count([&](TrialFilter& f) { f.shape = many.world.shape(*store, 64); }), 21u);
  EXPECT_EQ(count([&](TrialFilter& f) {
              f.workload = many.world.workload_hash;
              f.hardware = many.world.hardware_hash;
            }),
            20u);
  EXPECT_EQ(count([](TrialFilter& f) { f.campaign = new_uuid(); }), 0u);
  PageRequest request;
  const TrialRow row = store->trials(request).at(0);
  EXPECT_EQ(row.template_name, "dense");
  EXPECT_EQ(row.dims, (Dims{{"m", 64}}));
  for (TrialOrder order : {TrialOrder::kQueue, TrialOrder::kPredicted, TrialOrder::kState}) {
    request.order = order;
    EXPECT_EQ(error_of([&] { store->trials(request); }).status(), Status::kInvalidArgument);
  }
  request.order = TrialOrder::kTime;
  request.limit = 0;
  EXPECT_EQ(error_of([&] { store->trials(request); }).status(), Status::kInvalidArgument);
}

TEST_F(StoreTest, WhatLiesBehindAMeasurementIsReadable) {
  auto store = open();
  Fleet fleet(*store);
  store->publish(fleet.job({1, 2}, 64));
  JobReport report = fleet.report(store->claim_job({fleet.worker("a")}).value(), 100);
  report.results[1].measurement->twin_ns = {99, 100, 103};
  report.results[1].measurement->drift = 0.01;
  report.host.steal = 0.125;
  store->report(report);
  const std::vector<MeasurementSummary> of_trial = store->measurements(report.results[1].trial);
  ASSERT_THAT(of_trial, SizeIs(1));
  const MeasurementSummary& m = of_trial[0];
  EXPECT_EQ(m.hostname, "a");
  EXPECT_EQ(m.hardware, fleet.world.hardware_hash);
  EXPECT_EQ(m.n, 3);
  EXPECT_EQ(m.measurement.drift, 0.01);
  EXPECT_TRUE(m.has_samples);
  const HostState host = store->host_state(m.measurement.host_state).value();
  EXPECT_EQ(host.governor, "performance");
  EXPECT_EQ(host.steal, 0.125);
  EXPECT_EQ(host.turbo, true);
  EXPECT_EQ(host.smt, std::nullopt);
  EXPECT_FALSE(store->host_state(new_uuid()));
  const std::vector<CorrectnessRecord> checks = store->correctness(m.measurement.artifact);
  ASSERT_THAT(checks, SizeIs(1));
  EXPECT_EQ(checks[0].max_error, 1e-7);
  EXPECT_THAT(store->correctness(m.measurement.artifact, fleet.world.shape(*store, 37)), IsEmpty());
  const std::vector<TwinRow> twins =
      store->twins(fleet.world.workload_hash, fleet.world.hardware_hash);
  ASSERT_THAT(twins, SizeIs(1));
  EXPECT_EQ(twins[0].trial, report.results[1].trial);
  EXPECT_EQ(twins[0].twin_median_ns, 100);
  EXPECT_EQ(twins[0].median_ns, 100);
  EXPECT_THAT(store->twins(fleet.world.workload_hash, "other"), IsEmpty());

  const Uuid table = store->create_table(fleet.world.draft(*store, 1));
  store->activate(table, "tuned");
  clock += 1;
  store->roll_back(table, "slow");
  const std::vector<DispatchChange> history =
      store->history(fleet.world.workload_hash, fleet.world.hardware_hash);
  ASSERT_THAT(history, SizeIs(2));
  EXPECT_EQ(history[0].status, "retired");
  EXPECT_EQ(history[1].reason, "tuned");
}

TEST_F(StoreTest, CampaignsAndWorkloadsComeInPages) {
  auto store = open();
  World world(*store);
  std::vector<Uuid> made = {world.campaign};
  for (int seed = 20; seed < 25; ++seed) {
    clock += seed % 2;
    CampaignKey key = world.key;
    key.seed = seed;
    made.push_back(store->create_campaign(key, 100, ""));
    Workload w = world.workload;
    w.canonical += std::to_string(seed);
    store->put(w);
  }
  std::set<Uuid> seen;
  std::optional<Campaign> after;
  for (;;) {
    const std::vector<Campaign> page = store->campaigns(2, after);
    if (page.empty()) break;
    for (const Campaign& c : page) EXPECT_TRUE(seen.insert(c.uuid).second);
    after = page.back();
  }
  EXPECT_EQ(seen, std::set<Uuid>(made.begin(), made.end()));
  std::vector<std::string> texts;
  for (std::string last;;) {
    const std::vector<Workload> page = store->workloads(4, last);
    if (page.empty()) break;
    for (const Workload& w : page) texts.push_back(w.canonical);
    last = page.back().canonical;
  }
  EXPECT_THAT(texts, SizeIs(6));
  EXPECT_TRUE(std::is_sorted(texts.begin(), texts.end()));
}

TEST_F(StoreTest, AQueryIsCancelledFromAnotherThreadAndTheStoreGoesOn) {
  auto store = open();
  World world(*store);
  const std::shared_ptr<Canceller> canceller = store->canceller();
  canceller->cancel();  // nothing runs
  const auto raw = connection();
  const std::shared_ptr<Canceller> stop = raw->canceller();
  std::atomic<bool> over = false;
  // A query that would take hours; it is told to stop again and again until it has.
  std::thread other([&] {
    while (!over) {
      stop->cancel();
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  });
  const Error error = error_of([&] {
    raw->integer(
        "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000000000000) "
        "SELECT count(*) FROM n");
  });
  over = true;
  other.join();
  EXPECT_EQ(error.status(), Status::kCancelled) << error.what();
  EXPECT_NO_THROW(store->put(Template{"after", 1, ""}));
  EXPECT_EQ(store->campaigns(10, {}).size(), 1u);
  store.reset();
  canceller->cancel();  // the store is gone
}

// A page is a range of an index, whatever the order and the filter it is made for.
TEST_F(FileTest, PagesReadAnIndex) {
  { open(); }
  const auto raw = connection();
  for (const auto& [where, order, index] :
       std::vector<std::tuple<std::string, std::string, std::string>>{
           {"finished_at IS NOT NULL", "finished_at", "trial_by_end"},
           {"median_ns IS NOT NULL", "median_ns", "trial_by_time"},
           {"campaign = 'a'", "position", "trial_by_position"},
           {"campaign = 'a'", "state", "trial_of_campaign_by_state"},
           {"campaign = 'a' AND predicted_ns IS NOT NULL", "predicted_ns",
            "trial_of_campaign_by_prediction"},
           {"campaign = 'a' AND finished_at IS NOT NULL", "finished_at",
            "trial_of_campaign_by_end"},
           {"campaign = 'a' AND median_ns IS NOT NULL", "median_ns", "trial_of_campaign_by_time"},
           {"workload = 'a' AND measured_on = 'b' AND median_ns IS NOT NULL", "median_ns",
            "trial_of_workload_by_time"},
           {"workload = 'a' AND measured_on = 'b' AND finished_at IS NOT NULL", "finished_at",
            "trial_of_workload_by_end"}}) {
    for (const std::string behind : {"", "AND ({1}, uuid) > (5, 'x')"}) {
      Statement plan = raw->prepare(
          fmt::format(fmt::runtime("EXPLAIN QUERY PLAN SELECT * FROM trial WHERE {0} " + behind +
                                   " ORDER BY {1}, uuid LIMIT 10"),
                      where, order));
      std::string text;
      while (plan.step()) text += plan.text(3) + "; ";
      EXPECT_THAT(text, HasSubstr("USING INDEX " + index)) << where;
      EXPECT_THAT(text, Not(HasSubstr("TEMP B-TREE"))) << where;
    }
  }
}

}  // namespace
}  // namespace nimble::db
