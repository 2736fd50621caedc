// A small database with one of each record, for tests, seeds of the fuzz target, and whoever needs
// rows that refer to each other.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "db/store/store.h"
#include "vm/base/error.h"

namespace nimble::db {

// A database with one dimension row of each kind and a campaign.
struct World {
  Hardware hardware{"GenuineIntel",      6,   143, 8, "Xeon", "x86-64-v4", "L1d 48K, L2 2M",
                    "1 socket, 2 cores", true};
  Toolchain toolchain{"llvm", "19.1.7", "-O2", 3, "abc", false};
  Template dense{"dense", 2, "tile_m,tile_n"};
  Workload workload{"dense f32 (m,768)x(768,768)+bias threads=2",
                    "dense f32 (m,768)x(768,768)",
                    "dense",
                    "f32",
                    "packed32",
                    "m",
                    2};
  Hash hardware_hash, toolchain_hash, template_hash, workload_hash, policy;
  Uuid machine, host_state, campaign;
  CampaignKey key;

  explicit World(Store& store) {
    store.transaction([&] { write(store); });
  }
  void write(Store& store) {
    hardware_hash = store.put(hardware);
    toolchain_hash = store.put(toolchain);
    template_hash = store.put(dense);
    workload_hash = store.put(workload);
    policy = store.put(MeasurePolicy{CacheMode::kWarm, 3, 2, "rdtsc", "ci<1%", "warm"});
    machine = store.put(Machine{"", "box", hardware_hash});
    host_state = store.put(HostState{"", "performance", true, {}, "0,1", 0.5, 0.0});
    key = CampaignKey{"model-digest", hardware_hash, 7, R"({"top_k":100})"};
    std::optional<Campaign> found = store.find_campaign(key);
    campaign = found ? found->uuid : store.create_campaign(key, 300, "nimble tune m");
  }

  Hash config(Store& store, int tile) const {
    return store.put(Config{template_hash, "{\"tile\": " + std::to_string(tile) + "}"});
  }
  Hash shape(Store& store, int64_t m) const {
    return store.put(Shape{workload_hash, {{"m", m}}, 2 * m * 768 * 768, 4 * m * 768});
  }
  TrialKey trial_key(Store& store, int tile, int64_t m, Role role = Role::kSearch) const {
    return {campaign, workload_hash, config(store, tile), shape(store, m), role, 2};
  }
  Measurement measured(Store& store, const Trial& trial, double median) const {
    Measurement m;
    m.trial = trial.uuid;
    m.artifact = store.put(Artifact{"code-" + trial.key.config, workload_hash, trial.key.config,
                                    toolchain_hash, 12.5, 4096});
    m.policy = policy;
    m.machine = machine;
    m.host_state = host_state;
    m.median_ns = median;
    m.mad_ns = median * 0.01;
    m.ci_low_ns = median * 0.99;
    m.ci_high_ns = median * 1.01;
    m.stop_reason = "ci";
    m.samples_ns = {median * 0.98, median, median * 1.5};
    m.outliers = {false, false, true};
    return m;
  }
  // Enqueues, claims and finishes one trial with the given time.
  Uuid tried(Store& store, int tile, int64_t m, double median, Role role = Role::kSearch,
             std::optional<double> predicted = {}) const {
    const TrialKey k = trial_key(store, tile, m, role);
    NIMBLE_CHECK(store.enqueue({{k, 0, 0, predicted}}) == 1, "the trial is there already");
    ClaimRequest request{campaign, "me"};
    const std::vector<Trial> claimed = store.claim(request);
    NIMBLE_CHECK(claimed.size() == 1 && claimed[0].uuid == uuid_of(k), "another trial is queued");
    const bool finished = store.finish(
        {claimed[0].uuid, "me", TrialState::kOk, "", "", measured(store, claimed[0], median)});
    NIMBLE_CHECK(finished, "the lease is lost");
    return claimed[0].uuid;
  }
  NewDispatchTable draft(Store& store, int tile) const {
    NewDispatchTable t;
    t.workload = workload_hash;
    t.hardware = hardware_hash;
    t.toolchain = toolchain_hash;
    t.policy = policy;
    t.objective = "weighted mean";
    t.tree = R"({"leaf": 0})";
    DispatchEntry e;
    e.range = R"({"m": [0, null]})";
    e.config = config(store, tile);
    e.expected_ns = 100;
    e.regret = 0.02;
    t.entries = {e};
    return t;
  }
  LookupKey lookup_key() const {
    return {workload, hardware, toolchain, {{"dense", 2}, {"softmax", 1}}, {"warm", "cold"}};
  }
};

}  // namespace nimble::db
