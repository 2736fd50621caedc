// nimble-database-bench: what a program that shows, the compiler, and a worker's claim wait for in
// a large tuning database (Google Benchmark).
//
//   NIMBLE_BENCH_MEASUREMENTS=1000000 nimble-database-bench
//   NIMBLE_BENCH_DB=postgresql://me@server/bench nimble-database-bench
//
// NIMBLE_BENCH_DB names the database, a file in /tmp by default; it is filled up to
// NIMBLE_BENCH_MEASUREMENTS measurements (20,000 by default) of 10 samples each, on 50 kinds of
// hardware with a dispatch table in three versions per workload on each, and kept for the next run.
// Each of NIMBLE_BENCH_CALLS calls (60 by default) asks for another place; p95_ms is the 95th
// percentile over them, which should stay under 50. With cold:1 each call begins with a new
// connection, and a file's pages are dropped from memory first; NIMBLE_BENCH_FORGET is a command
// that does so for a server (restarts it and empties the system's cache). A benchmark whose name
// ends in cold:0 or cold:1 is chosen with --benchmark_filter.
#include <benchmark/benchmark.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <random>

#include "db/store/hash.h"
#include "db/store/insert_rows.h"
#include "db/store/open.h"
#include "db/store/pages.h"
#include "db/store/place.h"
#include "db/store/samples.h"

namespace nimble::db {
namespace {

constexpr int kHardware = 50, kWorkloads = 40, kShapes = 16, kConfigs = 400;
constexpr int kVersions = 3;  // of each dispatch table

const char* setting(const char* name, const char* otherwise) {
  const char* value = std::getenv(name);
  return value && *value ? value : otherwise;
}

std::string place() {
  return setting("NIMBLE_BENCH_DB", "/tmp/nimble-database-bench.db");
}

std::unique_ptr<Store> open() {
  OpenOptions options;
  options.durable = false;
  return Store::open(place(), options);
}

// What the queries are made of; the same in every run.
struct Names {
  std::vector<Hardware> hardware;
  std::vector<Workload> workloads;
  std::vector<Hash> configs;
  std::vector<Uuid> machines, campaigns;
  std::vector<std::vector<Hash>> shapes, artifacts;  // of each workload; and configuration
  Toolchain toolchain{"llvm", "19.1.7", "-O2", 3, "abc", false};
  Template dense{"dense", 2, "tile"};
  Hash policy, toolchain_hash, template_hash;

