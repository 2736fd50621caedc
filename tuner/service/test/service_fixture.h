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
class CopyBackend : public Backend {
 public:
  Built build(const kernels::Workload& w, const std::vector<tuned::Candidate>& candidates,
              const kernels::TargetInfo& target) override {
    Built b;
    const std::string base = text_of(Space(w, target).default_candidate());
    std::vector<std::string> names;
    for (const tuned::Candidate& c : candidates) {
      const uint64_t number = hash64(text_of(c));
      names.push_back(text_of(c) == base ? "test.slow"
                      : others_fail      ? "test.wrong"
                                         : kKernels[number % std::size(kKernels)]);
      if (names.back() == "uncompilable") b.error = "the compiler gave up";
      b.code_hashes.push_back(hex(number));
    }
    if (b.error.empty()) b.executable = fault_executable(names);
    b.compile_ms = 1;
    b.image_bytes = 100;
    return b;
  }
  std::vector<CodeText> code(const kernels::Workload&, const tuned::Candidate& c,
                             const kernels::TargetInfo&) override {
    return {{"assembly", "of " + text_of(c)}};
  }
  Expectation expect(const TuningTask& task, const WorkloadPoint& point, const tuned::Candidate&,
                     const DefaultResult&) override {
    if (point.symbols[0] == cannot_be) throw Error(Status::kFatal, "reference", "cannot be");
    std::vector<uint8_t> x(static_cast<size_t>(point.symbols[0]) * 4);
    fill_tensor(task.fills[0], DType::kF32, data_seed(task, point), 0, x);
    return {{x}, 1e-6};
  }
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
               std::span<const uint8_t> executable) override {
    std::string target;
    for (const db::Candidate& c : store.candidates(trial.artifact))
      if (c.digest == trial.candidate) target = c.target;
    trust::require_signed(
        store, verifier_,
        trust::claim_of(trust::Candidate{job.campaign, job.measure_case, db::digest_of(executable),
                                         target, job.limits}));
  }
  std::string trusted_keys() const override { return trust::trusted_keys_json(verifier_); }

 private:
  trust::Verifier verifier_;
};

// A process of its own: kill -9 is what it says.
class Child {
 public:
  explicit Child(const std::function<void()>& body) : pid_(::fork()) {
    if (pid_ != 0) return;
    // A test that crashes or is killed leaves nobody behind.
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    try {
      body();
    } catch (const std::exception& e) {
      std::fprintf(stderr, "child: %s\n", e.what());
      ::_exit(3);
    }
    ::_exit(0);
  }
  ~Child() { end(SIGKILL); }
  void end(int signal) {
    if (pid_ <= 0) return;
    ::kill(pid_, signal);
    ::waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }

 private:
  pid_t pid_;
};

class ServiceTest : public db::StoreTest {
 protected:
  explicit ServiceTest(Where where = Where::kAnywhere)
      : StoreTest(where), key(trust::SigningKey::generate()) {
    ::setenv("NIMBLE_LOCK_FOLDER", folder.c_str(), 1);
    serving.key_name = "planner";
    serving.program = NIMBLE_FAULT_WORKER;
    serving.device = "service";  // workers of these tests are other machines, as far as locks go
    serving.poll_ms = 10;
    serving.compile_threads = 1;
    serving.once = true;
  }
  void SetUp() override {
    StoreTest::SetUp();
    if (IsSkipped()) return;
    serving.database = place();
    store = db::Store::open(serving.database);
  }
  ~ServiceTest() override {
    workers.clear();
    store.reset();
  }

