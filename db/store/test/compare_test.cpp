// Comparing what was measured at two times: drift, intervals, and what counts as a regression.
#include "db/store/compare.h"

#include <gmock/gmock.h>

#include "db/store/test/fixture.h"

namespace nimble::db {
namespace {

using testing::DoubleNear;

class CompareTest : public StoreTest {
 protected:
  // One measurement of a new trial of `campaign`, with an interval of ± 1 %.
  struct Timed {
    int tile = 8;
    int64_t m = 64;
    double ns = 100;
    Role role = Role::kVerify;
    Uuid session = {};
    std::string code = {};  // default: follows from the tile
    double width = 0.01;
  };
  void add(Store& store, const World& world, const Uuid& campaign, const Timed& t) {
    TrialKey key = world.trial_key(store, t.tile, t.m, t.role);
    key.campaign = campaign;
    ASSERT_EQ(store.enqueue({{key}}), 1);
    ClaimRequest request;
    request.campaign = campaign;
    request.owner = "me";
    const std::vector<Trial> claimed = store.claim(request);
    ASSERT_EQ(claimed.size(), 1u);
    Measurement measured = world.measured(store, claimed[0], t.ns);
    measured.ci_low_ns = t.ns * (1 - t.width);
    measured.ci_high_ns = t.ns * (1 + t.width);
    if (!t.session.empty()) measured.host_state = t.session;
    if (!t.code.empty())
      measured.artifact =
          store.put(Artifact{t.code, world.workload_hash, key.config, world.toolchain_hash, 1, 1});
    ASSERT_TRUE(store.finish({claimed[0].uuid, "me", TrialState::kOk, "", "", measured}));
  }
  Uuid another_campaign(Store& store, const World& world) {
    CampaignKey key = world.key;
    key.seed = 8;
    return store.create_campaign(key, 300, "nimble tune m --seed 8");
  }
  Uuid session(Store& store) {
    return store.put(HostState{"", "performance", true, {}, "0,1", 0, 0});
  }
  static MeasuredQuery of(const Uuid& campaign) {
    MeasuredQuery q;
    q.campaign = campaign;
    return q;
  }
};

TEST_F(CompareTest, WhatBothHaveIsComparedAndNothingElse) {
  auto store = open();
  World world(*store);
  const Uuid other = another_campaign(*store, world);
  EXPECT_TRUE(compare(*store, of(world.campaign), of(other), 0.02).rows.empty());
  add(*store, world, world.campaign, {8, 64, 100});
  add(*store, world, world.campaign, {16, 64, 90});
  add(*store, world, world.campaign, {8, 32, 50});
  add(*store, world, other, {8, 64, 120});
  add(*store, world, other, {8, 16, 20});
  const CampaignDiff diff = compare(*store, of(world.campaign), of(other), 0.02);
  ASSERT_EQ(diff.rows.size(), 1u);
  const Compared& row = diff.rows[0];
  EXPECT_EQ(row.a.median_ns, 90) << "the best, not the same configuration";
  EXPECT_EQ(row.b.median_ns, 120);
  EXPECT_EQ(row.anchors, 0) << "tile 8 is the best of one side";
  EXPECT_THAT(row.ratio.value, DoubleNear(120.0 / 90, 1e-9));
  EXPECT_THAT(row.ratio.low, DoubleNear(120.0 / 90 * std::exp(-std::sqrt(2) * 0.01), 1e-3));
  EXPECT_EQ(row.verdict, Verdict::kSlower);
  EXPECT_EQ(diff.slower, 1);
  EXPECT_THAT(diff.mean.value, DoubleNear(120.0 / 90, 1e-9));
  // The other way round.
  const CampaignDiff back = compare(*store, of(other), of(world.campaign), 0.02);
  EXPECT_EQ(back.rows[0].verdict, Verdict::kFaster);
  EXPECT_THAT(back.rows[0].ratio.value * row.ratio.value, DoubleNear(1, 1e-9));
  EXPECT_THAT(back.rows[0].ratio.high * row.ratio.low, DoubleNear(1, 1e-9));
}

// A machine that is half as fast that day slows down the anchor, too.
TEST_F(CompareTest, AnchorsTakeOutTheDriftOfAnHour) {
  auto store = open();
  World world(*store);
  const Uuid other = another_campaign(*store, world);
  const Uuid late = session(*store);
  add(*store, world, world.campaign, {8, 64, 100});
  add(*store, world, world.campaign, {1, 64, 300, Role::kBaseline});
  add(*store, world, other, {16, 64, 200, Role::kVerify, late});
  add(*store, world, other, {1, 64, 600, Role::kBaseline, late});
  const Compared row = compare(*store, of(world.campaign), of(other), 0.02).rows.at(0);
  EXPECT_EQ(row.anchors, 1);
  EXPECT_THAT(row.drift, DoubleNear(2, 1e-9));
  EXPECT_THAT(row.ratio.value, DoubleNear(1, 1e-9));
  EXPECT_EQ(row.verdict, Verdict::kSame);
  EXPECT_LT(row.ratio.low, std::exp(-0.0195)) << "the anchors' intervals widen it";
}

TEST_F(CompareTest, AnAnchorOfAnotherSessionOrOtherCodeIsNone) {
  auto store = open();
  World world(*store);
  const Uuid other = another_campaign(*store, world);
  const Uuid late = session(*store), later = session(*store);
  add(*store, world, world.campaign, {8, 64, 100});
  add(*store, world, world.campaign, {1, 64, 300, Role::kBaseline});
  add(*store, world, world.campaign, {2, 64, 300, Role::kBaseline});
  add(*store, world, other, {16, 64, 200, Role::kVerify, late});
  add(*store, world, other, {1, 64, 600, Role::kBaseline, later});
  add(*store, world, other, {2, 64, 600, Role::kBaseline, late, "changed"});
  const Compared row = compare(*store, of(world.campaign), of(other), 0.02).rows.at(0);
  EXPECT_EQ(row.anchors, 0);
  EXPECT_THAT(row.ratio.value, DoubleNear(2, 1e-9));
}

TEST_F(CompareTest, ADifferenceWithinTheIntervalOrTheSmallestIsNone) {
  auto store = open();
  World world(*store);
  const Uuid other = another_campaign(*store, world);
  add(*store, world, world.campaign, {8, 16, 100});
  add(*store, world, other, {8, 16, 103, Role::kVerify, {}, {}, 0.03});
  add(*store, world, world.campaign, {8, 32, 100, Role::kVerify, {}, {}, 0.0001});
  add(*store, world, other, {8, 32, 101, Role::kVerify, {}, {}, 0.0001});
  const auto verdicts = [&](double smallest) {
    const CampaignDiff diff = compare(*store, of(world.campaign), of(other), smallest);
    return std::pair(diff.slower, diff.faster);
  };
  EXPECT_EQ(verdicts(0.02), std::pair(int64_t{0}, int64_t{0}));
  EXPECT_EQ(verdicts(0.005), std::pair(int64_t{1}, int64_t{0})) << "the sure one per cent";
}

TEST_F(CompareTest, TheMostCarefulRoleOfBothSidesCountsAndItsNewestTimes) {
  auto store = open();
  World world(*store);
  const Uuid other = another_campaign(*store, world);
  add(*store, world, world.campaign, {8, 64, 50, Role::kSearch});  // lucky
  add(*store, world, world.campaign, {8, 64, 100, Role::kCross});
  // The other has none; and of another session it is no anchor.
  add(*store, world, world.campaign, {16, 64, 70, Role::kVerify, session(*store)});
  add(*store, world, other, {8, 64, 100, Role::kCross});
  add(*store, world, other, {16, 64, 60, Role::kSearch});
  const Compared row = compare(*store, of(world.campaign), of(other), 0.02).rows.at(0);
  EXPECT_EQ(row.a.role, Role::kCross);
  EXPECT_THAT(row.ratio.value, DoubleNear(1, 1e-9));
}

TEST_F(CompareTest, HardwareAndToolchainsAreSidesToo) {
  auto store = open();
  World world(*store);
  add(*store, world, world.campaign, {8, 64, 100});
  Hardware newer = world.hardware;
  newer.model_name = "Newer";
  const Hash hash = store->put(newer);
  World there = world;
  there.machine = store->put(Machine{"", "box2", hash});
  there.toolchain.version = "20.1.0";
  there.toolchain_hash = store->put(there.toolchain);
  const Uuid other = another_campaign(*store, world);
  add(*store, there, other, {8, 64, 50});
  MeasuredQuery a, b;
  a.hardware = world.hardware_hash;
  b.hardware = hash;
  EXPECT_THAT(compare(*store, a, b, 0.02).rows.at(0).ratio.value, DoubleNear(0.5, 1e-9));
  a = b = {};
  a.toolchains = {world.toolchain_hash};
  b.toolchains = {there.toolchain_hash};
  EXPECT_THAT(compare(*store, a, b, 0.02).rows.at(0).ratio.value, DoubleNear(0.5, 1e-9));
}

TEST_F(CompareTest, TheStreamStopsWhenToldTo) {
  auto store = open();
  World world(*store);
  for (int tile = 1; tile <= 3; ++tile) add(*store, world, world.campaign, {tile, 64, 100});
  int seen = 0;
  store->measured({}, [&](const Measured& m) {
    EXPECT_EQ(m.campaign, world.campaign);
    EXPECT_EQ(m.dims, (Dims{{"m", 64}}));
    EXPECT_EQ(m.template_name, "dense");
    return ++seen < 2;
  });
  EXPECT_EQ(seen, 2);
  EXPECT_TRUE(store->campaign(world.campaign)) << "and the store goes on";
}

}  // namespace
}  // namespace nimble::db
