// Workers whose measuring process, connection, disk or clock fails: every trial is finished once,
// and no candidate is blamed.
#include <dirent.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <mutex>
#include <random>
#include <thread>

#include "db/store/roles.h"
#include "db/store/test/fault_vfs.h"
#include "tuner/fleet/fleet_worker.h"
#include "tuner/fleet/test/fleet_fixture.h"

namespace nimble::tuner {
namespace {

using db::TrialState;
using std::chrono::milliseconds;

// A process that this one started and that has not ended; 0 if there is none.
pid_t living_child() {
  pid_t found = 0;
  DIR* const folder = ::opendir("/proc");
  while (const dirent* entry = ::readdir(folder)) {
    const pid_t pid = std::atoi(entry->d_name);
    if (pid <= 0) continue;
    std::ifstream in(fmt::format("/proc/{}/stat", pid));
    std::string line;
    std::getline(in, line);
    // After the name, which may have any character: state, parent.
    const size_t end = line.rfind(") ");
    if (end == std::string::npos || line[end + 2] == 'Z') continue;
    if (std::atoi(line.c_str() + end + 4) == ::getpid()) found = pid;
  }
  ::closedir(folder);
  return found;
}

class FleetFaultTest : public FleetTest {
 protected:
  explicit FleetFaultTest(Where where = Where::kAnywhere) : FleetTest(where) {}

  void publish(int count) {
    for (int i = 0; i < count; ++i) {
      jobs.push_back(job({"test.copy", "test.copy"}, ++size_));
      store->publish(jobs.back());
    }
  }
  // Serves in a thread of its own while `faults` does harm; ends when the queue is empty after it.
  void serve_while(const std::function<void(const std::atomic<bool>& served)>& faults) {
    std::atomic<bool> served{false};
    std::thread worker([&] {
      try {
        serve_jobs(work_options, permission, never(), [&](const std::string& text) {
          const std::lock_guard lock(mutex_);
          said += text + "\n";
        });
      } catch (const std::exception& e) {
        ADD_FAILURE() << e.what();
      }
      served = true;
    });
    faults(served);
    worker.join();
  }
  size_t times_said(const std::string& text) {
    const std::lock_guard lock(mutex_);
    size_t n = 0;
    for (size_t at = 0; (at = said.find(text, at)) != std::string::npos; ++at) ++n;
    return n;
  }
  // Until it has said that once more than `before` times, or has ended.
  void wait_for(const std::string& text, size_t before, const std::atomic<bool>& served) {
    while (!served && times_said(text) <= before) std::this_thread::sleep_for(milliseconds(1));
  }
  void expect_all_measured_once() {
    for (const db::NewJob& j : jobs)
      for (size_t i = 1; i < j.trials.size(); ++i) {
        const db::Trial t = trial(j, i);
        EXPECT_EQ(t.state, TrialState::kOk) << t.error_class << " " << t.message << "\n" << said;
      }
    const db::OpenJobs open = store->open_jobs(fleet->world.campaign);
    EXPECT_EQ(open.queued + open.claimed, 0);
    EXPECT_EQ(connection()->integer("SELECT count(*) FROM (SELECT trial FROM measurement m JOIN "
                                    "trial t ON t.uuid = m.trial WHERE t.role = 'search' "
                                    "GROUP BY trial HAVING count(*) > 1) AS twice"),
              0);
    EXPECT_TRUE(store->check().sound());
  }

  std::vector<db::NewJob> jobs;

