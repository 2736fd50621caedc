// What a plan costs, and what it is worth: simulated campaigns in virtual time. The counters are
// those of the promise: how busy the workers are, and what is found against what one worker finds
// with the same budget of machine-seconds (1.02: finalists that are 2 % slower).
#include <benchmark/benchmark.h>

#include "tuner/service/test/simulated_fleet.h"

namespace nimble::tuner::plan {
namespace {

constexpr size_t kTasks = 8, kSizes = 5;

SimulatedFleet fleet_of(const SimulatedSpace& space, std::vector<SimulatedWorker> workers,
                        double budget_s) {
  SimulatedFleet fleet;
  fleet.workers = std::move(workers);
  fleet.campaigns.push_back(
      {"campaign", simulated_plan(space.campaign(kTasks, kSizes, budget_s), space.proposer()),
       &space});
  return fleet;
}

double trials_of(const CampaignPlan& plan) {
  double sum = 0;
  for (const TaskStatus& t : plan.tasks()) sum += static_cast<double>(t.trials);
  return sum;
}

// Arguments: workers, of them ten times slower, machine-seconds (a case takes about 0.3).
void BM_Campaign(benchmark::State& state) {
  const auto count = static_cast<size_t>(state.range(0)),
             slow = static_cast<size_t>(state.range(1));
  const auto budget_s = static_cast<double>(state.range(2));
  double busy = 0, worse = 0, trials = 0, against = 0, again = 0;
  uint64_t seed = 100;
  int64_t runs = 0;
  for (auto _ : state) {
    const SimulatedSpace space(++seed);
    SimulatedFleet fleet = fleet_of(space, workers(count, slow), budget_s);
    if (!fleet.run()) state.SkipWithError("the campaign did not end");
    state.PauseTiming();
    SimulatedFleet alone = fleet_of(space, workers(1), budget_s);
    alone.run();
    busy += fleet.busy_share(fleet.last_useful);
    worse +=
        std::log(worth(space, fleet.campaigns[0].plan) / worth(space, alone.campaigns[0].plan));
    trials += trials_of(fleet.campaigns[0].plan);
    against += trials_of(alone.campaigns[0].plan);
    again += static_cast<double>(fleet.campaigns[0].again);
    ++runs;
    state.ResumeTiming();
  }
  const auto n = static_cast<double>(runs);
  state.counters["busy"] = busy / n;
  state.counters["over_one_worker"] = std::exp(worse / n);
  state.counters["trials"] = trials / n;
  state.counters["trials_one_worker"] = against / n;
  state.counters["issued_again"] = again / n;
}
BENCHMARK(BM_Campaign)
    ->ArgNames({"workers", "slow", "seconds"})
    ->Args({4, 0, 300})
    ->Args({16, 0, 300})
    ->Args({16, 1, 120})
    ->Args({16, 1, 300})
    ->Args({16, 1, 600})
    ->Iterations(5)
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace nimble::tuner::plan

BENCHMARK_MAIN();
