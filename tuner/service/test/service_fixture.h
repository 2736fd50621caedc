// A service, workers that are processes of their own, and a workload whose candidates go wrong.
#pragma once

#include <gmock/gmock.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <thread>

#include "compiler/ir/infer.h"
#include "compiler/ir/text.h"
#include "compiler/passes/pipeline.h"
#include "compiler/tuned/tuned.h"
#include "db/store/hash.h"
#include "db/store/host_records.h"
#include "db/store/test/all.h"
#include "db/store/test/fixture.h"
#include "tuner/fleet/fleet_worker.h"
#include "tuner/fleet/permission.h"
#include "tuner/measure/test/fault_executable.h"
#include "tuner/service/campaign_service.h"
#include "tuner/service/service.h"
#include "tuner/service/test/copy_workload.h"
#include "tuner/trust/records.h"
#include "vm/base/error.h"
#include "vm/base/hash.h"

namespace nimble::tuner {

// The default schedule is slow, others are fast or go wrong, by what the configuration says.
class CopyBackend : public CopyingBackend {
 public:
  Built build(const kernels::Workload& w, const std::vector<tuned::Candidate>& candidates,
              const kernels::TargetInfo& target) override;
  std::vector<CodeText> code(const kernels::Workload&, const tuned::Candidate& c,
                             const kernels::TargetInfo&) override {
    return {{"assembly", "of " + text_of(c)}};
  }
  Expectation expect(const TuningTask& task, const WorkloadPoint& point, const tuned::Candidate& c,
                     const DefaultResult& run) override;
  static constexpr const char* kKernels[] = {"test.copy",  "test.copy",   "test.copy",
                                             "test.copy",  "test.slow",   "test.wrong",
                                             "test.crash", "uncompilable"};
  int64_t cannot_be = -1;
  bool others_fail = false;  // all but the default schedule
};

// Runs what one key signed.
class SignedBy : public Permission {
 public:
  explicit SignedBy(const trust::PublicKey& key) : verifier_({{key, "planner"}}, {}) {}
  bool renew(db::Store&) override { return false; }
  void require(db::Store& store, const db::Job& job, const db::JobTrial& trial,
               std::span<const uint8_t> executable) override;
  std::string trusted_keys() const override { return trust::trusted_keys_json(verifier_); }

 private:
  trust::Verifier verifier_;
};

// A process of its own: kill -9 is what it says.
class Child {
 public:
  explicit Child(const std::function<void()>& body);
  ~Child() { end(SIGKILL); }
  void end(int signal);

 private:
  pid_t pid_;
};

class ServiceTest : public db::StoreTest {
 protected:
  explicit ServiceTest(Where where = Where::kAnywhere);
  void SetUp() override;
  ~ServiceTest() override;

  Submission submission(int64_t seed = 0, const std::string& model = kCopy) const;
  db::Uuid campaign(double budget_s, int64_t seed = 0) {
    return submit(*store, submission(seed), store->put(db::host_hardware()), budget_s, "test");
  }
  // A worker that is another machine, and starting one: a process that runs what the service signs.
  FleetWorkerOptions worker(const std::string& name, const std::string& program) const;
  void start(const FleetWorkerOptions& options);
  void start_worker(const std::string& name, const std::string& program = NIMBLE_FAULT_WORKER) {
    start(worker(name, program));
  }
  ServiceTally serve(const std::atomic<bool>& cancel = kNever);
  void ask(const db::Uuid& uuid, db::ControlRequest request);
  db::CampaignState state(const db::Uuid& uuid) { return store->campaign(uuid)->state; }
  std::vector<db::DispatchTable> tables(const db::Uuid& uuid);
  int64_t jobs_of(const db::Uuid& uuid);

  // Each case was published once, each proposal is in one case, and what was consumed is what was
  // reported.
  void expect_nothing_counted_twice(const db::Uuid& uuid);
  void expect_tuned(const db::Uuid& uuid);

  std::string said;
  trust::SigningKey key;
  ServiceOptions serving;
  CopyBackend backend;
  std::unique_ptr<db::Store> store;
  std::vector<std::unique_ptr<Child>> workers;
};

}  // namespace nimble::tuner
