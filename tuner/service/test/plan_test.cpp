// The planner against a simulated fleet.
#include "tuner/service/plan.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "tuner/service/test/simulated_fleet.h"

namespace nimble::tuner::plan {
namespace {

SimulatedCampaign campaign_of(const SimulatedSpace& space, const CampaignSpec& spec,
                              const std::string& uuid = "campaign") {
  return {uuid, simulated_plan(spec, space.proposer()), &space};
}

int64_t trials_of(const CampaignPlan& plan) {
  int64_t sum = 0;
  for (const TaskStatus& t : plan.tasks()) sum += t.trials;
  return sum;
}

TEST(Plan, OneWorkerGoesThroughAllPhasesWithinItsBudget) {
  const SimulatedSpace space(1);
  SimulatedFleet fleet;
  fleet.workers = workers(1);
  fleet.campaigns.push_back(campaign_of(space, space.campaign(3, 5, 120)));
  ASSERT_TRUE(fleet.run());
  const CampaignPlan& plan = fleet.campaigns[0].plan;
  for (const TaskStatus& t : plan.tasks()) {
    EXPECT_EQ(t.phase, Phase::kDone);
    EXPECT_EQ(t.note, "");
    EXPECT_EQ(t.verified.points.size(), 5u);
    EXPECT_GE(t.verified.ratios.size(), 2u) << "the default and a finalist";
    EXPECT_LT(t.best_ratio, 0.6);
  }
  EXPECT_LE(plan.spent_s(), 120 * 1.02);
  EXPECT_GE(plan.spent_s(), 120 * 0.85);
  EXPECT_NEAR(plan.spent_s(), fleet.campaigns[0].consumed, 1e-6);
}

// The figures of the promise: what one worker would find, in a sixteenth of the time.
TEST(Plan, SixteenWorkersOfWhichOneIsTenTimesSlowerAreBusyAndFindWhatOneDoes) {
  double one = 0, many = 0;
  const int seeds = 3;
  for (int seed = 0; seed < seeds; ++seed) {
    const SimulatedSpace space(static_cast<uint64_t>(seed) + 10);
    SimulatedFleet alone, fleet;
    alone.workers = workers(1);
    alone.campaigns.push_back(campaign_of(space, space.campaign(8, 5, 300)));
    ASSERT_TRUE(alone.run());
    fleet.workers = workers(16, 1, 10);
    fleet.campaigns.push_back(campaign_of(space, space.campaign(8, 5, 300)));
    ASSERT_TRUE(fleet.run());
    EXPECT_GE(fleet.busy_share(fleet.last_useful), 0.9) << "seed " << seed;
    // Equal trials: the slow worker's machine-seconds bring fewer, so no more than one worker's.
    EXPECT_LE(trials_of(fleet.campaigns[0].plan), trials_of(alone.campaigns[0].plan) * 1.05);
    one += std::log(worth(space, alone.campaigns[0].plan)) / seeds;
    many += std::log(worth(space, fleet.campaigns[0].plan)) / seeds;
  }
  EXPECT_LE(std::exp(many - one), 1.02) << "one " << std::exp(one) << " many " << std::exp(many);
}

TEST(Plan, CampaignsShareTheWorkersFairly) {
  const SimulatedSpace a(2), b(3);
  SimulatedFleet fleet;
  fleet.workers = workers(8);
  fleet.campaigns.push_back(campaign_of(a, a.campaign(4, 4, 300), "a"));
  fleet.campaigns.push_back(campaign_of(b, b.campaign(4, 4, 300), "b"));
  fleet.campaigns[1].starts_at = 10;
  fleet.run(20);
  const double before = 10 * 8;  // the first had all workers
  EXPECT_NEAR(fleet.campaigns[0].consumed, before + 5 * 8, 6);
  EXPECT_NEAR(fleet.campaigns[1].consumed, 5 * 8, 6) << "half of what there was since it came";
}

TEST(Plan, APausedCampaignGetsNothingAndIsOwedNothing) {
  const SimulatedSpace a(2), b(3);
  SimulatedFleet fleet;
  fleet.workers = workers(4);
  fleet.campaigns.push_back(campaign_of(a, a.campaign(4, 4, 200), "a"));
  fleet.campaigns.push_back(campaign_of(b, b.campaign(4, 4, 200), "b"));
  fleet.campaigns[1].pause_from = 2;
  fleet.campaigns[1].pause_until = 12;
  fleet.run(22);
  // 2 s shared, 10 s alone, 10 s shared.
  // Nearly: what workers hold at the end has not been told yet.
  EXPECT_NEAR(fleet.campaigns[1].consumed, 4 * 6, 6);
  EXPECT_NEAR(fleet.campaigns[0].consumed, 4 * 16, 6);
}

TEST(Plan, AStoppedCampaignVerifiesWhatItKnows) {
  const SimulatedSpace space(4);
  for (double moment : {0.1, 1.0, 3.0, 10.0, 20.0, 40.0, 60.0}) {
    SimulatedFleet fleet;
    fleet.workers = workers(4);
    fleet.campaigns.push_back(campaign_of(space, space.campaign(2, 4, 400)));
    double stopped_at = -1;
    fleet.before_want = [&](size_t) {
      if (fleet.now < moment || stopped_at >= 0) return;
      stopped_at = fleet.now;
      fleet.campaigns[0].plan.stop();
    };
    ASSERT_TRUE(fleet.run(1000)) << moment;
    ASSERT_GE(stopped_at, 0);
    EXPECT_LT(fleet.campaigns[0].finished_at, stopped_at + 15) << moment;
    for (const TaskStatus& t : fleet.campaigns[0].plan.tasks()) {
      EXPECT_GE(t.verified.ratios.size(), 2u) << moment << " " << t.note;
      EXPECT_GE(t.verified.points.size(), 2u) << moment << " " << t.note;
    }
  }
}

TEST(Plan, AWorkerThatDiesCostsItsCaseAndNothingElse) {
  const SimulatedSpace space(5);
  SimulatedFleet fleet;
  fleet.workers = workers(4);
  fleet.workers[0].dies_at = 12;
  fleet.workers[1].dies_at = 19;
  fleet.lease_s = 5;
  fleet.campaigns.push_back(campaign_of(space, space.campaign(3, 4, 160)));
  ASSERT_TRUE(fleet.run());
  for (const TaskStatus& t : fleet.campaigns[0].plan.tasks()) {
    EXPECT_EQ(t.verified.points.size(), 4u);
    EXPECT_NE(t.judge, "machine 0") << "it was dead by then";
  }
}

// A default schedule that was interrupted praises whatever stood beside it.
TEST(Plan, ADisturbedDefaultCrownsNobody) {
  double quiet = 0, loud = 0;
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    const SimulatedSpace space(seed);
    std::vector<double> best;  // of tasks, on a quiet machine
    for (const double disturbed : {0.0, 0.05}) {
      SimulatedFleet fleet;
      fleet.workers = workers(2);
      fleet.disturbed = disturbed;
      fleet.campaigns.push_back(campaign_of(space, space.campaign(3, 5, 200)));
      ASSERT_TRUE(fleet.run());
      const CampaignPlan& plan = fleet.campaigns[0].plan;
      (disturbed > 0 ? loud : quiet) += std::log(worth(space, plan)) / 5;
      for (size_t t = 0; t < plan.tasks().size(); ++t)
        if (disturbed == 0)
          best.push_back(plan.tasks()[t].best_ratio);
        else
          EXPECT_GT(plan.tasks()[t].best_ratio, best[t] * 0.5) << "seed " << seed;
    }
  }
  EXPECT_LE(std::exp(loud - quiet), 1.03);
}

TEST(Plan, AMachineThatDisagreesIsSetAsideAndASlowOneIsNot) {
  const SimulatedSpace space(6);
  SimulatedFleet fleet;
  fleet.workers = workers(6, 1, 3);
  fleet.workers[5].bias = 0.7;
  fleet.campaigns.push_back(campaign_of(space, space.campaign(3, 4, 300)));
  ASSERT_TRUE(fleet.run());
  for (const MachineStatus& m : fleet.campaigns[0].plan.machines()) {
    EXPECT_EQ(m.set_aside, m.uuid == "machine 5") << m.uuid << " " << m.apart << " " << m.noise;
    if (m.uuid == "machine 0") {
      EXPECT_NEAR(m.slowness, 3, 0.5);
    }
  }
  for (const TaskStatus& t : fleet.campaigns[0].plan.tasks()) EXPECT_NE(t.judge, "machine 5");
}

TEST(Plan, ATaskWhoseDefaultFailsIsGivenUp) {
  CampaignSpec spec = SimulatedSpace(7).campaign(1, 2, 100);
  CampaignPlan plan = simulated_plan(spec, SimulatedSpace(7).proposer());
  const Fleet fleet{0, 1, {"m"}};
  int cases = 0;
  for (; !plan.done() && cases < 20; ++cases) {
    const std::vector<WantedCase> wanted = plan.want(fleet);
    if (wanted.empty()) break;
    CaseOutcome out{wanted[0].key, {"m", "kind"}, 0.1, {{spec.tasks[0].default_config, {}}}};
    plan.finished(out);
  }
  EXPECT_EQ(cases, 3);
  EXPECT_TRUE(plan.done());
  EXPECT_EQ(plan.tasks()[0].note, "the default schedule fails");
}

TEST(Plan, WhereNothingIsFasterTheDefaultAloneIsTheResult) {
  const SimulatedSpace space(7);
  const Propose one = [](size_t task, size_t, const SearchEvidence& known) {
    const std::string c = SimulatedSpace::name(task, {6, 6, 6, 6, 6});
    const bool asked = known.sizes[0].ratios.contains(c) || known.sizes[0].issued.contains(c);
    return asked ? std::vector<db::Hash>{} : std::vector<db::Hash>{c};
  };
  const CampaignSpec spec = space.campaign(1, 3, 100);
  CampaignPlan plan = simulated_plan(spec, one);
  const db::Hash base = spec.tasks[0].default_config;
  std::set<Phase> phases;
  for (int cases = 0; !plan.done() && cases < 50; ++cases)
    for (const WantedCase& w : plan.want({0, 1, {"m"}})) {
      phases.insert(w.phase);
      CaseOutcome out{w.key, {"m", "kind"}, 0.1, {{base, 1000.0}}};
      for (const db::Hash& c : w.configs) out.times_ns[c] = 3000.0;
      plan.finished(out);
    }
  EXPECT_TRUE(plan.done());
  EXPECT_FALSE(phases.contains(Phase::kVerify)) << "no case is spent on it";
  const TaskStatus t = plan.tasks()[0];
  EXPECT_EQ(t.note, "default schedule kept: nothing is faster");
  EXPECT_FALSE(t.verified.points.empty());
  EXPECT_EQ(t.verified.ratios, (std::map<db::Hash, std::vector<double>>{
                                   {base, std::vector<double>(t.verified.points.size(), 1.0)}}));
}

// Each candidate of the search is timed at every size that it runs at, and each of these has its
// say in which are evaluated.
TEST(Plan, ASearchRunsAtSeveralSizes) {
  const SimulatedSpace space(12);
  CampaignSpec spec = space.campaign(2, 5, 100);
  for (TaskSpec& task : spec.tasks) task.searched = {0.5, 0.3, 0.2};
  SimulatedFleet fleet;
  fleet.workers = workers(2);
  fleet.campaigns.push_back(campaign_of(space, spec));
  std::array<std::map<size_t, std::set<db::Hash>>, 2> searched;
  fleet.on_issue = [&](size_t, const WantedCase& w) {
    if (w.phase != Phase::kBaseline && w.phase != Phase::kSearch) return;
    EXPECT_LT(w.point, w.phase == Phase::kBaseline ? 1u : 3u);
    searched[w.task][w.point].insert(w.configs.begin(), w.configs.end());
  };
  ASSERT_TRUE(fleet.run());
  for (size_t t = 0; t < 2; ++t) {
    const TaskStatus status = fleet.campaigns[0].plan.tasks()[t];
    EXPECT_EQ(status.phase, Phase::kDone);
    EXPECT_EQ(status.note, "");
    EXPECT_LT(status.best_ratio, 0.6);
    EXPECT_EQ(status.searched, std::ssize(searched[t][0])) << "a trial is a configuration";
    for (const size_t p : {1u, 2u}) {
      for (const db::Hash& c : searched[t][p]) EXPECT_TRUE(searched[t][0].contains(c));
      // But for what fails, the second anchor and what the end left out.
      EXPECT_GE(searched[t][p].size() * 10, searched[t][0].size() * 7);
    }
  }
}

TEST(Plan, ASearchWithoutTimeForMoreRunsAtOneSize) {
  const SimulatedSpace space(12);
  const auto searched = [&](double budget_s) {
    CampaignSpec spec = space.campaign(1, 3, budget_s);
    spec.tasks[0].searched = {0.5, 0.3, 0.2};
    SimulatedFleet fleet;
    fleet.workers = workers(1);
    fleet.campaigns.push_back(campaign_of(space, spec));
    std::set<size_t> points;
    fleet.on_issue = [&](size_t, const WantedCase& w) {
      if (w.phase == Phase::kSearch) points.insert(w.point);
    };
    EXPECT_TRUE(fleet.run());
    EXPECT_EQ(fleet.campaigns[0].plan.tasks()[0].sizes_searched, points.size());
    return points.size();
  };
  EXPECT_EQ(searched(2), 1u);
  EXPECT_EQ(searched(100), 3u);
}

TEST(Plan, ASearchEndsWhenTrialsGainNothingOrAreEnough) {
  const SimulatedSpace space(13);
  const auto searched = [&](SearchEnd end) {
    CampaignSpec spec = space.campaign(1, 3, 300);
    spec.search_end = end;
    SimulatedFleet fleet;
    fleet.workers = workers(1);
    fleet.campaigns.push_back(campaign_of(space, spec));
    EXPECT_TRUE(fleet.run());
    EXPECT_EQ(fleet.campaigns[0].plan.tasks()[0].note, "");
    EXPECT_FALSE(fleet.campaigns[0].plan.tasks()[0].verified.points.empty());
    return fleet.campaigns[0].plan.tasks()[0].searched;
  };
  const int64_t endless = 1'000'000;
  const int64_t most = searched({endless, 150});
  EXPECT_GE(most, 150);
  EXPECT_LE(most, 150 + 16) << "cases that were out";
  const int64_t patient = searched({200, endless}), hasty = searched({60, endless});
  EXPECT_GE(hasty, 60);
  EXPECT_GE(patient, 200);
  EXPECT_LE(hasty, patient);
  EXPECT_LT(patient, searched({endless, endless}));
}

// Each case gains 0.8 % at most, and all of them together a third.
TEST(Plan, GainsThatAreSmallAloneAddUp) {
  const SimulatedSpace space(13);
  CampaignSpec spec = space.campaign(1, 2, 1000);
  spec.search_end = {40, 400};
  int64_t made = 0;
  const Propose another = [&](size_t, size_t count, const SearchEvidence&) {
    std::vector<db::Hash> out;
    for (size_t i = 0; i < count; ++i) out.push_back("candidate " + std::to_string(made++));
    return out;
  };
  CampaignPlan plan = simulated_plan(spec, another);
  std::map<db::Hash, double> times = {{spec.tasks[0].default_config, 1000.0}};
  double next_ns = 1000;
  for (int turns = 0; !plan.done() && turns < 2000; ++turns)
    for (const WantedCase& w : plan.want({0, 1, {"m"}})) {
      CaseOutcome out{w.key, {"m", "kind"}, 0.1, {}};
      for (const auto* list : {&w.anchors, &w.configs})
        for (const db::Hash& c : *list) {
          const auto [at, fresh] = times.try_emplace(c, next_ns);
          if (fresh) next_ns *= 0.999;
          out.times_ns[c] = at->second;
        }
      plan.finished(out);
    }
  EXPECT_TRUE(plan.done());
  EXPECT_GE(plan.tasks()[0].searched, 400);
}

TEST(Plan, AnOutcomeToldTwiceCountsOnce) {
  const SimulatedSpace space(8);
  CampaignPlan plan = simulated_plan(space.campaign(1, 2, 100), space.proposer());
  const WantedCase w = plan.want({0, 1, {"m"}}).at(0);
  CaseOutcome out{w.key, {"m", "kind"}, 0.5, {}};
  for (const auto* list : {&w.anchors, &w.configs})
    for (const db::Hash& c : *list) out.times_ns[c] = space.time(0, 0, c);
  plan.finished(out);
  const int64_t trials = plan.tasks()[0].trials;
  plan.finished(out);
  EXPECT_EQ(plan.tasks()[0].trials, trials);
  EXPECT_EQ(plan.spent_s(), 0.5);
}

TEST(Plan, ASizeThatCannotBeIsNotWanted) {
  const SimulatedSpace space(6);
  SimulatedFleet fleet;
  fleet.workers = workers(2);
  fleet.campaigns.push_back(campaign_of(space, space.campaign(1, 4, 60)));
  fleet.campaigns[0].plan.impossible(0, 2);
  fleet.on_issue = [](size_t, const WantedCase& w) { EXPECT_NE(w.point, 2u); };
  ASSERT_TRUE(fleet.run());
  EXPECT_EQ(fleet.campaigns[0].plan.tasks()[0].verified.points, (std::vector<size_t>{0, 1, 3}));
}

// Of a plan that is made anew: whoever writes to a database may write such a case.
TEST(Plan, ACaseOfTheSearchBeforeTheBaselineIsLearnt) {
  const SimulatedSpace space(8);
  WantedCase early =
      simulated_plan(space.campaign(1, 2, 100), space.proposer()).want({0, 1, {"m"}}).at(0);
  early.phase = Phase::kSearch;
  CampaignPlan plan = simulated_plan(space.campaign(1, 2, 100), space.proposer());
  plan.issued(early);
  CaseOutcome out{early.key, {"m", "kind"}, 0.5, {}};
  for (const auto* list : {&early.anchors, &early.configs})
    for (const db::Hash& c : *list) out.times_ns[c] = space.time(0, 0, c);
  plan.finished(out);
  EXPECT_EQ(plan.tasks()[0].phase, Phase::kBaseline);
  EXPECT_EQ(plan.want({0, 1, {"m"}}).at(0).phase, Phase::kBaseline);
}

// It is not measured again, so it must not be wanted.
TEST(Plan, WhatFailedIsKnownThoughItsCaseSaysNothingElse) {
  const SimulatedSpace space(7);
  CampaignPlan plan = simulated_plan(space.campaign(1, 2, 60), space.proposer());
  Fleet fleet{0, 1, {"machine"}};
  const WantedCase first = plan.want(fleet).at(0);
  CaseOutcome out{first.key, {"machine", "kind"}, 1, {}};
  out.times_ns[first.configs.at(0)] = std::nullopt;
  plan.finished(out);
  EXPECT_EQ(plan.tasks()[0].failed, 1);
  for (const WantedCase& w : plan.want(fleet))
    EXPECT_EQ(std::count(w.configs.begin(), w.configs.end(), first.configs[0]), 0);
}

TEST(Plan, KeysOfCasesThatNobodyKnowsOfAreNotGivenAgain) {
  const SimulatedSpace space(8);
  CampaignPlan plan = simulated_plan(space.campaign(1, 2, 60), space.proposer());
  WantedCase published = plan.want({0, 1, {"machine"}}).at(0);
  published.key = "0/7";
  CampaignPlan anew = simulated_plan(space.campaign(1, 2, 60), space.proposer());
  anew.issued(published);
  anew.dropped("0/7");
  EXPECT_EQ(anew.want({0, 1, {"machine"}}).at(0).key, "0/8");
}

TEST(Plan, AStoppedCampaignGoesOnWithALargerBudget) {
  const SimulatedSpace space(9);
  SimulatedFleet fleet;
  fleet.workers = workers(2);
  fleet.campaigns.push_back(campaign_of(space, space.campaign(1, 2, 30)));
  CampaignPlan& plan = fleet.campaigns[0].plan;
  bool stopped = false, extended = false;
  fleet.before_want = [&](size_t) {
    if (!stopped && plan.spent_s() > 5) plan.stop(), stopped = true;
    if (stopped && !extended && plan.done()) plan.extend(40), extended = true;
  };
  ASSERT_TRUE(fleet.run());
  EXPECT_TRUE(extended);
  EXPECT_GT(plan.spent_s(), 20);
}

TEST(Plan, AStragglerIsIssuedAgainAndTheFirstAnswerCounts) {
  const SimulatedSpace space(9);
  SimulatedFleet fleet;
  fleet.workers = workers(8, 1, 200);  // one that hardly moves
  fleet.campaigns.push_back(campaign_of(space, space.campaign(2, 4, 200)));
  ASSERT_TRUE(fleet.run());
  EXPECT_GT(fleet.campaigns[0].again, 0);
  for (const TaskStatus& t : fleet.campaigns[0].plan.tasks())
    EXPECT_EQ(t.verified.points.size(), 4u) << t.note;
}

// Choosing finalists searches trees: not again with whatever happens elsewhere.
TEST(Plan, FinalistsAreAskedForWhenTheEvidenceChanges) {
  const SimulatedSpace space(14);
  const CampaignSpec spec = space.campaign(6, 4, 120);
  std::map<size_t, std::vector<std::map<db::Hash, std::vector<double>>>> asked;
  SimulatedFleet fleet;
  fleet.workers = workers(4);
  fleet.campaigns.push_back({"campaign",
                             CampaignPlan(spec, space.proposer(),
                                          [&](size_t task, const CrossEvidence& e) {
                                            asked[task].push_back(e.ratios);
                                            return usual_finalists(spec.tasks[task], e);
                                          }),
                             &space});
  ASSERT_TRUE(fleet.run());
  ASSERT_FALSE(asked.empty());
  for (const auto& [task, evidence] : asked)
    for (const auto& one : evidence)
      EXPECT_LE(std::ranges::count(evidence, one), 2) << "by what follows, and to verify";
}

TEST(Plan, ASpaceThatIsUsedUpEndsTheCampaignBeforeItsBudget) {
  const SimulatedSpace space(12);
  const Propose all = space.proposer();
  const Propose few = [&](size_t task, size_t count, const SearchEvidence& known) {
    const size_t left =
        40 - std::min<size_t>(40, known.sizes[0].ratios.size() + known.sizes[0].issued.size());
    return all(task, std::min(count, left), known);
  };
  SimulatedFleet fleet;
  fleet.workers = workers(4);
  fleet.campaigns.push_back({"campaign", simulated_plan(space.campaign(3, 4, 1e6), few), &space});
  ASSERT_TRUE(fleet.run());
  EXPECT_LT(fleet.campaigns[0].plan.spent_s(), 200);
  for (const TaskStatus& t : fleet.campaigns[0].plan.tasks()) {
    EXPECT_LE(t.searched, 40);
    EXPECT_GE(t.verified.ratios.size(), 2u) << t.note;
  }
}

// Workers come and go, jobs are dropped, entries come back without an answer or not at all,
// outcomes are told twice: the plan comes to an end, asks for nothing twice and stays in budget.
TEST(Plan, WhateverHappensItComesToItsEnd) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    std::mt19937_64 random(seed);
    const auto chance = [&](int in) { return random() % static_cast<uint64_t>(in) == 0; };
    const SimulatedSpace space(seed + 50);
    const double budget_s = 20 + static_cast<double>(random() % 100);
    CampaignPlan plan = simulated_plan(space.campaign(1 + random() % 5, 1 + random() % 5, budget_s),
                                       space.proposer());
    std::map<std::string, WantedCase> open;
    std::set<std::string> keys;
    CaseOutcome last;
    double now = 0;
    size_t most_open = 0;
    for (int steps = 0; !plan.done() && steps < 100'000; ++steps) {
      now += 0.05;
      Fleet fleet{now, 1 + random() % 8, {}};
      for (size_t m = 0; m < 8; ++m)
        if (m == 0 || !chance(5)) fleet.machines.insert("machine " + std::to_string(m));
      for (const std::string& key : plan.obsolete())
        if (chance(2)) {
          plan.dropped(key);
          open.erase(key);
        }
      for (const WantedCase& w : plan.want(fleet)) {
        EXPECT_TRUE(keys.insert(w.key).second) << w.key;
        EXPECT_FALSE(w.anchors.empty());
        for (const db::Hash& a : w.anchors)
          EXPECT_EQ(std::count(w.configs.begin(), w.configs.end(), a), 0);
        open[w.key] = w;
      }
      most_open = std::max(most_open, open.size());
      if (open.empty()) continue;
      auto it = open.begin();
      std::advance(it, static_cast<long>(random() % open.size()));
      const WantedCase w = it->second;
      const std::string machine = w.machine.value_or("machine " + std::to_string(random() % 8));
      if (chance(3)) {
        plan.begun(w.key, machine, now);
        continue;
      }
      open.erase(it);
      if (chance(12)) {
        plan.dropped(w.key);
        continue;
      }
      last = {w.key, {machine, "kind"}, 0.1 + 0.01 * static_cast<double>(random() % 20), {}};
      for (const auto* list : {&w.anchors, &w.configs})
        for (const db::Hash& c : *list) {
          if (chance(15)) continue;
          std::optional<double> ns = space.time(w.task, w.point, c);
          if (chance(40)) ns.reset();
          last.times_ns[c] = ns;
        }
      plan.finished(last);
      if (chance(4)) plan.finished(last);
      if (seed % 4 == 0 && now > 5) plan.stop();
    }
    EXPECT_TRUE(plan.done()) << "seed " << seed;
    const std::vector<WantedCase> more = plan.want({now, 4, {"machine 0"}});
    EXPECT_TRUE(more.empty()) << "seed " << seed << " " << more[0].key << " "
                              << name_of(more[0].phase) << " " << more[0].slice;
    EXPECT_LE(plan.spent_s(), budget_s + 2.0 * static_cast<double>(most_open + 8) + 0.5 * budget_s)
        << "seed " << seed;
  }
}

TEST(FairShare, WhoComesLaterBeginsWhereTheOthersAre) {
  FairShare fair;
  fair.join("a");
  fair.charge("a", 100);
  fair.join("b", 2);
  EXPECT_FALSE(fair.next({"c"}));
  std::map<std::string, double> got;
  for (int i = 0; i < 300; ++i) {
    const db::Uuid turn = *fair.next({"a", "b"});
    fair.charge(turn, 1);
    got[turn] += 1;
  }
  EXPECT_NEAR(got["b"], 200, 2) << "by weight";
  fair.leave("b");
  EXPECT_EQ(fair.next({"a", "b"}), "a");
}

}  // namespace
}  // namespace nimble::tuner::plan
