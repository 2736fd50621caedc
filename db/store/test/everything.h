// A database with a row in each table that is exchanged but tombstones, for tests of merging and
// the seeds of the fuzz target.
#pragma once

#include "db/store/test/fleet.h"

namespace nimble::db {

// `tile` tells one database's rows from another's.
inline void add_everything(Store& store, int tile) {
  World world(store);
  const Uuid trial = world.tried(store, tile, 64, 100 + tile);
  const Measurement m = world.measured(store, *store.trial(trial), 100 + tile);
  store.add(Correctness{"", m.artifact, world.shape(store, 64), 1e-7, 1e-5, true});
  store.add(CostModel{"", world.campaign, world.workload_hash, 0, {1, 2}, 0.5});
  NewDispatchTable t = world.draft(store, tile);
  t.entries[0].evidence = store.add(m);
  const Uuid table = store.create_table(t);
  store.activate(table, "tuned");
  NewDispatchTable next = world.draft(store, tile + 1);
  next.parent = table;
  const Uuid second = store.create_table(next);
  store.add(Comparison{"", second, table, 1, 0.9, 0.95});
  store.activate(second, "faster");
  NewOverride word{world.workload_hash,
                   world.hardware_hash,
                   {{"m", {tile, tile + 8}}},
                   world.config(store, tile),
                   "because"};
  store.withdraw(store.add(word), "it was not");
  store.add(word);
  store.tell_shapes(store.identity(),
                    {{world.workload_hash, world.hardware_hash, {{"m", tile}}, 5}});

  Fleet fleet(store);
  NewJob job = fleet.job({tile + 100}, 64);
  job.trials[1].candidate = store.put_blob(std::vector<uint8_t>(100, static_cast<uint8_t>(tile)));
  store.put(Candidate{job.trials[1].artifact, *job.trials[1].candidate, "x86-64-v4"});
  store.publish(job);
  store.report(fleet.report(store.claim_job({fleet.worker("box")}).value(), 50 + tile));
  store.add_tasks({{"",
                    world.campaign,
                    world.workload_hash,
                    "dense",
                    0.5,
                    1,
                    {{job.trials[0].trial.key.shape, 1.0}}}});
  store.enter_phase(uuid_of_task(world.campaign, world.workload_hash), "search", "", 0.5);
  store.answer(store.request({"", world.campaign, ControlRequest::kPause, "me", "now"}), true,
               "paused");
  store.add_consumed(world.campaign, world.machine, 1.5);
  store.enqueue({{world.trial_key(store, tile + 50, 64)}});
  store.claim({world.campaign, "worker"});

  Measurement twin = m;
  twin.twin_ns = m.samples_ns;
  twin.runs_per_sample = 10;
  twin.drift = 0.01;
  store.add(twin);
  FailureLog log;
  log.trial = trial;
  log.error_class = "SIGSEGV";
  log.message = "SIGSEGV";
  log.output = "assertion failed";
  store.add(log);
  store.put(GeneratedCode{"code-" + std::to_string(tile), "assembly", *job.trials[1].candidate});
  Ceiling ceiling;
  ceiling.machine = world.machine;
  ceiling.dtype = "f32";
  ceiling.kind = "compute";
  ceiling.value = 1e11;
  store.add(ceiling);
  PeerFigure peer;
  peer.run = uuid_from_hash(hash_of("run"));
  peer.peer = "torch";
  peer.version = "2.5";
  peer.machine = world.machine;
  peer.subject = world.workload.canonical;
  peer.dims = {{"m", 64}};
  peer.dtype = "f32";
  peer.samples_ns = {1, 2, 3};
  peer.median_ns = 2;
  store.add(peer);
  const std::string key(64, static_cast<char>('a' + tile % 6));
  store.put(SigningKey{key, "box"});
  store.revoke({key, "stolen"});
  store.add(Signature{std::string(64, '0'), key, std::vector<uint8_t>(64)});
}

}  // namespace nimble::db