  Submission submission(int64_t seed = 0, const std::string& model = kCopy) const {
    Submission s;
    const kernels::TargetInfo target = kernels::target_by_name("native");
    const ir::Module typed = ir::infer_types(ir::parse_module(model));
    passes::PassContext context;
    context.target = target;
    PointOptions points;
    points.largest = 64;
    points.representative = 16;
    s.tasks = tuning_tasks(passes::run_pipeline(typed, context), model_points(typed, points),
                           target, nullptr);
    s.threads = {1};
    s.target = target.level;
    s.policy.batch_ns = 10'000;
    s.policy.max_samples = 6;
    s.policy.case_ns = 50'000'000;
    s.top_k = 6;
    s.seed = seed;
    return s;
  }
  db::Uuid campaign(double budget_s, int64_t seed = 0) {
    return submit(*store, submission(seed), store->put(db::host_hardware()), budget_s, "test");
  }
  void start_worker(const std::string& name, const std::string& program = NIMBLE_FAULT_WORKER) {
    workers.push_back(std::make_unique<Child>([this, name, program] {
      FleetWorkerOptions o;
      o.database = serving.database;
      o.name = name;
      o.program = program;
      o.device = name;
      o.hang_ms = serving.hang_ms;
      o.poll_ms = 10;
      SignedBy permission(key.public_key());
      serve_jobs(o, permission, kNever, [](const std::string&) {});
    }));
  }
  ServiceTally serve(const std::atomic<bool>& cancel = kNever) {
    return serve_campaigns(serving, backend, key, load_submission, cancel,
                           [this](const std::string& text) { said += text + "\n"; });
  }
  void ask(const db::Uuid& uuid, db::ControlRequest request) {
    db::Control c;
    c.campaign = uuid;
    c.request = request;
    store->request(c);
  }
  db::CampaignState state(const db::Uuid& uuid) { return store->campaign(uuid)->state; }
  std::vector<db::DispatchTable> tables(const db::Uuid& uuid) {
    std::vector<db::DispatchTable> out;
    for (db::DispatchTable& t : db::all_tables(*store))
      if (t.campaign == uuid) out.push_back(std::move(t));
    return out;
  }
  int64_t jobs_of(const db::Uuid& uuid) {
    int64_t n = 0;
    for (const db::Event& e : store->events(0, 1 << 20, uuid))
      n += e.kind == "job" && e.detail == R"({"state":"queued"})";
    return n;
  }

  // Each case was published once, each proposal is in one case, and what was consumed is what was
  // reported.
  void expect_nothing_counted_twice(const db::Uuid& uuid) {
    std::set<std::string> keys;
    std::map<db::Hash, std::set<std::string>> proposed;  // by configuration
    double told = 0;
    for (const db::Event& e : store->events(0, 1 << 20, uuid)) {
      if (e.kind == "report") told += store->stored_report(e.subject)->consumed_s;
      if (e.kind != "job" || e.detail != R"({"state":"queued"})") continue;
      const db::Job job = *store->job(e.subject);
      if (job.parent) continue;
      const PlanRecord r = *plan_record_of(job.limits);
      EXPECT_TRUE(keys.insert(r.wanted.key).second) << r.wanted.key;
      if (r.wanted.phase == plan::Phase::kSearch || r.wanted.phase == plan::Phase::kBaseline)
        for (const db::Hash& c : r.wanted.configs)
          proposed[c].insert(r.wanted.first.empty() ? r.wanted.key : r.wanted.first);
    }
    for (const auto& [config, cases] : proposed) EXPECT_EQ(cases.size(), 1u) << config;
    double consumed = 0;
    for (const db::Consumption& c : store->consumption(uuid)) consumed += c.consumed_s;
    EXPECT_NEAR(consumed, told, 1e-6);
    EXPECT_THAT(store->check().problems, testing::IsEmpty());
    const db::OpenJobs open = store->open_jobs(uuid);
    EXPECT_EQ(open.queued + open.claimed, 0);
  }
  void expect_tuned(const db::Uuid& uuid) {
    EXPECT_EQ(state(uuid), db::CampaignState::kFinished) << said;
    const std::vector<db::DispatchTable> made = tables(uuid);
    ASSERT_EQ(made.size(), 1u) << said;
    EXPECT_EQ(made[0].status, db::TableStatus::kActive) << said;
    EXPECT_EQ(store->comparisons(made[0].uuid).size(), 1u);
    for (const db::Task& t : store->tasks(uuid)) {
      EXPECT_EQ(t.phase, "done");
      EXPECT_THAT(t.detail, testing::HasSubstr("best_ratio"));
      EXPECT_NEAR(t.share.value_or(0), 1, 1e-9) << "the only one";
    }
    expect_nothing_counted_twice(uuid);
  }

  std::string said;
  trust::SigningKey key;
  ServiceOptions serving;
  CopyBackend backend;
  std::unique_ptr<db::Store> store;
  std::vector<std::unique_ptr<Child>> workers;
};

}  // namespace nimble::tuner
