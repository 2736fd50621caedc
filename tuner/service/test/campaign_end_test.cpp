// Campaigns that are interrupted, killed, or met by a full disk, and what goes on with them.
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <random>
#include <set>
#include <thread>

#include "db/store/host_records.h"
#include "db/store/test/all.h"
#include "tuner/service/campaign.h"
#include "tuner/service/test/quick_campaign.h"
#include "vm/base/error.h"

namespace nimble::tuner {
namespace {

using db::TrialState;

TEST_F(CampaignTest, AnInterruptLeavesATable) {
  CampaignOptions o = quick(kCopy);
  o.worker = NIMBLE_WORKER;
  o.budget_s = 60;
  std::atomic<bool> cancel{false};
  // Interrupts once the search has measured something.
  class Interrupting : public Backend {
   public:
    Interrupting(Backend& inner, std::atomic<bool>& cancel) : inner_(inner), cancel_(cancel) {}
    Built build(const kernels::Workload& w, const std::vector<tuned::Candidate>& c,
                const kernels::TargetInfo& t) override {
      if (++builds_ > 4) cancel_ = true;
      return inner_.build(w, c, t);
    }
    Expectation expect(const TuningTask& t, const WorkloadPoint& p, const tuned::Candidate& c,
                       const DefaultResult& run) override {
      // The second size belongs to the cross-evaluation.
      if (++expectations_ > 1) cancel_ = true;
      return inner_.expect(t, p, c, run);
    }

   private:
    Backend& inner_;
    std::atomic<bool>& cancel_;
    std::atomic<int> builds_{0}, expectations_{0};
  };
  const auto compiler = compiler_backend();
  Interrupting backend(*compiler, cancel);
  const CampaignReport report = run_campaign(o, backend, cancel);
  EXPECT_TRUE(report.interrupted);
  ASSERT_EQ(report.tasks.size(), 1u);
  EXPECT_TRUE(report.tasks[0].table) << report.tasks[0].note;
  auto store = db::Store::open(file("tuning.db"));
  EXPECT_EQ(store->campaign(report.campaign)->state, db::CampaignState::kInterrupted);
  // Without a time of the default schedule beside its own it takes nobody's place.
  const db::TableStatus status = store->table(*report.tasks[0].table)->status;
  EXPECT_EQ(status == db::TableStatus::kActive, report.tasks[0].inactive.empty());
  EXPECT_EQ(status == db::TableStatus::kActive,
            !store->comparisons(*report.tasks[0].table).empty());
  // The same command goes on to the end.
  cancel = false;
  const CampaignReport rest = run_campaign(o, *compiler, cancel);
  ASSERT_TRUE(rest.tasks.at(0).table);
  EXPECT_EQ(store->table(*rest.tasks[0].table)->status == db::TableStatus::kActive,
            rest.tasks[0].inactive.empty());
  EXPECT_EQ(rest.campaign, report.campaign);
  EXPECT_TRUE(rest.resumed);
  EXPECT_FALSE(rest.interrupted);
  EXPECT_GE(rest.consumed_s, report.consumed_s);
}

// A full disk is no workload's fault: it ends the campaign, which goes on once there is room.
TEST_F(CampaignTest, AnErrorOfTheDatabaseEndsTheCampaignUnfinished) {
  class Full : public Backend {
   public:
    Full(Backend& inner, std::string database, int from)
        : inner_(inner), database_(std::move(database)), from_(from) {}
    Built build(const kernels::Workload& w, const std::vector<tuned::Candidate>& c,
                const kernels::TargetInfo& t) override {
      return inner_.build(w, c, t);
    }
    Expectation expect(const TuningTask& t, const WorkloadPoint& p, const tuned::Candidate& c,
                       const DefaultResult& run) override {
      if (++expectations_ >= from_)
        throw Error(Status::kExhausted, database_, "the disk is full", "free some space");
      return inner_.expect(t, p, c, run);
    }

   private:
    Backend& inner_;
    std::string database_;
    int from_;
    std::atomic<int> expectations_{0};
  };
  CampaignOptions o = quick(kCopy);
  o.worker = NIMBLE_WORKER;
  o.budget_s = 20;
  const std::atomic<bool> never{false};
  const auto compiler = compiler_backend();
  // While the default schedules are measured, and in the cross-evaluation.
  for (const int from : {1, 2}) {
    Full backend(*compiler, o.database, from);
    try {
      run_campaign(o, backend, never);
      ADD_FAILURE() << "a full disk was no error from expectation " << from << " on";
    } catch (const Error& e) {
      EXPECT_THAT(e.what(), testing::HasSubstr("the disk is full")) << from;
    }
  }
  const CampaignReport report = run_campaign(o, *compiler, never);
  EXPECT_TRUE(report.resumed);
  EXPECT_FALSE(report.nothing_to_do);
  ASSERT_EQ(report.tasks.size(), 1u);
  EXPECT_TRUE(report.tasks[0].table) << report.tasks[0].note;
}

// What a backend was asked for, across processes.
class CountingBackend : public Backend {
 public:
  CountingBackend(Backend& inner, std::atomic<bool>& cancel) : inner_(inner), cancel_(cancel) {}
  Built build(const kernels::Workload& w, const std::vector<tuned::Candidate>& candidates,
              const kernels::TargetInfo& t) override {
    Built b = inner_.build(w, candidates, t);
    const std::lock_guard lock(mutex_);
    for (const tuned::Candidate& c : candidates) ++builds[text_of(c)];
    return b;
  }
  Expectation expect(const TuningTask& t, const WorkloadPoint& p, const tuned::Candidate& c,
                     const DefaultResult& run) override {
    Expectation e = inner_.expect(t, p, c, run);
    const std::lock_guard lock(mutex_);
    ++expectations[p.symbols];
    if (static_cast<int>(expectations.size()) == cancel_at) cancel_ = true;
    return e;
  }
  std::map<std::string, int> builds;
  std::map<std::vector<int64_t>, int> expectations;
  int cancel_at = 0;  // sizes

