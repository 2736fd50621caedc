// nimble-fleet-bench: how many trials a second simulated workers complete through one database
// (Google Benchmark).
//
//   NIMBLE_BENCH_DB=postgresql://me@server/bench nimble-fleet-bench
//
// Each worker has a thread and a connection of its own and does what a real one does but for the
// measuring: claims a case of 8 trials, says that it is at it, and reports times with samples,
// host state and correctness, each call durable. NIMBLE_BENCH_DB names the database, a file in /tmp
// by default; records are added to what it holds. trials_s is over all workers, from the first
// claim to the last report; claim_p95_ms and report_p95_ms are what one worker waits for.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <random>
#include <thread>

#include "db/store/test/fleet.h"

namespace nimble::db {
namespace {

using Clock = std::chrono::steady_clock;
constexpr int kTrialsOfACase = 8, kSamples = 10;

std::string place() {
  const char* value = std::getenv("NIMBLE_BENCH_DB");
  return value && *value ? value : "/tmp/nimble-fleet-bench.db";
}

double ms_since(Clock::time_point t) {
  return std::chrono::duration<double, std::milli>(Clock::now() - t).count();
}

// Jobs of a new campaign, all in the queue.
Uuid publish(int jobs) {
  OpenOptions options;
  options.durable = false;
  auto store = Store::open(place(), options);
  Fleet fleet(*store);
  CampaignKey key = fleet.world.key;
  key.seed = static_cast<int64_t>(std::random_device()());
  fleet.world.campaign = store->create_campaign(key, 3600, "bench");
  for (int j = 0; j < jobs;) {
    store->transaction([&] {
      for (const int end = std::min(jobs, j + 50); j < end; ++j) {
        std::vector<int> tiles;
        for (int t = 1; t < kTrialsOfACase; ++t) tiles.push_back(8 * t);
        NewJob job = fleet.job(tiles, j + 1);
        job.trials[0].trial.key.role = Role::kBaseline;
        store->publish(job);
      }
    });
  }
  return fleet.world.campaign;
}

struct Tally {
  std::mutex mutex;
  std::vector<double> claim_ms, report_ms;
  std::atomic<int64_t> trials{0};
  std::atomic<int> failed{0};
};

void work(int number, const Uuid& campaign, Tally& tally) {
  std::vector<double> claims, reports;
  try {
    auto store = Store::open(place());
    Fleet fleet(*store);
    const Uuid worker = fleet.worker(fmt::format("bench-{}", number));
    JobRequest request;
    request.worker = worker;
    request.campaign = campaign;
    std::mt19937_64 random(static_cast<uint64_t>(number));
    for (;;) {
      auto begin = Clock::now();
      const std::optional<Job> job = store->claim_job(request);
      claims.push_back(ms_since(begin));
      if (!job) break;
      Heartbeat beat;
      beat.worker = worker;
      beat.job = job->uuid;
      beat.state = WorkerState::kMeasuring;
      store->heartbeat(beat, job->attempt, request.lease_ms);
      JobReport report = fleet.report(*job, 1000 + static_cast<double>(random() % 1000));
      for (TrialReport& r : report.results) {
        r.measurement->samples_ns.assign(kSamples, r.measurement->median_ns);
        r.measurement->outliers.clear();
      }
      begin = Clock::now();
      store->report(report);
      reports.push_back(ms_since(begin));
      tally.trials += static_cast<int64_t>(report.results.size());
    }
  } catch (const Error& e) {
    std::fprintf(stderr, "worker %d: %s\n", number, e.what());
    ++tally.failed;
  }
  const std::lock_guard lock(tally.mutex);
  tally.claim_ms.insert(tally.claim_ms.end(), claims.begin(), claims.end());
  tally.report_ms.insert(tally.report_ms.end(), reports.begin(), reports.end());
}

double p95(std::vector<double> all) {
  if (all.empty()) return 0;
  std::sort(all.begin(), all.end());
  return all[std::min(all.size() - 1, all.size() * 95 / 100)];
}

void complete_trials(benchmark::State& state) {
  const auto workers = static_cast<int>(state.range(0)), jobs = static_cast<int>(state.range(1));
  for (auto _ : state) {
    const Uuid campaign = publish(jobs);
    Tally tally;
    std::vector<std::thread> threads;
    const auto begin = Clock::now();
    for (int w = 0; w < workers; ++w) threads.emplace_back([&, w] { work(w, campaign, tally); });
    for (std::thread& t : threads) t.join();
    const double s = ms_since(begin) / 1e3;
    state.SetIterationTime(s);
    state.counters["trials_s"] = static_cast<double>(tally.trials.load()) / s;
    state.counters["claim_p95_ms"] = p95(tally.claim_ms);
    state.counters["report_p95_ms"] = p95(tally.report_ms);
    if (tally.failed > 0) state.SkipWithError("workers failed; see above");
  }
}

BENCHMARK(complete_trials)
    ->ArgNames({"workers", "jobs"})
    ->Args({1, 200})
    ->Args({200, 2000})
    ->Iterations(1)
    ->UseManualTime()
    ->Unit(benchmark::kSecond);

}  // namespace
}  // namespace nimble::db

BENCHMARK_MAIN();
