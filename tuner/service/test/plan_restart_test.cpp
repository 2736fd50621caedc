// The planner where a service starts anew: a plan is made of what the database tells.
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "tuner/service/plan.h"
#include "tuner/service/test/simulated_fleet.h"

namespace nimble::tuner::plan {
namespace {

// Everything that is told to a plan, in order; a plan made anew from it goes on as the old one.
struct Begun {
  std::string key, machine;
  double at;
};
using Told = std::variant<WantedCase, Begun, CaseOutcome, std::string>;

CampaignPlan made_anew(CampaignPlan plan, const std::vector<Told>& told) {
  for (const Told& t : told) {
    if (const auto* w = std::get_if<WantedCase>(&t)) plan.issued(*w);
    if (const auto* b = std::get_if<Begun>(&t)) plan.begun(b->key, b->machine, b->at);
    if (const auto* o = std::get_if<CaseOutcome>(&t)) plan.finished(*o);
    if (const auto* key = std::get_if<std::string>(&t)) plan.dropped(*key);
  }
  return plan;
}

std::string text_of(const std::vector<WantedCase>& wanted) {
  std::string out;
  for (const WantedCase& w : wanted)
    out += fmt::format("{} {} {} {} {}|{}\n", w.key, name_of(w.phase), w.point,
                       w.machine.value_or("any"), fmt::join(w.configs, ","),
                       fmt::join(w.anchors, ","));
  return out;
}

TEST(Plan, ARestartAtAnyMomentGoesOnWithTheSameCases) {
  const SimulatedSpace space(11);
  const CampaignSpec spec = space.campaign(3, 4, 60);
  const auto run = [&](bool restart, std::vector<WantedCase>& issued) {
    SimulatedFleet fleet;
    fleet.workers = workers(5, 1, 10);
    fleet.campaigns.push_back({"campaign", simulated_plan(spec, space.proposer()), &space});
    std::vector<Told> told;
    fleet.on_issue = [&](size_t, const WantedCase& w) {
      told.emplace_back(w);
      issued.push_back(w);
    };
    fleet.on_begin = [&](size_t, const std::string& key, const std::string& machine, double at) {
      told.emplace_back(Begun{key, machine, at});
    };
    fleet.on_finish = [&](size_t, const CaseOutcome& o) { told.emplace_back(o); };
    fleet.on_drop = [&](size_t, const std::string& key) { told.emplace_back(key); };
    if (restart)
      fleet.before_want = [&](size_t) {
        fleet.campaigns[0].plan = made_anew(simulated_plan(spec, space.proposer()), told);
      };
    EXPECT_TRUE(fleet.run());
  };
  std::vector<WantedCase> once, always;
  run(false, once);
  run(true, always);
  EXPECT_GT(once.size(), 80u);
  EXPECT_EQ(text_of(once), text_of(always));
}

// What would be displaced may have changed while no service was there: the cases that were issued
// are of the finalists of then, and those that follow are compared with them.
TEST(Plan, ARestartVerifiesTheFinalistsThatItBeganWith) {
  const SimulatedSpace space(13);
  const CampaignSpec spec = space.campaign(2, 4, 60);
  bool displaced = false;
  const auto make = [&] {
    return CampaignPlan(spec, space.proposer(), [&](size_t task, const CrossEvidence& e) {
      std::vector<db::Hash> out = usual_finalists(spec.tasks[task], e);
      if (displaced) out.push_back(SimulatedSpace::name(task, {6, 6, 6, 6, 6}));
      return out;
    });
  };
  SimulatedFleet fleet;
  fleet.workers = workers(1);
  fleet.campaigns.push_back({"campaign", make(), &space});
  std::vector<Told> told;
  std::map<std::pair<size_t, int>, std::set<std::vector<db::Hash>>> verified;
  fleet.on_issue = [&](size_t, const WantedCase& w) {
    told.emplace_back(w);
    if (w.phase == Phase::kVerify) verified[{w.task, w.slice}].insert(w.configs);
  };
  fleet.on_begin = [&](size_t, const std::string& key, const std::string& machine, double at) {
    told.emplace_back(Begun{key, machine, at});
  };
  fleet.on_finish = [&](size_t, const CaseOutcome& o) { told.emplace_back(o); };
  fleet.before_want = [&](size_t) {
    displaced = !verified.empty();
    if (displaced) fleet.campaigns[0].plan = made_anew(make(), told);
  };
  ASSERT_TRUE(fleet.run());
  ASSERT_FALSE(verified.empty());
  EXPECT_EQ(verified.begin()->second.size(), 1u) << "all sizes of a verification alike";
  for (const TaskStatus& t : fleet.campaigns[0].plan.tasks())
    EXPECT_EQ(t.verified.points.size(), 4u) << t.note;
}

}  // namespace
}  // namespace nimble::tuner::plan
