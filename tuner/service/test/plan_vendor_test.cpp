// The planner and the vendor's routine, which is a candidate beside ours.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "tuner/service/plan.h"
#include "tuner/service/test/simulated_fleet.h"

namespace nimble::tuner::plan {
namespace {

// The configuration that is fastest, or slowest, over four sizes, of those that do not fail.
db::Hash extreme_of(const SimulatedSpace& space, bool fastest) {
  db::Hash out;
  double found = 0;
  for (int i = 0; i < 16807; ++i) {
    std::array<int, SimulatedSpace::kDims> at;
    for (int d = 0, rest = i; d < SimulatedSpace::kDims; ++d, rest /= 7)
      at[static_cast<size_t>(d)] = rest % 7;
    const std::string config = SimulatedSpace::name(0, at);
    if (config == SimulatedSpace::default_of(0)) continue;
    double all = 1;  // of its times at the sizes over each other's
    for (size_t p = 0; p < 4; ++p) all *= space.time(0, p, config).value_or(NAN) / 1e3;
    if (!std::isnan(all) && (out.empty() || (all < found) == fastest)) found = all, out = config;
  }
  return out;
}

// A campaign of one task whose first proposal is the vendor's routine.
SimulatedCampaign with_vendor(const SimulatedSpace& space, size_t points, const db::Hash& vendor) {
  CampaignSpec spec = space.campaign(1, points, 60);
  spec.tasks[0].vendor = vendor;
  const Propose others = space.proposer();
  return {"campaign",
          simulated_plan(spec,
                         [others, vendor](size_t task, size_t count, const SearchEvidence& known) {
                           std::vector<db::Hash> out = others(task, count, known);
                           std::erase(out, vendor);
                           // As a search that has learnt nothing yet.
                           if (known.sizes[0].ratios.size() < 4 &&
                               !known.sizes[0].ratios.contains(vendor) &&
                               !known.sizes[0].issued.contains(vendor))
                             out.insert(out.begin(), vendor);
                           return out;
                         }),
          &space};
}

db::VendorStanding standing(const CampaignPlan& plan) {
  std::vector<db::BothSides> sizes;
  for (const auto& [point, both] : plan.tasks()[0].both_sides) sizes.push_back(both);
  return db::standing_of(sizes);
}

TEST(Plan, TheVendorsRoutineIsComparedAtEverySizeHoweverSlowItIs) {
  const SimulatedSpace space(6);
  for (const bool fastest : {false, true}) {
    const db::Hash vendor = extreme_of(space, fastest);
    SimulatedFleet fleet;
    fleet.workers = workers(2);
    fleet.campaigns.push_back(with_vendor(space, 4, vendor));
    fleet.on_issue = [&](size_t, const WantedCase& w) {
      EXPECT_EQ(std::count(w.anchors.begin(), w.anchors.end(), vendor), 0);
      if (w.phase == Phase::kCross && std::ranges::find(w.configs, vendor) != w.configs.end()) {
        EXPECT_GT(w.configs.size(), 1u) << "beside the best of ours";
      }
    };
    ASSERT_TRUE(fleet.run());
    const db::VendorStanding s = standing(fleet.campaigns[0].plan);
    EXPECT_EQ(s.sizes, 4u);
    EXPECT_EQ(s.of, 4u);
    EXPECT_EQ(s.failed, 0u);
    if (!fastest) {
      EXPECT_EQ(s.wins, 0u);
      EXPECT_GT(s.slower, 1.5);
    }
  }
}

TEST(Plan, WhatAMachineLacksIsMeasuredOnOthers) {
  const SimulatedSpace space(6);
  const db::Hash vendor = extreme_of(space, true);
  SimulatedFleet fleet;
  fleet.workers = workers(3);
  fleet.campaigns.push_back(with_vendor(space, 4, vendor));
  fleet.lacks = [&](const SimulatedWorker& w, const std::string& config) {
    return config == vendor && w.machine == "machine 0";
  };
  fleet.on_finish = [&](size_t, const CaseOutcome& out) {
    EXPECT_FALSE(out.absent.contains(SimulatedSpace::default_of(0)));
  };
  ASSERT_TRUE(fleet.run());
  const CampaignPlan& plan = fleet.campaigns[0].plan;
  const db::VendorStanding s = standing(plan);
  EXPECT_EQ(s.of, 4u);
  EXPECT_EQ(s.sizes, 4u);
  EXPECT_EQ(s.failed, 0u);
  // Where it would be verified somebody has it.
  const TaskStatus task = plan.tasks()[0];
  EXPECT_NE(task.judge, "machine 0");
  EXPECT_TRUE(task.verified.ratios.contains(vendor));
}

// Nobody waits for a second machine.
TEST(Plan, WhatTheOnlyMachineLacksIsAskedForOnce) {
  const SimulatedSpace space(6);
  const db::Hash vendor = extreme_of(space, true);
  SimulatedFleet fleet;
  fleet.workers = workers(1);
  fleet.campaigns.push_back(with_vendor(space, 2, vendor));
  fleet.lacks = [&](const SimulatedWorker&, const std::string& config) { return config == vendor; };
  int asked = 0;
  fleet.on_issue = [&](size_t, const WantedCase& w) {
    EXPECT_FALSE(w.avoid);
    asked += std::ranges::find(w.configs, vendor) != w.configs.end();
  };
  ASSERT_TRUE(fleet.run());
  EXPECT_EQ(asked, 1);
  EXPECT_EQ(fleet.campaigns[0].plan.tasks()[0].verified.points.size(), 2u);
}

TEST(Plan, WhatEveryMachineLacksIsGivenUpAndIsNoFailure) {
  const SimulatedSpace space(6);
  const db::Hash vendor = extreme_of(space, true);
  SimulatedFleet fleet;
  fleet.workers = workers(2);
  fleet.campaigns.push_back(with_vendor(space, 4, vendor));
  fleet.lacks = [&](const SimulatedWorker&, const std::string& config) { return config == vendor; };
  int asked = 0;
  fleet.on_issue = [&](size_t, const WantedCase& w) {
    asked += std::ranges::find(w.configs, vendor) != w.configs.end();
  };
  ASSERT_TRUE(fleet.run());
  const CampaignPlan& plan = fleet.campaigns[0].plan;
  EXPECT_EQ(asked, 2) << "each once";
  const TaskStatus task = plan.tasks()[0];
  EXPECT_EQ(task.note, "");
  EXPECT_EQ(task.verified.points.size(), 4u);
  EXPECT_FALSE(task.verified.ratios.contains(vendor));
  const db::VendorStanding s = standing(plan);
  EXPECT_EQ(s.of, 4u);
  EXPECT_EQ(s.sizes, 0u);
  EXPECT_EQ(s.failed, 0u);
}

}  // namespace
}  // namespace nimble::tuner::plan
