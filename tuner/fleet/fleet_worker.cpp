#include "tuner/fleet/fleet_worker.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>

#include "db/store/hash.h"
#include "db/store/host_records.h"
#include "tuner/fleet/case_record.h"
#include "tuner/fleet/finding.h"
#include "tuner/measure/machine_lock.h"
#include "vm/base/cpu.h"
#include "vm/base/error.h"
#include "vm/base/host_state.h"

namespace nimble::tuner {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kTick = std::chrono::milliseconds(50);
// Executables that the runner keeps for the next job: the anchors come with every case.
constexpr size_t kMostKept = 256;
// Jobs in a row of which nothing could be measured.
constexpr int kHelpless = 3;
constexpr double kMostPatience = 5;  // s between two tries to reach the database

double seconds_since(Clock::time_point t) {
  return std::chrono::duration<double>(Clock::now() - t).count();
}

// Whether another try may mend it: a connection that is lost, a disk that is full for the moment.
bool may_pass(const Error& e) {
  return e.status() == Status::kIo || e.status() == Status::kExhausted;
}

// Says every so often that the worker lives, and keeps its lease.
class Pulse {
 public:
  Pulse(const FleetWorkerOptions& options, const db::Uuid& worker, const std::atomic<bool>& cancel)
      : options_(options), worker_(worker), cancel_(cancel), thread_([this] { run(); }) {}
  ~Pulse() {
    {
      const std::lock_guard lock(mutex_);
      end_ = true;
    }
    wake_.notify_all();
    thread_.join();
  }
  // Set once the worker is told to stop or has lost its lease: ends a measurement.
  std::atomic<bool> halt{false};

  void hold(const db::Job& job) {
    const std::lock_guard lock(mutex_);
    job_ = job.uuid;
    attempt_ = job.attempt;
    lost_ = false;
    halt = cancel_.load();
    due_ = Clock::now();
  }
  // Whether it was held to the end.
  bool let_go() {
    const std::lock_guard lock(mutex_);
    job_.reset();
    due_ = Clock::now();
    return !lost_;
  }

 private:
  void run() {
    std::unique_ptr<db::Store> store;
    std::unique_lock lock(mutex_);
    while (!end_) {
      if (cancel_) halt = true;
      if (Clock::now() >= due_) {
        due_ =
            Clock::now() + std::chrono::milliseconds(std::max<int64_t>(options_.lease_ms / 4, 1));
        db::Heartbeat beat;
        beat.worker = worker_;
        beat.job = job_;
        beat.state = cancel_ ? db::WorkerState::kStopping
                     : job_  ? db::WorkerState::kMeasuring
                             : db::WorkerState::kIdle;
        const int64_t attempt = attempt_;
        lock.unlock();
        bool held = true;
        try {
          if (!store) store = db::Store::open(options_.database);
          held = store->heartbeat(beat, attempt, options_.lease_ms);
        } catch (const Error&) {
          // Nobody can tell whether the lease goes on; the report will.
          store.reset();
        }
        lock.lock();
        if (!held && job_ == beat.job && attempt_ == attempt) lost_ = halt = true;
      }
      wake_.wait_for(lock, kTick, [this] { return end_; });
    }
  }

  const FleetWorkerOptions& options_;
  const db::Uuid worker_;
  const std::atomic<bool>& cancel_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::optional<db::Uuid> job_;
  int64_t attempt_ = 0;
  bool lost_ = false, end_ = false;
  Clock::time_point due_ = Clock::now();
  std::thread thread_;
};

class FleetWorker {
 public:
  FleetWorker(const FleetWorkerOptions& options, const Permission& permission,
              const std::atomic<bool>& cancel, const std::function<void(const std::string&)>& say)
      : options_(options), permission_(permission), cancel_(cancel), say_(say) {}

