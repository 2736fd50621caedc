// A database with a campaign, and workers whose measuring process has kernels that go wrong. On
// files, and with NIMBLE_TEST_ENGINE=postgres on a server (db/store/test/fixture.h).
#pragma once

#include <gmock/gmock.h>

#include <atomic>
#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include "db/store/host_records.h"
#include "db/store/test/fixture.h"
#include "db/store/test/fleet.h"
#include "tuner/fleet/case_record.h"
#include "tuner/fleet/fleet_worker.h"
#include "tuner/measure/test/fault_executable.h"

namespace nimble::tuner {

// Lets everything run, or says why not.
class AskedPermission final : public Permission {
 public:
  using Answer = std::function<std::string(const db::Job&)>;  // empty: it may run

  bool renew(db::Store&) override {
    if (!broken.empty()) throw Error(Status::kInvalidArgument, "trusted_keys", broken);
    return changed.exchange(false);
  }
  void require(db::Store&, const db::Job& job, const db::JobTrial&,
               std::span<const uint8_t>) override {
    const std::string why = answer ? answer(job) : "";
    if (!why.empty()) throw Error(Status::kInvalidArgument, "candidate", why);
  }
  std::string trusted_keys() const override { return keys; }

  Answer answer;
  std::string keys = "[]", broken;
  std::atomic<bool> changed{false};
};

class FleetTest : public db::StoreTest {
 protected:
  explicit FleetTest(Where where = Where::kAnywhere) : StoreTest(where) {}
  void SetUp() override {
    StoreTest::SetUp();
    if (IsSkipped()) return;
    ::setenv("NIMBLE_LOCK_FOLDER", folder.c_str(), 1);
    work_options.database = place();
    work_options.open.busy_timeout_ms = options.busy_timeout_ms;
    work_options.program = NIMBLE_FAULT_WORKER;
    work_options.poll_ms = 20;
    work_options.max_idle_s = 0.3;
    options.clock_ms = {};
    store = db::Store::open(place(), options);
    fleet.emplace(*store);
  }
  ~FleetTest() override {
    fleet.reset();
    store.reset();
  }

  db::Uuid another_campaign() {
    db::CampaignKey key = fleet->world.key;
    key.seed = ++seeds_;
    return store->create_campaign(key, 300, "nimble tune another");
  }
  // A job of kernels of the fault worker at one size, behind a copy as the anchor.
  db::NewJob job(const std::vector<std::string>& kernels, int64_t n = 64,
                 const db::Uuid& campaign = {}, const std::string& target = "x86-64") {
    Case c = copy_case(0, 0, n);
    c.policy.batch_ns = 10'000;
    c.policy.max_samples = 6;
    store->put(policy_record(c.policy, c.threads));
    db::NewJob out;
    out.campaign = campaign.empty() ? fleet->world.campaign : campaign;
    out.hardware = store->put(db::host_hardware());
    out.measure_case =
        store->put(case_record(c, fleet->world.workload_hash, fleet->world.shape(*store, n),
                               store->put_blob(expected_bytes(c))));
    out.limits = R"({"case_s":20})";
    for (size_t i = 0; i <= kernels.size(); ++i) {
      const bool anchor = i == 0;
      const int tile = anchor ? 1000 : static_cast<int>(i);
      const db::Hash artifact = fleet->artifact(tile);
      const db::Digest digest =
          store->put_blob(fault_executable({anchor ? "test.copy" : kernels[i - 1]}));
      store->put(db::Candidate{artifact, digest, target});
      db::TrialKey key =
          fleet->world.trial_key(*store, tile, n, anchor ? db::Role::kBaseline : db::Role::kSearch);
      key.campaign = out.campaign;
      out.trials.push_back({{key}, artifact, digest, anchor});
    }
    return out;
  }
  FleetTally work(const std::atomic<bool>& cancel = never()) {
    return serve_jobs(work_options, permission, cancel,
                      [&](const std::string& text) { said += text + "\n"; });
  }
  static const std::atomic<bool>& never() {
    static const std::atomic<bool> flag{false};
    return flag;
  }
  db::Trial trial(const db::NewJob& j, size_t i) {
    return *store->trial(db::uuid_of(j.trials[i].trial.key));
  }

  std::string said;
  FleetWorkerOptions work_options;
  AskedPermission permission;
  std::unique_ptr<db::Store> store;
  std::optional<db::Fleet> fleet;

 private:
  uint64_t seeds_ = 1000;
};

}  // namespace nimble::tuner
