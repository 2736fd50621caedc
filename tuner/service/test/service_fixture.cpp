#include "tuner/service/test/service_fixture.h"

namespace nimble::tuner {

Built CopyBackend::build(const kernels::Workload& w,
                         const std::vector<tuned::Candidate>& candidates,
                         const kernels::TargetInfo& target) {
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

Expectation CopyBackend::expect(const TuningTask& task, const WorkloadPoint& point,
                                const tuned::Candidate& c, const DefaultResult& run) {
  if (point.symbols[0] == cannot_be) throw Error(Status::kFatal, "reference", "cannot be");
  return CopyingBackend::expect(task, point, c, run);
}

void SignedBy::require(db::Store& store, const db::Job& job, const db::JobTrial& trial,
                       std::span<const uint8_t> executable) {
  std::string target;
  for (const db::Candidate& c : store.candidates(trial.artifact))
    if (c.digest == trial.candidate) target = c.target;
  trust::require_signed(
      store, verifier_,
      trust::claim_of(trust::Candidate{job.campaign, job.measure_case, db::digest_of(executable),
                                       target, job.limits}));
}

Child::Child(const std::function<void()>& body) : pid_(::fork()) {
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

void Child::end(int signal) {
  if (pid_ <= 0) return;
  ::kill(pid_, signal);
  ::waitpid(pid_, nullptr, 0);
  pid_ = 0;
}

ServiceTest::ServiceTest(Where where) : StoreTest(where), key(trust::SigningKey::generate()) {
  ::setenv("NIMBLE_LOCK_FOLDER", folder.c_str(), 1);
  serving.key_name = "planner";
  serving.program = NIMBLE_FAULT_WORKER;
  serving.device = "service";  // workers of these tests are other machines, as far as locks go
  serving.poll_ms = 10;
  serving.compile_threads = 1;
  serving.once = true;
}

void ServiceTest::SetUp() {
  StoreTest::SetUp();
  if (IsSkipped()) return;
  serving.database = place();
  store = db::Store::open(serving.database);
}

ServiceTest::~ServiceTest() {
  workers.clear();
  store.reset();
}

Submission ServiceTest::submission(int64_t seed, const std::string& model) const {
  Submission s;
  const kernels::TargetInfo target = kernels::target_by_name("native");
  const ir::Module typed = ir::infer_types(ir::parse_module(model));
  passes::PassContext context;
  context.target = target;
  PointOptions points;
  points.largest = 64;
  points.representative = 16;
  s.tasks = tuning_tasks(passes::run_pipeline(typed, context), model_points(typed, points), target,
                         nullptr);
  s.threads = {1};
  s.target = target.level;
  s.policy.batch_ns = 10'000;
  s.policy.max_samples = 6;
  s.policy.case_ns = 50'000'000;
  s.top_k = 6;
  s.seed = seed;
  return s;
}

FleetWorkerOptions ServiceTest::worker(const std::string& name, const std::string& program) const {
  FleetWorkerOptions o;
  o.database = serving.database;
  o.name = name;
  o.program = program;
  o.device = name;
  o.hang_ms = serving.hang_ms;
  o.poll_ms = 10;
  return o;
}

void ServiceTest::start(const FleetWorkerOptions& options) {
  workers.push_back(std::make_unique<Child>([this, options] {
    SignedBy permission(key.public_key());
    serve_jobs(options, permission, kNever, [](const std::string&) {});
  }));
}

ServiceTally ServiceTest::serve(const std::atomic<bool>& cancel) {
  return serve_campaigns(serving, backend, key, load_submission, cancel,
                         [this](const std::string& text) { said += text + "\n"; });
}

void ServiceTest::ask(const db::Uuid& uuid, db::ControlRequest request) {
  db::Control c;
  c.campaign = uuid;
  c.request = request;
  store->request(c);
}

std::vector<db::DispatchTable> ServiceTest::tables(const db::Uuid& uuid) {
  std::vector<db::DispatchTable> out;
  for (db::DispatchTable& t : db::all_tables(*store))
    if (t.campaign == uuid) out.push_back(std::move(t));
  return out;
}

int64_t ServiceTest::jobs_of(const db::Uuid& uuid) {
  int64_t n = 0;
  for (const db::Event& e : store->events(0, 1 << 20, uuid))
    n += e.kind == "job" && e.detail == R"({"state":"queued"})";
  return n;
}

void ServiceTest::expect_nothing_counted_twice(const db::Uuid& uuid) {
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

void ServiceTest::expect_tuned(const db::Uuid& uuid) {
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

}  // namespace nimble::tuner
