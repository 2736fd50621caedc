#include "tuner/fleet/fleet_worker.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "db/store/gpu_records.h"
#include "db/store/hash.h"
#include "db/store/host_records.h"
#include "db/store/place.h"
#include "tuner/fleet/case_record.h"
#include "tuner/fleet/finding.h"
#include "tuner/fleet/patience.h"
#include "tuner/fleet/pulse.h"
#include "tuner/measure/machine_lock.h"
#include "vm/base/cpu.h"
#include "vm/base/cpu_list.h"
#include "vm/base/error.h"
#include "vm/base/host_state.h"
#include "vm/base/stage.h"
#include "vm/base/text_table.h"

namespace nimble::tuner {
namespace {

using Clock = std::chrono::steady_clock;
// The first pause of a worker that finds no job; each after it is twice as long.
constexpr int64_t kSoonMs = 20;
// Executables that the runner keeps for the next job: the anchors come with every case.
constexpr size_t kMostKept = 256;
// Jobs in a row of which nothing could be measured.
constexpr int kHelpless = 3;

double seconds_since(Clock::time_point t) {
  return std::chrono::duration<double>(Clock::now() - t).count();
}

class FleetWorker {
 public:
  FleetWorker(const FleetWorkerOptions& options, Permission& permission,
              const std::atomic<bool>& cancel, const std::function<void(const std::string&)>& say)
      : options_(options), permission_(permission), cancel_(cancel), say_(say) {}

  FleetTally run() {
    store_ = db::Store::open(options_.database, options_.open);
    permission_.renew(*store_);
    // Under one name, however often it is tried.
    const db::Uuid own = db::new_uuid();
    if (!reach([&] {
          store_->put(hardware());
          worker_ = register_worker(own);
        }))
      return tally_;
    work();
    // The pulse has ended: a beat after this one would bring the worker back to life.
    try {
      if (store_) say_goodbye(worker_);
    } catch (const Error& e) {
      if (!may_pass(e)) throw;  // gone is gone
    }
    return tally_;
  }

  Rerun rerun(const db::Uuid& trial) {
    store_ = db::Store::open(options_.database, options_.open);
    permission_.renew(*store_);
    std::optional<db::Job> job = store_->job_of(trial);
    if (!job)
      throw Error(Status::kNotFound, store_->path(), fmt::format("trial {} was in no job", trial),
                  "candidates of nimble tune are not kept: tune again");
    start_runner(&cancel_);
    const Prepared prepared = prepare(*job);
    const Turn turn = take_turn();
    const std::vector<EntryResult> results = runner_->measure(prepared.c);
    if (results.empty()) throw Error(Status::kInternal, options_.program, "says nothing of it");
    const std::optional<Finding> found =
        finding_of(results[0], job->trials[0].artifact, prepared.keys);
    if (!found) throw Error(Status::kExhausted, "trial " + trial, "its time limit is too short");
    return {std::move(*job), *found, results[0].output};
  }

 private:
  enum class Step {
    kNothing,  // there was nothing to do
    kDone,
    kAgain,  // it failed at that; there may be something else, or the same once more
  };

  // Jobs, until there are none or it is told to stop.
  void work() {
    Pulse pulse(options_, worker_, cancel_);
    start_runner(&pulse.halt);
    Clock::time_point idle_since = Clock::now();
    int64_t pause_ms = kSoonMs;
    while (!cancel_) {
      const Step done = step(pulse);
      if (done == Step::kAgain) continue;
      if (done == Step::kDone) {
        // The next job is often a moment away: the service makes it of what was just reported.
        pause_ms = kSoonMs;
        idle_since = Clock::now();
        if (options_.once) break;
        continue;
      }
      if (seconds_since(idle_since) >= options_.max_idle_s) break;
      pause_ms = std::min(pause_ms, options_.poll_ms);
      sleep_unless(cancel_, static_cast<double>(pause_ms) / 1e3);
      pause_ms *= 2;
    }
    runner_.reset();
  }