  explicit Names(Store& store) {
    store.transaction([&] { write(store); });
  }
  void write(Store& store) {
    toolchain_hash = store.put(toolchain);
    template_hash = store.put(dense);
    policy = store.put(MeasurePolicy{CacheMode::kWarm, 3, 2, "clock", "ci<1%", "warm"});
    for (int c = 0; c < kConfigs; ++c)
      configs.push_back(store.put(Config{template_hash, fmt::format("{{\"tile\":{}}}", c)}));
    for (int w = 0; w < kWorkloads; ++w) {
      const std::string text = fmt::format("dense f32 (m,{0})x({0},768) threads=2", 64 + w);
      workloads.push_back({text, text, "dense", "f32", "rows", "m", 2});
      const Hash hash = store.put(workloads.back());
      shapes.emplace_back();
      for (int s = 0; s < kShapes; ++s)
        shapes.back().push_back(store.put(Shape{hash, {{"m", 1 + 16 * s}}, 1000, 1000}));
      artifacts.emplace_back();
      for (const Hash& config : configs)
        artifacts.back().push_back(
            store.put(Artifact{"code-" + config + hash, hash, config, toolchain_hash, 10, 4096}));
    }
    for (int h = 0; h < kHardware; ++h) {
      hardware.push_back({"GenuineIntel", 6, h, 1, fmt::format("Processor {}", h), "x86-64-v4",
                          "L2 2M", "2 cores", false});
      const Hash hash = store.put(hardware.back());
      machines.push_back(store.put(Machine{"", fmt::format("box{}", h), hash}));
      const CampaignKey key{"model", hash, h, "{}"};
      const std::optional<Campaign> found = store.find_campaign(key);
      campaigns.push_back(found ? found->uuid : store.create_campaign(key, 3600, "nimble tune"));
    }
  }
};

// Rows as the store would have written them, past it.
void fill_campaign(Store& store, Connection& db, const Names& names, int h, int64_t wanted) {
  const Uuid& campaign = names.campaigns[static_cast<size_t>(h)];
  const Hash hardware = key_of(names.hardware[static_cast<size_t>(h)]);
  std::mt19937_64 random(static_cast<uint64_t>(h));
  std::vector<Hash> workloads;
  for (const Workload& w : names.workloads) workloads.push_back(key_of(w));
  constexpr int64_t kPiece = 5000, kCase = 16, kPoints = int64_t{kWorkloads} * kConfigs * kShapes;
  wanted = std::min(wanted, kPoints);
  for (int64_t have = store.progress(campaign).trials; have < wanted; have += kPiece) {
    int64_t number = store.last_event();
    int depth = 0;
    Transaction transaction(db, depth, true);
    // Numbers are given out before they are used.
    db.run("UPDATE event_counter SET last = last + ?", std::min(kPiece, wanted - have));
    db.defer_foreign_keys();  // rows of one table go together, before or behind those they name
    InsertRows trials(
        db, "trial",
        "uuid, campaign, workload, config, shape, role, threads, round, priority, state, "
        "attempt, error_class, message, created_at, finished_at, position, median_ns, "
        "measured_on");
    InsertRows hosts(db, "host_state", "uuid, governor, turbo, affinity, load, steal", &trials);
    InsertRows measurements(
        db, "measurement",
        "uuid, trial, artifact, policy, machine, host_state, n, median_ns, mad_ns, "
        "ci_low_ns, ci_high_ns, stop_reason, created_at, runs_per_sample",
        &hosts);
    InsertRows samples(db, "samples", "measurement, n, ns, outlier");
    InsertRows twins(db, "twin_samples", "measurement, n, ns, median_ns, created_at");
    InsertRows events(db, "event", "number, kind, campaign, subject, detail, created_at");
    const std::vector<uint8_t> flags(10, 0);
    Uuid host;  // of a case
    for (int64_t i = have; i < std::min(have + kPiece, wanted); ++i) {
      // Every point once, in no order: the step shares no factor with their number.
      const int64_t point = i * 104'729 % kPoints;
      const auto w = static_cast<size_t>(point % kWorkloads);
      const auto s = static_cast<size_t>(point / kWorkloads % kShapes);
      const auto c = static_cast<size_t>(point / kWorkloads / kShapes);
      const TrialKey key{campaign,           workloads[w],  names.configs[c],
                         names.shapes[w][s], Role::kSearch, 2};
      const Uuid trial = uuid_of(key);
      const int64_t at = 1'700'000'000'000 + (i * kHardware + h) * 1000;
      const bool wrong = random() % 50 == 0;
      std::optional<double> median;
      std::optional<std::string> on;
      if (!wrong) {
        median = 1000 + static_cast<double>(random() % 1'000'000) / 10;
        on = hardware;
      }
      trials.add(trial, campaign, key.workload, key.config, key.shape, "search", 2, i / 500,
                 static_cast<double>(random() % 100), wrong ? "wrong" : "ok", 1,
                 wrong ? "mismatch" : "", wrong ? "off" : "", at, at, i + 1, median, on);
      events.add(++number, "trial", campaign, trial, R"({"state":"ok"})", at);
      if ((i - have) % kCase == 0)
        hosts.add(host = new_uuid(), "performance", int64_t{1}, "0,1", 0.1, 0.0);
      if (wrong) continue;
      const Uuid uuid = new_uuid();
      measurements.add(uuid, trial, names.artifacts[w][c], names.policy,
                       names.machines[static_cast<size_t>(h)], host, 10, *median, 1.0,
                       *median * 0.99, *median * 1.01, "ci", at, 100);
      const std::vector<uint8_t> ns = encode_samples(std::vector<double>(10, *median));
      samples.add(uuid, 10, ns, flags);
      if (random() % 20 == 0) twins.add(uuid, 10, ns, *median, at);
    }
    for (InsertRows* rows : {&trials, &hosts, &measurements, &samples, &twins, &events})
      rows->flush();
    transaction.commit();
  }
  for (const Hash& workload : workloads) {
    if (!store.tables(workload, hardware).empty()) continue;
    NewDispatchTable t;
    t.workload = workload;
    t.hardware = hardware;
    t.toolchain = names.toolchain_hash;
    t.policy = names.policy;
    t.objective = "weighted mean";
    t.tree = R"({"leaf":0})";
    DispatchEntry e;
    store.transaction([&] {
      for (int version = 0; version < kVersions; ++version) {
        e.config = names.configs[random() % kConfigs];
        t.entries = {e};
        t.parent = store.create_table(t);
        store.activate(*t.parent, "bench");
      }
    });
  }
}

const Names& filled() {
  static const Names kNames = [] {
    auto store = open();
    Names names(*store);
    OpenOptions options;
    options.durable = false;
    const auto raw =
        names_server(place()) ? open_postgres(place(), options) : open_sqlite(place(), options);
    // A million random places in two dozen indices: in memory, and written back now and then.
    if (raw->engine() == Engine::kSqlite)
      raw->script(
          "PRAGMA cache_size = -3000000; PRAGMA wal_autocheckpoint = 200000; "
          "PRAGMA synchronous = OFF");
    const int64_t wanted = std::atoll(setting("NIMBLE_BENCH_MEASUREMENTS", "20000"));
    for (int h = 0; h < kHardware; ++h) {
      fill_campaign(*store, *raw, names, h, wanted / kHardware);
      std::fprintf(stderr, "\rfilling: %d of %d", h + 1, kHardware);
    }
    std::fprintf(stderr, "\n");
    return names;
  }();
  return kNames;
}

void forget_pages() {
  const std::string command = setting("NIMBLE_BENCH_FORGET", "");
  if (!command.empty() && std::system(command.c_str()) != 0) {
    std::fprintf(stderr, "NIMBLE_BENCH_FORGET failed: %s\n", command.c_str());
    std::exit(1);
  }
  if (names_server(place())) return;
  for (const char* suffix : {"", "-wal"}) {
    const int file = ::open((place() + suffix).c_str(), O_RDONLY);
    if (file < 0) continue;
    ::posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
    ::close(file);
  }
}

using Query = void (*)(Store&, const Names&, std::mt19937_64&);

void time(benchmark::State& state, Query query) {
  const Names& names = filled();
  auto store = open();
  std::mt19937_64 random(7);
  std::vector<double> taken;
  const bool cold = state.range(0) != 0;
  for (auto _ : state) {
    if (cold) {
      store.reset();
      forget_pages();
      store = open();
    }
    const auto begin = std::chrono::steady_clock::now();
    query(*store, names, random);
    taken.push_back(
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    state.SetIterationTime(taken.back());
  }
  std::sort(taken.begin(), taken.end());
  state.counters["p95_ms"] = 1e3 * taken[std::min(taken.size() - 1, taken.size() * 95 / 100)];
}

PageRequest page(const Names& names, std::mt19937_64& random, TrialOrder order, int filter) {
  PageRequest request;
  request.order = order;
  if (filter == 1) request.filter.campaign = names.campaigns[random() % kHardware];
  if (filter == 2) {
    request.filter.workload = key_of(names.workloads[random() % kWorkloads]);
    request.filter.hardware = key_of(names.hardware[random() % kHardware]);
  }
  // Anywhere among the times.
  if (order == TrialOrder::kTime)
    request.from = PageKey{0, 1000 + static_cast<double>(random() % 1'000'000) / 10, ""};
  if (order == TrialOrder::kQueue)
    request.from = PageKey{static_cast<int64_t>(random() % 20'000), 0, ""};
  return request;
}

template <TrialOrder kOrder, int kFilter>
void page_of_trials(Store& store, const Names& names, std::mt19937_64& random) {
  benchmark::DoNotOptimize(store.trials(page(names, random, kOrder, kFilter)));
}

void failures(Store& store, const Names& names, std::mt19937_64& random) {
  PageRequest request = page(names, random, TrialOrder::kFinished, 1);
  request.filter.failed = true;
  benchmark::DoNotOptimize(store.trials(request));
}

void heat_map(Store& store, const Names& names, std::mt19937_64& random) {
  ResultQuery query{key_of(names.workloads[random() % kWorkloads]),
                    key_of(names.hardware[random() % kHardware]), names.policy, 3};
  query.limit = 1000;
  benchmark::DoNotOptimize(store.results(query));
}

void behind_a_measurement(Store& store, const Names& names, std::mt19937_64& random) {
  const std::vector<TrialRow> rows = store.trials(page(names, random, TrialOrder::kTime, 1));
  if (rows.empty()) return;
  const std::vector<MeasurementSummary> all = store.measurements(rows[0].trial.uuid);
  benchmark::DoNotOptimize(store.measurement(all.at(0).measurement.uuid));
  benchmark::DoNotOptimize(store.host_state(all.at(0).measurement.host_state));
}

void lookup(Store& store, const Names& names, std::mt19937_64& random) {
  const LookupKey key{names.workloads[random() % kWorkloads],
                      names.hardware[random() % kHardware],
                      names.toolchain,
                      {{"dense", 2}},
                      {"warm", "cold"}};
  benchmark::DoNotOptimize(store.lookup(key));
}

Hash workload_of(const Names& names, std::mt19937_64& random) {
  return key_of(names.workloads[random() % kWorkloads]);
}
Hash hardware_of(const Names& names, std::mt19937_64& random) {
  return key_of(names.hardware[random() % kHardware]);
}

void twins(Store& store, const Names& names, std::mt19937_64& random) {
  benchmark::DoNotOptimize(store.twins(workload_of(names, random), hardware_of(names, random)));
}

// What a list of campaigns shows of each.
void campaigns(Store& store, const Names&, std::mt19937_64&) {
  benchmark::DoNotOptimize(store.campaigns(100, {}));
}
void progress(Store& store, const Names& names, std::mt19937_64& random) {
  benchmark::DoNotOptimize(store.progress(names.campaigns[random() % kHardware]));
}
void workloads(Store& store, const Names&, std::mt19937_64&) {
  benchmark::DoNotOptimize(store.workloads(100, ""));
}
void policies(Store& store, const Names& names, std::mt19937_64& random) {
  benchmark::DoNotOptimize(store.policies(workload_of(names, random), hardware_of(names, random)));
}

// What the windows that list everything read whenever the database changed: all of it.
void list_of_workloads(Store& store, const Names&, std::mt19937_64&) {
  each_deciding_table(store, [](const TableSummary& t) { benchmark::DoNotOptimize(t); });
  benchmark::DoNotOptimize(store.measured_places());
  benchmark::DoNotOptimize(store.toolchains());
  benchmark::DoNotOptimize(store.override_counts());
  benchmark::DoNotOptimize(store.model_shares());
  each_workload(store, [](const Workload& w) { benchmark::DoNotOptimize(w); });
}
void list_of_coverage(Store& store, const Names& names, std::mt19937_64& random) {
  list_of_workloads(store, names, random);
  benchmark::DoNotOptimize(store.misses());
}
// The first time; of campaigns that do not run the counts are kept afterwards.
void list_of_campaigns(Store& store, const Names&, std::mt19937_64&) {
  std::vector<Uuid> all;
  each_campaign(store, [&](const Campaign& c) { all.push_back(c.uuid); });
  benchmark::DoNotOptimize(store.progress_of(all));
  benchmark::DoNotOptimize(store.last_requests());
}
void roofline(Store& store, const Names& names, std::mt19937_64& random) {
  const Hash hardware = hardware_of(names, random);
  each_workload(store, [&](const Workload& w) {
    benchmark::DoNotOptimize(store.best_results({key_of(w), hardware}));
  });
}
// One of the queries of each.
void page_of_deciding_tables(Store& store, const Names& names, std::mt19937_64& random) {
  benchmark::DoNotOptimize(store.deciding_tables(100, {workload_of(names, random), ""}));
}
void best_of_workload(Store& store, const Names& names, std::mt19937_64& random) {
  benchmark::DoNotOptimize(
      store.best_results({workload_of(names, random), hardware_of(names, random)}));
}

// A dispatch editor's: the versions, who stands when, what lies over them, and their times.
void dispatch_of_workload(Store& store, const Names& names, std::mt19937_64& random) {
  const Hash workload = workload_of(names, random), hardware = hardware_of(names, random);
  const std::vector<DispatchTable> tables = store.tables(workload, hardware);
  benchmark::DoNotOptimize(store.overrides(false, workload, hardware));
  benchmark::DoNotOptimize(store.history(workload, hardware));
  for (const DispatchTable& t : tables) benchmark::DoNotOptimize(store.comparisons(t.uuid));
}
void times_of_table(Store& store, const Names& names, std::mt19937_64& random) {
  for (const DispatchTable& t :
       store.tables(workload_of(names, random), hardware_of(names, random)))
    benchmark::DoNotOptimize(store.times(t.uuid));
}

void behind_a_failure(Store& store, const Names& names, std::mt19937_64& random) {
  PageRequest request = page(names, random, TrialOrder::kFinished, 1);
  request.filter.failed = true;
  request.limit = 1;
  for (const TrialRow& row : store.trials(request))
    benchmark::DoNotOptimize(store.failures(row.trial.uuid));
}

void named_by_prefix(Store& store, const Names& names, std::mt19937_64& random) {
  benchmark::DoNotOptimize(
      store.find(Kind::kCampaign, names.campaigns[random() % kHardware].substr(0, 8)));
  benchmark::DoNotOptimize(store.find(Kind::kMeasurement, fmt::format("{:04x}", random() % 65536)));
}

// A service's: what would be displaced.
void active_in_slot(Store& store, const Names& names, std::mt19937_64& random) {
  NewDispatchTable slot;
  slot.workload = workload_of(names, random);
  slot.hardware = hardware_of(names, random);
  slot.toolchain = names.toolchain_hash;
  slot.policy = names.policy;
  benchmark::DoNotOptimize(store.active_in_slot(slot));
}

void changes(Store& store, const Names&, std::mt19937_64& random) {
  const int64_t last = store.last_event();
  benchmark::DoNotOptimize(
      store.events(static_cast<int64_t>(random() % static_cast<uint64_t>(last + 1)), 100));
}

void run(const char* name, Query query) {
  benchmark::RegisterBenchmark(name, [query](benchmark::State& s) { time(s, query); })
      ->ArgName("cold")
      ->Arg(0)
      ->Arg(1)
      ->Iterations(std::max(1, std::atoi(setting("NIMBLE_BENCH_CALLS", "60"))))
      ->UseManualTime()
      ->Unit(benchmark::kMillisecond);
}

}  // namespace
}  // namespace nimble::db

int main(int argc, char** argv) {
  using namespace nimble::db;  // NOLINT: the program is about nothing else
  run("TrialsByEnd", page_of_trials<TrialOrder::kFinished, 0>);
  run("TrialsByTime", page_of_trials<TrialOrder::kTime, 0>);
  run("TrialsOfCampaignInQueue", page_of_trials<TrialOrder::kQueue, 1>);
  run("TrialsOfCampaignByEnd", page_of_trials<TrialOrder::kFinished, 1>);
  run("TrialsOfCampaignByTime", page_of_trials<TrialOrder::kTime, 1>);
  run("TrialsOfWorkloadByTime", page_of_trials<TrialOrder::kTime, 2>);
  run("FailuresOfCampaign", failures);
  run("HeatMap", heat_map);
  run("BehindAMeasurement", behind_a_measurement);
  run("Twins", twins);
  run("Lookup", lookup);
  run("Changes", changes);
  run("Campaigns", campaigns);
  run("Progress", progress);
  run("Workloads", workloads);
  run("Policies", policies);
  run("DispatchOfWorkload", dispatch_of_workload);
  run("TimesOfTable", times_of_table);
  run("BehindAFailure", behind_a_failure);
  run("NamedByPrefix", named_by_prefix);
  run("ActiveInSlot", active_in_slot);
  run("DecidingTables", page_of_deciding_tables);
  run("BestOfWorkload", best_of_workload);
  run("ListOfWorkloads", list_of_workloads);
  run("ListOfCoverage", list_of_coverage);
  run("ListOfCampaigns", list_of_campaigns);
  run("Roofline", roofline);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
