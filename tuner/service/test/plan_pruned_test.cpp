// The planner and candidates that are not measured, for their code says enough.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tuner/service/plan.h"
#include "tuner/service/test/simulated_fleet.h"

namespace nimble::tuner::plan {
namespace {

// It was not measured, so it neither counts towards the search's end nor speaks for it.
TEST(Plan, WhatIsPrunedIsNoTrialOfASearch) {
  const CampaignSpec spec = SimulatedSpace(7).campaign(1, 3, 100);
  CampaignPlan plan = simulated_plan(spec, SimulatedSpace(7).proposer());
  for (int cases = 0; cases < 6; ++cases)
    for (const WantedCase& w : plan.want({0, 1, {"m"}})) {
      CaseOutcome out{w.key, {"m", "kind"}, 0.1, {{spec.tasks[0].default_config, 1000.0}}};
      if (w.phase == Phase::kBaseline || w.phase == Phase::kSearch)
        for (const db::Hash& c : w.configs) {
          out.times_ns[c] = std::nullopt;
          out.pruned.insert(c);
        }
      plan.finished(out);
    }
  const TaskStatus t = plan.tasks()[0];
  EXPECT_GT(t.pruned, 0);
  EXPECT_EQ(t.trials, t.pruned);
  EXPECT_EQ(t.failed, t.pruned);
  EXPECT_EQ(t.searched, 0);
}

// Its cases take workers next to no time, so that no budget would end it.
TEST(Plan, ASearchEndsOfWhichNothingIsMeasured) {
  const Propose endless = [](size_t task, size_t count, const SearchEvidence& known) {
    const size_t before = known.sizes[0].ratios.size() + known.sizes[0].issued.size();
    std::vector<db::Hash> out;
    for (size_t i = 0; i < count; ++i) out.push_back(fmt::format("{}/new {}", task, before + i));
    return out;
  };
  const CampaignSpec spec = SimulatedSpace(7).campaign(1, 3, 100);
  CampaignPlan plan = simulated_plan(spec, endless);
  for (int cases = 0; !plan.done() && cases < 3000; ++cases)
    for (const WantedCase& w : plan.want({0, 1, {"m"}})) {
      CaseOutcome out{w.key, {"m", "kind"}, 1e-6, {{spec.tasks[0].default_config, 1000.0}}};
      for (const db::Hash& c : w.configs) {
        out.times_ns[c] = std::nullopt;
        out.pruned.insert(c);
      }
      plan.finished(out);
    }
  EXPECT_TRUE(plan.done());
  EXPECT_GT(plan.tasks()[0].pruned, 500);
  EXPECT_LT(plan.tasks()[0].pruned, 1500);
}

}  // namespace
}  // namespace nimble::tuner::plan