  void start_runner(const std::atomic<bool>* halt) {
    RunnerOptions runner;
    runner.program = options_.program;
    runner.hang_ms = options_.hang_ms;
    runner.cpus = options_.cpus;
    runner.gpu = options_.gpu.has_value();
    runner.cancel = halt;
    runner_.emplace(runner);
  }

  // What is held while it claims and measures.
  struct Turn {
    std::unique_ptr<MachineLock> card, slot, machine;
  };

  Turn take_turn() {
    const auto take = [&](const std::string& device, Hold hold) {
      return std::make_unique<MachineLock>(
          device, "worker of " + db::printable_place(options_.database), cancel_,
          [&](const std::string& holder) { say_("waiting: " + holder); }, hold);
    };
    Turn turn;
    if (!options_.gpu) {
      turn.machine = take(options_.device, Hold::kAlone);
      return turn;
    }
    // The card first: nobody else waits for the machine while this one waits for its card. It goes
    // by its name in the world, since containers and virtual machines number slots as they like,
    // and by its slot, which parts of one card (MIG) have in common. All take them in this order.
    if (const std::string& uuid = options_.gpu->uuid; !uuid.empty())
      turn.card = take("gpu-" + uuid, Hold::kAlone);
    turn.slot = take("gpu-" + options_.gpu->slot, Hold::kAlone);
    turn.machine = take(options_.device, Hold::kBesideOthers);
    return turn;
  }

  db::Hardware hardware() const {
    return options_.gpu ? db::gpu_hardware(*options_.gpu) : db::host_hardware();
  }

  db::Uuid register_worker(const db::Uuid& own) {
    const db::Machine machine = options_.gpu ? db::gpu_machine(*options_.gpu) : db::host_machine();
    nlohmann::json capabilities = {{"device", options_.gpu ? "gpu" : options_.device},
                                   {"level", host_cpu().level},
                                   {"threads", threads()}};
    if (options_.gpu)
      capabilities["gpu"] = {{"name", options_.gpu->name},
                             {"capability", options_.gpu->capability},
                             {"slot", options_.gpu->slot},
                             {"driver", options_.gpu->driver}};
    if (!options_.cpus.empty()) capabilities["cpus"] = cpu_list_text(options_.cpus);
    db::Worker worker;
    worker.uuid = own;
    worker.machine = store_->put(machine);
    worker.name = options_.name.empty() ? machine.hostname : options_.name;
    worker.pid = ::getpid();
    worker.version = NIMBLE_VERSION;
    worker.capabilities = capabilities.dump();
    worker.trusted_keys = permission_.trusted_keys();
    return store_->add(worker);
  }

  void say_goodbye(const db::Uuid& worker) {
    db::Heartbeat last;
    last.worker = worker;
    last.state = db::WorkerState::kStopped;
    store_->heartbeat(last);
  }

  int threads() const {
    const int usable = host_cpu().usable_threads(), bound = static_cast<int>(options_.cpus.size());
    return bound > 0 ? std::min(usable, bound) : usable;
  }

  // Asks whom to trust. False: that cannot be told, so nobody is.
  bool renew_trust(Pulse& pulse) {
    try {
      keys_changed_ |= permission_.renew(*store_);
    } catch (const Error& e) {
      if (may_pass(e)) throw;
      say_once("keys", fmt::format("nothing may run until this is mended: {}", e.what()));
      return false;
    }
    said_.erase("keys");
    if (!keys_changed_) return true;
    // A worker's record is final, and this one would go on naming the keys of before.
    const db::Uuid before = std::exchange(worker_, register_worker(db::new_uuid()));
    keys_changed_ = false;
    pulse.become(worker_);
    try {
      say_goodbye(before);
    } catch (const Error& e) {
      if (!may_pass(e)) throw;  // it is soon taken for dead
    }
    passed_over_.clear();
    said_.clear();
    say_(fmt::format("other keys are trusted now: {}", permission_.trusted_keys()));
    return true;
  }

  std::optional<db::Job> claim() {
    const Stage stage("claim");
    std::erase_if(passed_over_, [](const auto& entry) { return entry.second <= Clock::now(); });
    db::JobRequest request;
    request.worker = worker_;
    request.campaign = options_.campaign;
    request.hardware = options_.jobs_for;
    request.lease_ms = options_.lease_ms;
    for (const auto& [campaign, until] : passed_over_) request.leave_out.push_back(campaign);
    return store_->claim_job(request);
  }