  FleetTally run() {
    store_ = db::Store::open(options_.database);
    const db::Machine machine = db::host_machine();
    store_->put(db::host_hardware());
    db::Worker worker;
    worker.machine = store_->put(machine);
    worker.name = options_.name.empty() ? machine.hostname : options_.name;
    worker.pid = ::getpid();
    worker.version = NIMBLE_VERSION;
    worker.capabilities = nlohmann::json{{"device", options_.device},
                                         {"level", host_cpu().level},
                                         {"threads", host_cpu().usable_threads()}}
                              .dump();
    worker.trusted_keys = options_.trusted_keys;
    worker_ = store_->add(worker);
    work();
    // The pulse has ended: a beat after this one would bring the worker back to life.
    db::Heartbeat last;
    last.worker = worker_;
    last.state = db::WorkerState::kStopped;
    try {
      store_->heartbeat(last);
    } catch (const Error& e) {
      if (!may_pass(e)) throw;  // gone is gone
    }
    return tally_;
  }

 private:
  // Jobs, until there are none or it is told to stop.
  void work() {
    Pulse pulse(options_, worker_, cancel_);
    RunnerOptions runner;
    runner.program = options_.program;
    runner.hang_ms = options_.hang_ms;
    runner.cancel = &pulse.halt;
    runner_.emplace(runner);
    Clock::time_point idle_since = Clock::now();
    while (!cancel_) {
      if (step(pulse)) {
        idle_since = Clock::now();
        if (options_.once) break;
        continue;
      }
      if (seconds_since(idle_since) >= options_.max_idle_s) break;
      sleep(static_cast<double>(options_.poll_ms) / 1e3);
    }
    runner_.reset();
  }

  // False: there was nothing to do.
  bool step(Pulse& pulse) {
    std::optional<MachineLock> lock;
    try {
      lock.emplace(options_.device, "worker of " + store_->path(), cancel_,
                   [&](const std::string& holder) { say_("waiting: " + holder); });
    } catch (const Error& e) {
      if (e.status() == Status::kCancelled) return false;
      throw;
    }
    std::optional<db::Job> job;
    bool again = false;
    if (!reach([&] {
          // A claim whose answer was lost holds a job that nobody knows of.
          if (std::exchange(again, true)) store_->release_jobs(worker_);
          db::JobRequest request;
          request.worker = worker_;
          request.campaign = options_.campaign;
          request.lease_ms = options_.lease_ms;
          job = store_->claim_job(request);
        }) ||
        !job)
      return false;
    const Clock::time_point begin = Clock::now();
    pulse.hold(*job);
    db::JobReport report;
    report.uuid = db::new_uuid();
    report.job = job->uuid;
    report.worker = worker_;
    report.attempt = job->attempt;
    try {
      measure(*job, report);
    } catch (const Error& e) {
      const bool held = pulse.let_go();
      if (e.status() == Status::kCancelled && !held) {
        ++tally_.leases_lost;
        say_(fmt::format("job {}: the lease is lost, or it was cancelled", job->uuid));
        return true;
      }
      // Whatever it is, the candidates have no part in it.
      reach([&] { store_->release_job(job->uuid, worker_, job->attempt); });
      if (e.status() == Status::kCancelled) return false;
      throw;
    }
    report.consumed_s = seconds_since(begin);
    // Not let go before it is told: another would begin with it.
    db::ReportOutcome outcome = db::ReportOutcome::kStored;
    const bool told = reach([&] { outcome = store_->report(report); });
    pulse.let_go();
    if (!told) return false;
    ++tally_.jobs;
    tally_.trials += static_cast<int64_t>(report.results.size());
    tally_.leases_lost += outcome == db::ReportOutcome::kLate;
    say_(fmt::format("job {}: {} of {} results", job->uuid.substr(0, 8), report.results.size(),
                     job->trials.size()));
    helpless_ = report.results.empty() ? helpless_ + 1 : 0;
    if (helpless_ >= kHelpless)
      throw Error(Status::kInternal, options_.program,
                  fmt::format("nothing could be measured in {} jobs, the last time because {}",
                              helpless_, why_),
                  "run it by hand: nimble worker");
    return true;
  }