 private:
  std::mutex mutex_;
  Backend& inner_;
  std::atomic<bool>& cancel_;
};

TEST_F(CampaignTest, AResumedCrossEvaluationCompilesNothingTwice) {
  CampaignOptions o = quick(kCopy);
  o.worker = NIMBLE_WORKER;
  o.budget_s = 20;
  std::atomic<bool> cancel{false};
  const auto compiler = compiler_backend();
  CountingBackend backend(*compiler, cancel);
  // The sizes come one by one in the cross-evaluation: stop at several of them.
  int stops = 0;
  CampaignReport report;
  do {
    cancel = false;
    backend.cancel_at = static_cast<int>(backend.expectations.size()) + 2;
    report = run_campaign(o, backend, cancel);
    stops += report.interrupted;
    const std::string folder = fmt::format("{}.{}.work", o.database, report.campaign.substr(0, 8));
    EXPECT_EQ(std::filesystem::exists(folder), report.interrupted);
  } while (report.interrupted && stops < 20);
  EXPECT_FALSE(report.interrupted);
  EXPECT_GE(stops, 2);
  EXPECT_GT(backend.builds.size(), 3u);
  for (const auto& [candidate, n] : backend.builds) EXPECT_EQ(n, 1) << candidate;
  // What was computed in the moment of the interrupt is lost, once for each stop.
  int repeated = 0;
  for (const auto& [size, n] : backend.expectations) repeated += n - 1;
  EXPECT_LE(repeated, stops);
}

// ---- kill -9

std::set<pid_t> workers_of(pid_t parent) {
  std::set<pid_t> out;
  const std::string flag = fmt::format("--parent={}", parent);
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    std::ifstream in(entry.path() / "cmdline");
    std::string text((std::istreambuf_iterator<char>(in)), {});
    if (text.find(flag) != std::string::npos) out.insert(std::stoi(name));
  }
  return out;
}

TEST_F(CampaignTest, SurvivesFiftyKills) {
  // A few reductions: more work than the test has time for, in small pieces.
  const std::string model =
      "fn @main(%x: Tensor[(n, 64), f32]) -> Tensor[(n, 64), f32] {\n"
      "  let %a = softmax(%x) {axis = 1};\n"
      "  let %b = l2_normalize(%a) {axis = 1, epsilon = 0.001};\n"
      "  let %d = log_softmax(%b) {axis = 1};\n"
      "  let %e = cumsum(%d) {axis = 1};\n  %e\n}\n";
  std::ofstream(file("model.nir")) << model;
  const std::string database = file("tuning.db"), path = file("model.nir");

  std::mt19937 random(11);
  std::uniform_int_distribution<int> delay_ms(150, 750);
  std::map<db::Uuid, std::pair<TrialState, int64_t>> finished;  // state and attempts
  std::map<db::Uuid, double> consumed;                          // by campaign
  constexpr int kKills = 50;
  int seed = 1;  // a campaign that comes to its end is followed by another
  for (int killed = 0, runs = 0; killed < kKills && runs < 2 * kKills; ++runs) {
    const std::string seed_text = std::to_string(seed);
    const pid_t tuner = ::fork();
    ASSERT_GE(tuner, 0);
    if (tuner == 0) {
      std::freopen("/dev/null", "w", stdout);
      ::execl(NIMBLE_TUNE, NIMBLE_TUNE, path.c_str(), "--db", database.c_str(), "--budget", "10m",
              "--threads", "1", "--quiet", "--seed", seed_text.c_str(),
              static_cast<char*>(nullptr));
      ::_exit(127);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(delay_ms(random)));
    ::kill(tuner, SIGKILL);
    int status = 0;
    ::waitpid(tuner, &status, 0);
    killed += WIFSIGNALED(status);
    if (WIFEXITED(status)) {
      EXPECT_EQ(WEXITSTATUS(status), 0);
      ++seed;
    }
    // The worker goes with it.
    bool alone = false;
    for (int wait = 0; wait < 300 && !alone; ++wait) {
      alone = workers_of(tuner).empty();
      if (!alone) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    EXPECT_TRUE(alone) << "a worker outlived its campaign";

    if (!std::filesystem::exists(database)) continue;  // killed before it was made
    auto store = db::Store::open(database);
    const auto all = db::all_campaigns(*store);
    EXPECT_LE(static_cast<int>(all.size()), seed) << "a resumed campaign became another one";
    std::set<db::Uuid> seen;
    for (const db::Campaign& c : all) {
      EXPECT_GE(c.consumed_s, consumed[c.uuid]);
      consumed[c.uuid] = c.consumed_s;
      for (const db::TrialOutcome& t : store->outcomes(c.uuid)) {
        EXPECT_TRUE(seen.insert(t.trial.uuid).second);
        if (!db::is_final(t.trial.state)) continue;
        const auto now = std::pair(t.trial.state, t.trial.attempt);
        const auto [it, fresh] = finished.emplace(t.trial.uuid, now);
        EXPECT_EQ(it->second, now) << "a finished trial was touched again";
      }
    }
    for (const auto& [uuid, state] : finished) EXPECT_TRUE(seen.contains(uuid));
    if (HasFailure()) break;
    ASSERT_LT(runs + 1, 2 * kKills) << "too few of the processes lived to be killed";
  }
  EXPECT_GT(finished.size(), 50u) << "no progress between the kills";
  auto store = db::Store::open(database);
  EXPECT_TRUE(store->check().sound());
  // One measurement each, however often the process died.
  std::map<db::Uuid, int> measurements;
  for (const db::Workload& w : db::all_workloads(*store))
    for (const db::MeasurePolicy& p :
         store->policies(db::key_of(w), db::key_of(db::host_hardware()))) {
      db::ResultQuery q{db::key_of(w), db::key_of(db::host_hardware()), db::key_of(p)};
      q.codegen_version = tuned::toolchain_record().codegen_version;
      for (const db::Result& r : store->results(q)) ++measurements[r.trial];
    }
  EXPECT_FALSE(measurements.empty());
  for (const auto& [trial, n] : measurements) EXPECT_EQ(n, 1);
}

TEST_F(CampaignTest, CtrlCEndsWith130AndTheBestIsStored) {
  std::ofstream(file("model.nir"))
      << "fn @main(%x: Tensor[(n, 256), f32]) -> Tensor[(n, 256), f32] {\n"
         "  let %y = softmax(%x) {axis = 1};\n  %y\n}\n";
  const std::string database = file("tuning.db"), path = file("model.nir");
  const pid_t tuner = ::fork();
  ASSERT_GE(tuner, 0);
  if (tuner == 0) {
    std::freopen("/dev/null", "w", stdout);
    ::execl(NIMBLE_TUNE, NIMBLE_TUNE, path.c_str(), "--db", database.c_str(), "--threads", "1",
            "--quiet", static_cast<char*>(nullptr));
    ::_exit(127);
  }
  // Once something has been measured in the search.
  bool measured = false;
  for (int i = 0; i < 1000 && !measured; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    if (!std::filesystem::exists(database)) continue;
    try {
      db::OpenOptions read;
      read.create = false;
      auto store = db::Store::open(database, read);
      for (const db::Campaign& c : db::all_campaigns(*store))
        for (const db::TrialOutcome& t : store->outcomes(c.uuid))
          measured |= t.trial.key.role == db::Role::kSearch && t.median_ns.has_value();
    } catch (const Error&) {
      // It is being made.
    }
  }
  ASSERT_TRUE(measured);
  ::kill(tuner, SIGINT);
  int status = 0;
  ::waitpid(tuner, &status, 0);
  ASSERT_TRUE(WIFEXITED(status));
  // It may have come to its end in that very moment.
  EXPECT_TRUE(WEXITSTATUS(status) == 130 || WEXITSTATUS(status) == 0) << WEXITSTATUS(status);
  EXPECT_FALSE(db::all_tables(*db::Store::open(database)).empty());
}

}  // namespace
}  // namespace nimble::tuner
