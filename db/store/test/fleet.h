// Jobs, workers and reports that are right, for tests of whoever hands out or takes work.
#pragma once

#include <string>
#include <vector>

#include "db/store/hash.h"
#include "db/store/test/world.h"

namespace nimble::db {

struct Fleet {
  Store& store;
  World world;

  explicit Fleet(Store& s) : store(s), world(s) {}

  Uuid machine(const std::string& hostname) {
    return store.put(Machine{"", hostname, world.hardware_hash});
  }
  // One per hostname.
  Uuid worker(const std::string& hostname) {
    return store.add(Worker{uuid_from_hash(hash_of(hostname)), machine(hostname), hostname, 17,
                            "0.1", R"({"threads":2})", "[]"});
  }
  Hash artifact(int tile) {
    const Hash config = world.config(store, tile);
    return store.put(
        Artifact{"code-" + config, world.workload_hash, config, world.toolchain_hash, 12.5, 4096});
  }
  Hash measure_case(int64_t m) {
    return store.put(MeasureCase{world.workload_hash,
                                 world.shape(store, m),
                                 world.policy,
                                 7,
                                 R"({"x":"normal"})",
                                 1e-5,
                                 {}});
  }
  // A job of these configurations at one shape, behind the default (tile 1000) as an anchor.
  NewJob job(const std::vector<int>& tiles, int64_t m) {
    NewJob job;
    job.campaign = world.campaign;
    job.measure_case = measure_case(m);
    job.hardware = world.hardware_hash;
    job.trials.push_back(
        {{world.trial_key(store, 1000, m, Role::kBaseline)}, artifact(1000), {}, true});
    for (int tile : tiles)
      job.trials.push_back({{world.trial_key(store, tile, m)}, artifact(tile), {}, false});
    return job;
  }
  // That all of its trials took `median` ns.
  JobReport report(const Job& job, double median) {
    JobReport r;
    r.uuid = new_uuid();
    r.job = job.uuid;
    r.worker = job.worker.value_or("");
    r.attempt = job.attempt;
    r.host = {"", "performance", true, {}, "0,1", 0.25, 0.0};
    r.consumed_s = 1.5;
    for (const JobTrial& t : job.trials) {
      TrialReport result;
      result.trial = t.trial.uuid;
      result.measurement = world.measured(store, t.trial, median);
      result.correctness = Correctness{"", t.artifact, t.trial.key.shape, 1e-7, 1e-5, true};
      r.results.push_back(std::move(result));
    }
    return r;
  }
};

}  // namespace nimble::db