  void measure(const db::Job& job, db::JobReport& report) {
    const std::optional<db::MeasureCase> record = store_->measure_case(job.measure_case);
    if (!record || !record->expected)
      throw Error(Status::kCorrupt, "job " + job.uuid, "its case has no expected result");
    Case c = case_of(*record, bytes_of(*record->expected));
    c.limit_ns = limit_of(job);
    for (const db::JobTrial& t : job.trials) c.entries.push_back({executable_of(job, t), 0});
    const std::vector<EntryResult> results = runner_->measure(c);
    report.host = host_record(host_.read());
    const CaseKeys keys{record->policy, record->shape, c.tolerance,
                        StopRule(c.policy.min_samples, c.policy.max_samples)};
    for (size_t i = 0; i < results.size(); ++i) {
      const db::JobTrial& t = job.trials[i];
      std::optional<Finding> found = finding_of(results[i], t.artifact, keys);
      if (!found || found->error_class == kNotItsFault) {
        why_ = results[i].message;
        continue;
      }
      report.results.push_back({t.trial.uuid, found->state, found->error_class, found->message,
                                std::move(found->measurement), std::move(found->correctness)});
    }
  }

  std::vector<uint8_t> bytes_of(const db::Digest& digest) {
    std::optional<std::vector<uint8_t>> bytes = store_->blob(digest);
    if (!bytes)
      throw Error(Status::kNotFound, store_->path(), fmt::format("has no blob {}", digest),
                  "publish the job again");
    return std::move(*bytes);
  }

  // ns of the whole case; 0: none.
  static int64_t limit_of(const db::Job& job) {
    try {
      const nlohmann::json limits = nlohmann::json::parse(job.limits);
      for (const auto& [name, value] : limits.items())
        if (name != "case_s")
          throw Error(Status::kUnsupported, "job " + job.uuid,
                      fmt::format("has a limit \"{}\" that this program does not know", name),
                      "use a worker of the service's version");
      const double s = limits.value("case_s", 0.0);
      if (!(s >= 0 && s < 1e6))
        throw Error(Status::kCorrupt, "job " + job.uuid, "its time limit is out of range");
      return static_cast<int64_t>(s * 1e9);
    } catch (const nlohmann::json::exception& e) {
      throw Error(Status::kCorrupt, "job " + job.uuid, e.what());
    }
  }

  // Asked each time: a key that was revoked counts at once.
  uint32_t executable_of(const db::Job& job, const db::JobTrial& trial) {
    if (!trial.candidate)
      throw Error(Status::kUnsupported, "job " + job.uuid,
                  "its candidates are not in the database");
    std::vector<uint8_t> bytes = bytes_of(*trial.candidate);
    permission_(job, trial, bytes);
    if (const auto it = kept_.find(*trial.candidate); it != kept_.end()) return it->second;
    if (kept_.size() >= kMostKept) {
      // Two generations: those that this job has named already stay with the runner.
      for (const auto& [digest, id] : retired_) runner_->remove(id);
      retired_ = std::exchange(kept_, {});
    }
    return kept_[*trial.candidate] = runner_->add(std::move(bytes));
  }

  // Tries until the database answers. False once told to stop.
  bool reach(const std::function<void()>& call) {
    for (double wait = 0.1;; wait = std::min(kMostPatience, 2 * wait)) {
      try {
        if (!store_) store_ = db::Store::open(options_.database);
        call();
        return true;
      } catch (const Error& e) {
        if (!may_pass(e)) throw;
        say_(std::string("the database does not answer, trying again: ") + e.what());
        store_.reset();
      }
      if (!sleep(wait)) return false;
    }
  }

  bool sleep(double s) {
    for (const Clock::time_point begin = Clock::now(); seconds_since(begin) < s && !cancel_;)
      std::this_thread::sleep_for(std::min<Clock::duration>(
          kTick, std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(s))));
    return !cancel_;
  }

  const FleetWorkerOptions& options_;
  const Permission& permission_;
  const std::atomic<bool>& cancel_;
  const std::function<void(const std::string&)>& say_;
  std::unique_ptr<db::Store> store_;
  db::Uuid worker_;
  std::optional<Runner> runner_;
  HostWatch host_;
  std::map<db::Digest, uint32_t> kept_, retired_;  // executables, by what they are
  FleetTally tally_;
  int helpless_ = 0;
  std::string why_;
};

}  // namespace

FleetTally serve_jobs(const FleetWorkerOptions& options, const Permission& permission,
                      const std::atomic<bool>& cancel,
                      const std::function<void(const std::string&)>& say) {
  return FleetWorker(options, permission, cancel, say).run();
}

}  // namespace nimble::tuner