  Step step(Pulse& pulse) {
    Turn turn;
    try {
      turn = take_turn();
    } catch (const Error& e) {
      if (e.status() == Status::kCancelled) return Step::kNothing;
      throw;
    }
    std::optional<db::Job> job;
    bool again = false;
    if (!reach([&] {
          // A claim whose answer was lost holds a job that nobody knows of.
          if (std::exchange(again, true)) store_->release_jobs(worker_);
          if (renew_trust(pulse)) job = claim();
        }) ||
        !job)
      return Step::kNothing;
    const Clock::time_point begin = Clock::now();
    pulse.hold(*job);
    std::optional<Prepared> prepared;
    std::optional<Error> refusal;
    const bool ready = reach([&] {
      refusal.reset();
      try {
        require_driver(*job);
        prepared = prepare(*job);
      } catch (const Error& e) {
        if (may_pass(e)) throw;
        refusal = e;
      }
    });
    if (refusal || !ready) {
      pulse.let_go();
      give_back(*job);
      if (!ready) return Step::kNothing;
      pass_over(job->campaign, *refusal);
      return Step::kAgain;
    }
    db::JobReport report;
    report.uuid = db::new_uuid();
    report.job = job->uuid;
    report.worker = worker_;
    report.attempt = job->attempt;
    try {
      measure(*job, *prepared, report);
    } catch (const Error& e) {
      const bool held = pulse.let_go();
      if (e.status() == Status::kCancelled && !held) {
        ++tally_.leases_lost;
        say_(fmt::format("job {}: the lease is lost, or it was cancelled", job->uuid));
        return Step::kDone;
      }
      // Whatever it is, the candidates have no part in it.
      give_back(*job);
      if (e.status() == Status::kCancelled) return Step::kNothing;
      if (e.status() == Status::kInvalidArgument) {
        // The measuring process will not have the case as a whole.
        pass_over(job->campaign, e);
        return Step::kAgain;
      }
      if (e.status() != Status::kInternal) throw;
      // It does not answer.
      runner_->stop();
      why_ = e.what();
      say_(fmt::format("job {}: {}", job->uuid.substr(0, 8), e.what()));
      check_helpless(true);
      return Step::kAgain;
    }
    report.consumed_s = seconds_since(begin);
    // Not let go before it is told: another would begin with it.
    db::ReportOutcome outcome = db::ReportOutcome::kStored;
    bool told = false;
    try {
      told = reach([&] {
        const Stage stage("report");
        outcome = store_->report(report);
      });
    } catch (const Error&) {
      // It ends, and says why: not after others have waited for its lease to run out.
      pulse.let_go();
      give_back_if_possible(*job);
      throw;
    }
    pulse.let_go();
    if (!told) return Step::kNothing;
    ++tally_.jobs;
    tally_.trials += static_cast<int64_t>(report.results.size());
    tally_.absent += static_cast<int64_t>(report.absent.size());
    tally_.leases_lost += outcome == db::ReportOutcome::kLate;
    tally_.passed_over.erase(job->campaign);
    said_.erase(job->campaign);
    say_(fmt::format("job {}: {} of {} results", job->uuid.substr(0, 8), report.results.size(),
                     job->trials.size()));
    check_helpless(report.results.empty());
    return Step::kDone;
  }

  void check_helpless(bool nothing_measured) {
    helpless_ = nothing_measured ? helpless_ + 1 : 0;
    if (helpless_ >= kHelpless)
      throw Error(Status::kInternal, options_.program,
                  fmt::format("nothing could be measured in {} jobs, the last time because {}",
                              helpless_, why_),
                  "run it by hand: nimble worker --look");
  }

  // Also when told to stop: once, then; else its lease runs out.
  void give_back(const db::Job& job) {
    reach([&] { store_->release_job(job.uuid, worker_, job.attempt); });
  }

