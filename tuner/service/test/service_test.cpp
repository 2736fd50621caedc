// Campaigns that a service and workers of a fleet tune together, and services that are killed.
#include "tuner/service/service.h"

#include <gmock/gmock.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "compiler/ir/infer.h"
#include "compiler/ir/text.h"
#include "compiler/passes/pipeline.h"
#include "compiler/tuned/tuned.h"
#include "db/store/hash.h"
#include "db/store/host_records.h"
#include "db/store/test/fault_vfs.h"
#include "db/store/test/fixture.h"
#include "tuner/fleet/fleet_worker.h"
#include "tuner/fleet/permission.h"
#include "tuner/measure/test/fault_executable.h"
#include "tuner/service/campaign_service.h"
#include "tuner/trust/records.h"
#include "vm/base/error.h"
#include "vm/base/hash.h"

namespace nimble::tuner {
namespace {

using db::CampaignState;
using db::ControlRequest;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// A workload that computes its input: the product of the fault worker's kernels.
const char kCopy[] = "fn @main(%x: Tensor[(n), f32]) -> Tensor[(n), f32] { let %y = relu(%x); %y }";

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

const std::atomic<bool> kNever{false};

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
  void ask(const db::Uuid& uuid, ControlRequest request) {
    db::Control c;
    c.campaign = uuid;
    c.request = request;
    store->request(c);
  }
  CampaignState state(const db::Uuid& uuid) { return store->campaign(uuid)->state; }
  std::vector<db::DispatchTable> tables(const db::Uuid& uuid) {
    std::vector<db::DispatchTable> out;
    for (db::DispatchTable& t : store->tables())
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
    EXPECT_THAT(store->check().problems, IsEmpty());
    const db::OpenJobs open = store->open_jobs(uuid);
    EXPECT_EQ(open.queued + open.claimed, 0);
  }
  void expect_tuned(const db::Uuid& uuid) {
    EXPECT_EQ(state(uuid), CampaignState::kFinished) << said;
    const std::vector<db::DispatchTable> made = tables(uuid);
    ASSERT_EQ(made.size(), 1u) << said;
    EXPECT_EQ(made[0].status, db::TableStatus::kActive) << said;
    EXPECT_EQ(store->comparisons(made[0].uuid).size(), 1u);
    for (const db::Task& t : store->tasks(uuid)) {
      EXPECT_EQ(t.phase, "done");
      EXPECT_THAT(t.detail, HasSubstr("best_ratio"));
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

TEST_F(ServiceTest, TunesACampaignToActiveTablesWithTwoWorkers) {
  const db::Uuid uuid = campaign(1.5);
  start_worker("a");
  start_worker("b");
  const ServiceTally tally = serve();
  EXPECT_EQ(tally.finished, 1) << said;
  EXPECT_GT(tally.cases, 3);
  expect_tuned(uuid);
  // What the tables are made of can be read.
  const db::DispatchTable made = *store->table(tables(uuid)[0].uuid);
  for (const db::DispatchEntry& e : made.entries) {
    const auto texts = store->generated_code(e.code_hash);
    ASSERT_EQ(texts.size(), 1u);
    EXPECT_EQ(texts[0].kind, "assembly");
  }
  // The default ran against itself where finalists were compared.
  EXPECT_THAT(made.objective, HasSubstr("A/A"));
  EXPECT_FALSE(store->twins().empty());
  EXPECT_THAT(store->tasks(uuid).at(0).detail, HasSubstr("noise"));
  // What cannot be compiled is known as such, what goes wrong, too.
  std::set<db::TrialState> states;
  for (const db::TrialOutcome& o : store->outcomes(uuid)) states.insert(o.trial.state);
  EXPECT_TRUE(states.contains(db::TrialState::kOk));
  EXPECT_FALSE(states.contains(db::TrialState::kClaimed));
  // A finished campaign is nobody's; with a larger budget it goes on.
  EXPECT_EQ(serve().finished, 0);
  EXPECT_EQ(campaign(2.5), uuid);
  EXPECT_EQ(serve().finished, 1) << said;
  EXPECT_EQ(state(uuid), CampaignState::kFinished);
  expect_nothing_counted_twice(uuid);
}

// Its table holds the default schedule: a compiler finds a record, whose age it can tell.
TEST_F(ServiceTest, AWorkloadThatKeepsItsDefaultScheduleHasATable) {
  backend.others_fail = true;
  const db::Uuid uuid = campaign(0.8);
  start_worker("a");
  EXPECT_EQ(serve().finished, 1) << said;
  expect_tuned(uuid);
  const std::vector<db::DispatchTable> made = tables(uuid);
  ASSERT_EQ(made.size(), 1u);
  ASSERT_EQ(made[0].entries.size(), 1u);
  const db::DispatchEntry& only = made[0].entries[0];
  EXPECT_GT(only.expected_ns.value_or(0), 0);
  EXPECT_EQ(only.fallback, std::nullopt);
  EXPECT_NE(only.evidence, std::nullopt);
  EXPECT_THAT(store->tasks(uuid).at(0).detail, HasSubstr("nothing is faster"));

  const kernels::TargetInfo target = kernels::target_by_name("native");
  const Submission s = submission();
  const kernels::Workload& w = s.tasks.at(0).workload();
  const tuned::Lookup found =
      tuned::database_source(db::Store::open(serving.database))->find(w, target, s.policy.name);
  EXPECT_EQ(found.outcome, tuned::Lookup::Outcome::kTuned) << found.reason;
  ASSERT_TRUE(found.choice);
  EXPECT_THAT(found.choice->candidates, testing::ElementsAre(Space(w, target).default_candidate()));
}

TEST_F(ServiceTest, ASizeThatCannotBeIsLeftOut) {
  const db::Uuid uuid = campaign(1.2);
  backend.cannot_be = 16;  // where the search would run
  start_worker("a");
  EXPECT_EQ(serve().finished, 1);
  EXPECT_THAT(said, HasSubstr("cannot occur at 16"));
  expect_tuned(uuid);
}

// At every look a second plan is made from the database alone.
TEST_F(ServiceTest, ARestartAtAnyMomentKnowsWhatWasKnown) {
  const db::Uuid uuid = campaign(1.2);
  start_worker("a");
  start_worker("b");
  RunnerOptions runner_options;
  runner_options.program = NIMBLE_FAULT_WORKER;
  Runner runner(runner_options);
  const kernels::TargetInfo target = kernels::target_by_name("native");
  const auto publishing = [&](db::Store& s) {
    const Submission its = load_submission(s, uuid);
    return Publishing{s,
                      backend,
                      runner,
                      key,
                      "planner",
                      target,
                      its.policy,
                      *s.campaign(uuid),
                      s.put(tuned::toolchain_record()),
                      nullptr,
                      1,
                      [](const std::string&) {}};
  };
  Publishing own = publishing(*store);
  CampaignService service(own, load_submission(*store, uuid));
  int compared = 0;
  for (;;) {
    ASSERT_FALSE(service.steer());
    // Workers tell more at any moment: until both have seen the same.
    bool alike = false;
    for (int tries = 0; !alike && tries < 5; ++tries) {
      service.follow();
      const auto other = db::Store::open(serving.database);
      Publishing its = publishing(*other);
      const CampaignService anew(its, load_submission(*other, uuid));
      alike = anew.seen() == service.seen();
      if (alike) {
        ++compared;
        EXPECT_EQ(anew.plan().outstanding(), service.plan().outstanding());
        EXPECT_EQ(anew.plan().spent_s(), service.plan().spent_s());
        const auto a = anew.plan().tasks(), b = service.plan().tasks();
        for (size_t t = 0; t < a.size(); ++t) {
          EXPECT_EQ(plan::name_of(a[t].phase), std::string(plan::name_of(b[t].phase)));
          EXPECT_EQ(a[t].trials, b[t].trials);
          EXPECT_EQ(a[t].failed, b[t].failed);
          EXPECT_EQ(a[t].best_ratio, b[t].best_ratio);
          EXPECT_EQ(a[t].verified.ratios, b[t].verified.ratios);
        }
      }
    }
    if (service.finish()) break;
    const plan::Fleet fleet = service.fleet();
    if (service.may_want(fleet))
      for (const plan::WantedCase& w : service.want(fleet)) service.publish(w);
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_GT(compared, 0);
  expect_tuned(uuid);
}

// NIMBLE_KILLS: how many.
TEST_F(ServiceTest, KilledAgainAndAgainItComesToTheSameEnd) {
  const char* asked = std::getenv("NIMBLE_KILLS");
  const int kills = asked ? std::max(1, std::atoi(asked)) : 20;
  const db::Uuid uuid = campaign(2);
  start_worker("a");
  start_worker("b");
  std::mt19937_64 random(11);
  int killed = 0;
  for (; killed < kills && state(uuid) == CampaignState::kRunning; ++killed) {
    Child service([&] { serve(); });
    std::this_thread::sleep_for(std::chrono::milliseconds(5 + random() % 120));
    service.end(SIGKILL);
  }
  EXPECT_GT(killed, 0);
  serve();
  expect_tuned(uuid);
}

TEST_F(ServiceTest, IsPausedAndGoesOn) {
  const db::Uuid uuid = campaign(1.2);
  ask(uuid, ControlRequest::kPause);
  start_worker("a");
  std::atomic<bool> cancel{false};
  int looks = 0;
  serving.looked = [&] {
    ++looks;
    if (looks < 20) {
      EXPECT_EQ(state(uuid), CampaignState::kPaused);
      EXPECT_EQ(jobs_of(uuid), 0);
    }
    if (looks == 20) ask(uuid, ControlRequest::kResume);
  };
  EXPECT_EQ(serve(cancel).finished, 1);
  expect_tuned(uuid);
  for (const db::Control& c : store->requests(uuid)) EXPECT_EQ(c.accepted, true);
}

TEST_F(ServiceTest, ToldToStopItVerifiesWhatIsKnown) {
  const db::Uuid uuid = campaign(1e6);
  start_worker("a");
  bool asked = false;
  serving.looked = [&] {
    if (asked || jobs_of(uuid) < 4) return;
    asked = true;
    ask(uuid, ControlRequest::kStop);
  };
  EXPECT_EQ(serve().finished, 1);
  EXPECT_TRUE(asked);
  expect_tuned(uuid);
}

TEST_F(ServiceTest, ToldToStopWithoutAWorkerItEndsAfterAWhile) {
  const db::Uuid uuid = campaign(1e6);
  start_worker("a");
  serving.stop_patience_s = 0.3;
  int looks = 0;
  serving.looked = [&] {
    if (jobs_of(uuid) < 3 || looks++ > 0) return;
    workers.clear();
    // Who was killed says no goodbye: it counts as alive until its heartbeat is old.
    for (const db::LiveWorker& w : store->live_workers()) {
      db::Heartbeat gone = *w.heartbeat;
      gone.state = db::WorkerState::kStopped;
      store->heartbeat(gone);
    }
    ask(uuid, ControlRequest::kStop);
  };
  EXPECT_EQ(serve().finished, 1) << said;
  EXPECT_THAT(said, HasSubstr("no worker is there"));
  EXPECT_EQ(state(uuid), CampaignState::kFinished);
  EXPECT_THAT(tables(uuid), IsEmpty()) << "what nobody has verified";
  EXPECT_THAT(store->tasks(uuid).at(0).detail, HasSubstr("ended without a worker"));
  const db::OpenJobs open = store->open_jobs(uuid);
  EXPECT_EQ(open.queued + open.claimed, 0);
  // With a larger budget and a worker it goes on, and makes tables.
  campaign(1e6 + 1);
  start_worker("b");
  serving.looked = [&, asked = false]() mutable {
    if (asked) return;
    asked = true;
    ask(uuid, ControlRequest::kStop);
  };
  EXPECT_EQ(serve().finished, 1) << said;
  EXPECT_EQ(tables(uuid).size(), 1u);
  EXPECT_THAT(store->tasks(uuid).at(0).detail, Not(HasSubstr("ended without a worker")));
}

TEST_F(ServiceTest, StoppedAndKilledItStillStops) {
  const db::Uuid uuid = campaign(1e6);
  start_worker("a");
  ask(uuid, ControlRequest::kStop);
  {
    Child service([&] { serve(); });
    while (!store->open_requests(uuid).empty())
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    service.end(SIGKILL);
  }
  serve();
  EXPECT_EQ(state(uuid), CampaignState::kFinished);
}

TEST_F(ServiceTest, ACancelledCampaignEndsWithoutTables) {
  const db::Uuid uuid = campaign(1e6);
  start_worker("a");
  bool asked = false;
  serving.looked = [&] {
    if (asked || jobs_of(uuid) < 3) return;
    asked = true;
    ask(uuid, ControlRequest::kCancel);
  };
  EXPECT_EQ(serve().finished, 0);
  EXPECT_EQ(state(uuid), CampaignState::kFailed);
  EXPECT_THAT(tables(uuid), IsEmpty());
  const db::OpenJobs open = store->open_jobs(uuid);
  EXPECT_EQ(open.queued + open.claimed, 0);
}

TEST_F(ServiceTest, TwoCampaignsShareTheWorkers) {
  const db::Uuid first = campaign(1.2, 1), second = campaign(1.2, 2);
  ASSERT_NE(first, second);
  start_worker("a");
  start_worker("b");
  EXPECT_EQ(serve().finished, 2) << said;
  // Neither waited for the other's end.
  std::map<db::Uuid, int64_t> begun, ended;
  for (const db::Uuid& uuid : {first, second}) {
    EXPECT_EQ(state(uuid), CampaignState::kFinished);
    expect_nothing_counted_twice(uuid);
    for (const db::Event& e : store->events(0, 1 << 20, uuid)) {
      if (e.kind == "report") begun.emplace(uuid, e.number);
      if (e.kind == "campaign") ended[uuid] = e.number;
    }
  }
  EXPECT_LT(begun[first], ended[second]);
  EXPECT_LT(begun[second], ended[first]);
}

TEST_F(ServiceTest, OfTwoServicesOneServesAndTheOtherTakesOver) {
  const db::Uuid uuid = campaign(1e6);
  start_worker("a");
  std::optional<Child> other;
  other.emplace([&] { serve(); });
  while (jobs_of(uuid) == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  int looks = 0;
  serving.looked = [&] {
    if (++looks < 5) {
      EXPECT_THAT(said, HasSubstr("another service has it"));
    } else if (looks == 5) {
      other.reset();
    } else if (looks == 10) {
      ask(uuid, ControlRequest::kStop);
    }
  };
  const ServiceTally tally = serve();
  EXPECT_THAT(said, HasSubstr("another service has it"));
  EXPECT_EQ(tally.finished, 1);
  expect_tuned(uuid);
}

TEST_F(ServiceTest, TwoServicesAndTwoCampaignsComeToOneEndEach) {
  const db::Uuid first = campaign(1.2, 1), second = campaign(1.2, 2);
  start_worker("a");
  start_worker("b");
  Child other([&] { serve(); });
  serve();
  while (state(first) != CampaignState::kFinished || state(second) != CampaignState::kFinished)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  for (const db::Uuid& uuid : {first, second}) {
    EXPECT_EQ(tables(uuid).size(), 1u);
    expect_nothing_counted_twice(uuid);
  }
}

// The database's faults, again and again while a campaign is served.
class ServiceFaultTest : public ServiceTest {
 protected:
  explicit ServiceFaultTest(Where where) : ServiceTest(where) {}
  // Between two faults something was published: each is later than the one before.
  ServiceTally serve_while(int faults, const std::function<void()>& fault,
                           const std::function<void()>& over) {
    int64_t published = -1;
    serving.looked = [&] {
      if (faults == 0) return;
      const int64_t now = connection()->integer("SELECT count(*) FROM job");
      if (now == published) return;
      published = now;
      --faults;
      fault();
    };
    return serve_campaigns(serving, backend, key, load_submission, kNever,
                           [&](const std::string& text) {
                             said += text + "\n";
                             if (text.find("trying again") == std::string::npos) return;
                             ++tried;
                             over();
                           });
  }
  int tried = 0;
};

class ServiceFileFaultTest : public ServiceFaultTest {
 protected:
  ServiceFileFaultTest() : ServiceFaultTest(Where::kFiles) {}
};

TEST_F(ServiceFileFaultTest, ADiskThatIsFullForAWhileLosesNothing) {
  db::register_faulty_vfs();
  serving.open.vfs = "nimble-faulty";
  const db::Uuid uuid = campaign(1.5);
  start_worker("a");
  std::mt19937_64 random(5);
  const ServiceTally tally = serve_while(
      8, [&] { db::fill_up_after(static_cast<long>(random() % 30)); }, [] { db::stop_failing(); });
  db::stop_failing();
  EXPECT_EQ(tally.finished, 1) << said;
  EXPECT_GT(tried, 2) << said;
  expect_tuned(uuid);
}

class ServiceServerFaultTest : public ServiceFaultTest {
 protected:
  ServiceServerFaultTest() : ServiceFaultTest(Where::kServer) {}
};

TEST_F(ServiceServerFaultTest, AConnectionThatIsLostAgainAndAgainLosesNothing) {
  const db::Uuid uuid = campaign(1.5);
  start_worker("a");
  // A worker that cannot open the database when it begins says so and ends.
  while (store->live_workers().empty() || !store->live_workers()[0].heartbeat)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  store.reset();
  const auto database = connection();
  int64_t ended = 0;
  const ServiceTally tally = serve_while(
      8,
      [&] {
        ended += database->integer(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()");
      },
      [] {});
  store = db::Store::open(serving.database);
  EXPECT_EQ(tally.finished, 1) << said;
  EXPECT_GT(ended, 8) << "service and worker";
  EXPECT_GT(tried, 2) << said;
  expect_tuned(uuid);
}

TEST_F(ServiceTest, AskedToEndItLeavesTheCampaignAsItIs) {
  const db::Uuid uuid = campaign(1e6);
  start_worker("a");
  std::atomic<bool> cancel{false};
  serving.looked = [&] { cancel = jobs_of(uuid) > 2; };
  EXPECT_EQ(serve(cancel).finished, 0);
  EXPECT_EQ(state(uuid), CampaignState::kRunning);
}

TEST_F(ServiceTest, ACampaignThatCannotBeServedIsToldOfAndLeftAlone) {
  const db::Uuid good = campaign(1.2);
  db::CampaignKey bad;
  bad.digest = "x";
  bad.hardware = store->put(db::host_hardware());
  bad.options =
      R"({"submission":"0000000000000000000000000000000000000000000000000000000000000000"})";
  const db::Uuid uuid = store->create_campaign(bad, 10, "test");
  start_worker("a");
  const ServiceTally tally = serve();
  EXPECT_EQ(tally.refused, 1);
  EXPECT_EQ(tally.finished, 1);
  EXPECT_THAT(said, HasSubstr("cannot be served"));
  EXPECT_EQ(state(uuid), CampaignState::kRunning);
  EXPECT_EQ(state(good), CampaignState::kFinished);
}

// Importing makes nobody work: a merged campaign would have this service build and sign what
// somebody else chose.
TEST_F(ServiceTest, ACampaignThatWasMergedIsNotServedUntilSomebodyHereResumesIt) {
  serving.database = place("other.db");
  store = db::Store::open(serving.database);
  const db::Uuid uuid = campaign(2);
  store->export_to(folder + "/records");
  serving.database = place();
  store = db::Store::open(serving.database);
  store->import_from(folder + "/records");
  start_worker("box");
  EXPECT_EQ(serve().cases, 0) << said;
  EXPECT_EQ(jobs_of(uuid), 0);
  EXPECT_TRUE(tables(uuid).empty());
  store->set_campaign_state(uuid, CampaignState::kRunning);
  serve();
  EXPECT_EQ(state(uuid), CampaignState::kFinished) << said;
}

TEST_F(ServiceTest, WhatAMergedDatabaseAsksForIsNotDone) {
  const db::Uuid uuid = campaign(2);
  store->export_to(folder + "/copy.db");
  {
    const auto copy = db::Store::open(folder + "/copy.db");
    db::Control c;
    c.campaign = uuid;
    c.request = ControlRequest::kCancel;
    copy->request(c);
    copy->record_consumed(uuid, 1e6);
    copy->set_campaign_state(uuid, CampaignState::kFailed);
  }
  store->import_from(folder + "/copy.db");
  EXPECT_THAT(store->open_requests(uuid), IsEmpty());
  EXPECT_EQ(state(uuid), CampaignState::kRunning);
  EXPECT_EQ(store->campaign(uuid)->consumed_s, 0);
  start_worker("box");
  serve();
  expect_tuned(uuid);
}

TEST(PlanRecord, SaysWhatTheCaseSays) {
  PlanRecord r;
  r.wanted.key = "0/3 again 1";
  r.wanted.task = 1;
  r.wanted.point = 2;
  r.wanted.phase = plan::Phase::kCross;
  r.wanted.slice = 2;
  r.wanted.configs = {"a", "b"};
  r.wanted.anchors = {"c"};
  r.wanted.avoid = "m";
  r.wanted.first = "0/3";
  r.seen = 17;
  r.budget_s = 2.5;
  const PlanRecord back = *plan_record_of(limits_of(r, 20));
  EXPECT_EQ(limits_of(back, 20), limits_of(r, 20));
  EXPECT_FALSE(plan_record_of(R"({"case_s":20})"));
  for (const char* text : {"", "[", R"({"plan":3})", R"({"plan":{"key":"0/1"}})"})
    EXPECT_THROW(plan_record_of(text), Error) << text;
}

}  // namespace
}  // namespace nimble::tuner