 private:
  std::mutex mutex_;
  int64_t size_ = 7;
};

TEST_F(FleetFaultTest, AMeasuringProcessThatIsKilledAtAnyMomentBlamesNoCandidate) {
  const int kills = 20;
  std::mt19937_64 random(7);
  int killed = 0;
  while (killed < kills) {
    publish(5);
    serve_while([&](const std::atomic<bool>& served) {
      while (!served && killed < kills) {
        // Between two kills a job is done: a machine where nothing gets done gives up.
        wait_for(" results\n", times_said(" results\n"), served);
        std::this_thread::sleep_for(std::chrono::microseconds(random() % 30'000));
        const pid_t process = living_child();
        if (process != 0 && ::kill(process, SIGKILL) == 0) ++killed;
      }
    });
  }
  expect_all_measured_once();
}

class FleetServerFaultTest : public FleetFaultTest {
 protected:
  FleetServerFaultTest() : FleetFaultTest(Where::kServer) {}
};

TEST_F(FleetServerFaultTest, AConnectionThatIsLostAgainAndAgainLosesNothing) {
  publish(20);
  store.reset();
  work_options.lease_ms = 2000;
  const auto database = connection();
  std::mt19937_64 random(7);
  int64_t ended = 0;
  serve_while([&](const std::atomic<bool>& served) {
    while (!served && ended < 20) {
      wait_for(" results\n", times_said(" results\n"), served);
      std::this_thread::sleep_for(milliseconds(random() % 60));
      ended += database->integer(
          "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
          "WHERE datname = current_database() AND pid <> pg_backend_pid()");
    }
  });
  EXPECT_GT(ended, 0);
  store = db::Store::open(place(), options);
  fleet.emplace(*store);
  expect_all_measured_once();
}

// Ends every connection to the database when it is first asked: the worker's, which begins.
class CutsOff final : public Permission {
 public:
  explicit CutsOff(db::Connection& database) : database_(database) {}
  bool renew(db::Store&) override {
    if (ended == 0)
      ended = database_.integer(
          "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
          "WHERE datname = current_database() AND pid <> pg_backend_pid()");
    return false;
  }
  void require(db::Store&, const db::Job&, const db::JobTrial&, std::span<const uint8_t>) override {
  }
  std::string trusted_keys() const override { return "[]"; }
  int64_t ended = 0;

 private:
  db::Connection& database_;
};

TEST_F(FleetServerFaultTest, AConnectionThatIsLostWhileItBeginsIsMadeAnew) {
  publish(2);
  store.reset();
  const auto database = connection();
  CutsOff cuts(*database);
  const FleetTally tally = serve_jobs(work_options, cuts, never(),
                                      [&](const std::string& text) { said += text + "\n"; });
  EXPECT_GT(cuts.ended, 0);
  EXPECT_THAT(said, testing::HasSubstr("trying again"));
  EXPECT_EQ(tally.jobs, 2) << said;
  EXPECT_EQ(database->integer("SELECT count(*) FROM worker"), 1);
  store = db::Store::open(place(), options);
  fleet.emplace(*store);
  expect_all_measured_once();
}

// What it may do is changed while it works.
TEST_F(FleetServerFaultTest, AWorkerWhoseRoleMayNotReportSaysSoAndEnds) {
  publish(2);
  const auto owner = connection();
  owner->script(db::roles_sql());
  owner->script("REVOKE INSERT ON nimble.job_report FROM nimble_worker");
  const std::string url = place();
  work_options.database =
      url + (url.find('?') == std::string::npos ? "?" : "&") + "options=-c%20role%3Dnimble_worker";
  const Error e = db::error_of([&] { work(); });
  EXPECT_THAT(e.what(), testing::AllOf(testing::HasSubstr("your role may not do this"),
                                       testing::HasSubstr("job_report"),
                                       testing::HasSubstr("ask the owner of the database")));
  EXPECT_EQ(said.find("trying again"), std::string::npos) << said;
  const db::OpenJobs open = store->open_jobs(fleet->world.campaign);
  EXPECT_EQ(open.queued, 2) << "the job that it held is given back";
  EXPECT_EQ(open.claimed, 0);
  // Nor when it may not even claim.
  owner->script("REVOKE UPDATE (state) ON nimble.job FROM nimble_worker");
  EXPECT_THAT(db::error_of([&] { work(); }).what(), testing::HasSubstr("permission denied"));
  // With what it lacked it goes on where it was.
  owner->script(db::roles_sql());
  work();
  expect_all_measured_once();
}

class FleetFileFaultTest : public FleetFaultTest {
 protected:
  FleetFileFaultTest() : FleetFaultTest(Where::kFiles) {}
};

TEST_F(FleetFileFaultTest, ADiskThatIsFullForAWhileLosesNothing) {
  db::register_faulty_vfs();
  work_options.open.vfs = "nimble-faulty";
  work_options.max_idle_s = 1;
  publish(20);
  std::mt19937_64 random(7);
  serve_while([&](const std::atomic<bool>& served) {
    for (int round = 0; round < 8 && !served; ++round) {
      // Between two faults it gets on: each try is later than the one before.
      wait_for(" results\n", times_said(" results\n"), served);
      const size_t before = times_said("trying again");
      db::fill_up_after(static_cast<long>(random() % 40));
      wait_for("trying again", before, served);
      db::stop_failing();
    }
  });
  EXPECT_GT(times_said("trying again"), 0u);
  expect_all_measured_once();
}

TEST_F(FleetFileFaultTest, AClockThatJumpsLosesNothing) {
  std::atomic<int64_t> offset{0};
  const auto clock_ms = [&offset] {
    return offset + std::chrono::duration_cast<milliseconds>(
                        std::chrono::system_clock::now().time_since_epoch())
                        .count();
  };
  work_options.open.clock_ms = clock_ms;
  work_options.open.elapsed_ms = [] {
    return std::chrono::duration_cast<milliseconds>(
               std::chrono::steady_clock::now().time_since_epoch())
        .count();
  };
  work_options.max_idle_s = 1;
  publish(12);
  // Another one, on another device of this machine, finds leases that ran out.
  FleetWorkerOptions other = work_options;
  other.device = "another";
  AskedPermission anything;
  std::atomic<bool> second_works{false};
  std::thread second([&] {
    serve_jobs(other, anything, never(), [&](const std::string&) { second_works = true; });
    second_works = true;
  });
  std::mt19937_64 random(7);
  serve_while([&](const std::atomic<bool>& served) {
    // An hour forward, and back, at any moment once both have claimed something.
    while (!second_works) std::this_thread::sleep_for(milliseconds(1));
    wait_for(" results\n", 0, served);
    for (int jump = 0; jump < 6 && !served; ++jump) {
      std::this_thread::sleep_for(milliseconds(random() % 40));
      offset = jump % 2 == 0 ? 3'600'000 : 0;
    }
  });
  second.join();
  EXPECT_EQ(connection()->integer("SELECT count(*) FROM job WHERE state = 'split' OR lost > 0"), 0)
      << "who is alive loses no job";
  for (const db::NewJob& j : jobs)
    for (size_t i = 1; i < j.trials.size(); ++i) EXPECT_EQ(trial(j, i).state, TrialState::kOk);
  EXPECT_TRUE(store->check().sound());
}

}  // namespace
}  // namespace nimble::tuner