  void give_back_if_possible(const db::Job& job) {
    try {
      if (store_) store_->release_job(job.uuid, worker_, job.attempt);
    } catch (const Error&) {
      // What ends this worker is told already.
    }
  }

  void pass_over(const db::Uuid& campaign, const Error& reason) {
    passed_over_[campaign] = Clock::now() + std::chrono::milliseconds(options_.pass_over_ms);
    tally_.passed_over[campaign] = reason.what();
    say_once(campaign,
             fmt::format("campaign {} is passed over: {}", campaign.substr(0, 8), reason.what()));
  }

  // The same of a thing is said once.
  void say_once(const std::string& thing, const std::string& text) {
    if (std::exchange(said_[thing], text) != text) say_(text);
  }

  // Whoever measures with another driver than a campaign is for would file times of other code.
  void require_driver(const db::Job& job) {
    if (!options_.gpu) return;
    const std::optional<db::Campaign> campaign = store_->campaign(job.campaign);
    const int64_t due = campaign ? db::driver_of(campaign->key) : 0;
    if (due != 0 && due != options_.gpu->driver)
      throw Error(Status::kUnsupported, "job " + job.uuid,
                  fmt::format("the driver makes machine code of its candidates, and is to be of "
                              "CUDA {}; this worker's is of {}",
                              db::driver_text(due), db::driver_text(options_.gpu->driver)),
                  "submit the campaign again while workers have this driver, or measure where that "
                  "one is");
  }

  // A job as the runner takes it.
  struct Prepared {
    Case c;  // an entry for each trial; `paired`: the first one's a second time at the end
    CaseKeys keys;
    bool paired = false;
  };

  Prepared prepare(const db::Job& job) {
    const Stage stage("prepare");
    const std::optional<db::MeasureCase> record = store_->measure_case(job.measure_case);
    if (!record || !record->expected)
      throw Error(Status::kCorrupt, "job " + job.uuid, "its case has no expected result");
    // What was signed is this case's key.
    if (db::key_of(*record) != job.measure_case)
      throw Error(Status::kCorrupt, "job " + job.uuid, "its case is not what its key says");
    Case c = case_of(*record, bytes_of(*record->expected));
    const Limits limits = limits_of(job);
    c.limit_ns = limits.case_ns;
    if (!options_.cpus.empty() && c.threads > threads())
      throw Error(Status::kUnsupported, "job " + job.uuid,
                  fmt::format("is for {} threads, and this worker has {}", c.threads, threads()),
                  "bind the worker to more CPUs");
    for (const db::JobTrial& t : job.trials) c.entries.push_back({executable_of(job, t), 0});
    if (limits.paired && !c.entries.empty()) c.entries.push_back(c.entries.front());
    CaseKeys keys{record->policy, record->shape, c.tolerance,
                  StopRule(c.policy.min_samples, c.policy.max_samples)};
    return {std::move(c), std::move(keys), limits.paired};
  }

  void measure(const db::Job& job, const Prepared& prepared, db::JobReport& report) {
    const Stage stage("measure");
    const std::vector<EntryResult> results = runner_->measure(prepared.c);
    // Anchors among them: nothing of this campaign can be measured here.
    if (!results.empty() && std::ranges::all_of(results, [](const EntryResult& r) {
          return r.state == EntryState::kUnavailable;
        }))
      throw Error(Status::kInvalidArgument, "job " + job.uuid, results.at(0).message,
                  "use a worker of the service's version");
    report.host = host_record(host_.read());
    if (!options_.cpus.empty()) report.host.affinity = cpu_list_text(options_.cpus);
    const std::optional<double> drift = drift_of(results);
    for (size_t i = 0; i < job.trials.size(); ++i) {
      const db::JobTrial& t = job.trials[i];
      std::optional<Finding> found = finding_of(results[i], t.artifact, prepared.keys);
      if (!found || found->error_class == kNotItsFault) {
        why_ = results[i].message;
        continue;
      }
      if (found->error_class == db::kNotAvailable) {
        say_once("absent", "not available here: " + found->message);
        report.absent.push_back({t.trial.uuid, found->message});
        continue;
      }
      if (found->measurement) {
        found->measurement->drift = drift;
        if (i == 0 && prepared.paired && results.back().state == EntryState::kOk)
          found->measurement->twin_ns = results.back().samples_ns;
      }
      std::optional<db::FailureLog> log =
          log_of(results[i], *found,
                 rerun_command(options_.database, t.trial.uuid, options_.gpu.has_value()));
      report.results.push_back({t.trial.uuid, found->state, found->error_class, found->message,
                                std::move(found->measurement), std::move(found->correctness),
                                std::move(log)});
    }
  }

  std::vector<uint8_t> bytes_of(const db::Digest& digest) {
    std::optional<std::vector<uint8_t>> bytes = store_->blob(digest);
    if (!bytes)
      throw Error(Status::kNotFound, store_->path(), fmt::format("has no blob {}", digest),
                  "publish the job again");
    return std::move(*bytes);
  }

  struct Limits {
    int64_t case_ns = 0;  // of the whole case; 0: none
    bool paired = false;  // the first trial runs twice: an A/A pair
  };

  static Limits limits_of(const db::Job& job) {
    try {
      const nlohmann::json limits = nlohmann::json::parse(job.limits);
      for (const auto& [name, value] : limits.items())
        // "plan" says what the case is to its campaign's service, and limits nothing.
        if (name != "case_s" && name != "plan" && name != "paired")
          throw Error(Status::kUnsupported, "job " + job.uuid,
                      fmt::format("has a limit \"{}\" that this program does not know", name),
                      "use a worker of the service's version");
      const double s = limits.value("case_s", 0.0);
      if (!(s >= 0 && s < 1e6))
        throw Error(Status::kCorrupt, "job " + job.uuid, "its time limit is out of range");
      return {static_cast<int64_t>(s * 1e9), limits.value("paired", false)};
    } catch (const nlohmann::json::exception& e) {
      throw Error(Status::kCorrupt, "job " + job.uuid, e.what());
    }
  }

  // Asked each time, for a key may be revoked that was in order a job ago.
  uint32_t executable_of(const db::Job& job, const db::JobTrial& trial) {
    if (!trial.candidate)
      throw Error(Status::kUnsupported, "job " + job.uuid,
                  "its candidates are not in the database");
    std::vector<uint8_t> bytes = bytes_of(*trial.candidate);
    permission_.require(*store_, job, trial, bytes);
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
        if (!store_) store_ = db::Store::open(options_.database, options_.open);
        call();
        return true;
      } catch (const Error& e) {
        if (!may_pass(e)) throw;
        say_(std::string("trying again: ") + e.what());
        store_.reset();
      }
      if (!sleep_unless(cancel_, wait)) return false;
    }
  }

  const FleetWorkerOptions& options_;
  Permission& permission_;
  const std::atomic<bool>& cancel_;
  const std::function<void(const std::string&)>& say_;
  std::unique_ptr<db::Store> store_;
  db::Uuid worker_;
  std::optional<Runner> runner_;
  HostWatch host_;
  std::map<db::Digest, uint32_t> kept_, retired_;  // executables, by what they are
  FleetTally tally_;
  std::map<db::Uuid, Clock::time_point> passed_over_;  // until when
  std::map<std::string, std::string> said_;
  bool keys_changed_ = false;
  int helpless_ = 0;
  std::string why_;
};

}  // namespace

std::string rerun_command(const std::string& database, const db::Uuid& trial, bool gpu) {
  return fmt::format("nimble worker --db {}{} --rerun {}",
                     shell_word(db::printable_place(database)), gpu ? " --device gpu" : "", trial);
}

Rerun rerun_trial(const FleetWorkerOptions& options, Permission& permission, const db::Uuid& trial,
                  const std::atomic<bool>& cancel,
                  const std::function<void(const std::string&)>& say) {
  return FleetWorker(options, permission, cancel, say).rerun(trial);
}

FleetTally serve_jobs(const FleetWorkerOptions& options, Permission& permission,
                      const std::atomic<bool>& cancel,
                      const std::function<void(const std::string&)>& say) {
  return FleetWorker(options, permission, cancel, say).run();
}

}  // namespace nimble::tuner
