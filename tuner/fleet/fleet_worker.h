// A worker of a fleet: takes one job at a time from the database, measures it and reports.
//
// It holds the machine's lock while it claims and measures, so whoever else measures or builds on
// the machine waits; a lease is never held by somebody who waits for the machine. While it measures
// a thread of its own renews the lease; when the lease is gone (the job was cancelled, or this
// process stood still for too long and another has it) it stops at once. All results of a case are
// one report with a UUID of its own, told until the database has it: telling it twice counts once.
//
// A worker of a GPU is the same with that card in the CPU's place: it is registered as a machine of
// the GPU's hardware, so that it gets that hardware's jobs alone, and holds the card's lock and,
// beside workers of other cards, the machine's. A candidate that traps or hangs ends the measuring
// process with what it had of the card; the next process has it anew.
//
// What says nothing about a candidate is not reported of it: an entry that had no time, or whose
// measuring process was lost again and again where no candidate ran. Its trial stays open, and the
// job goes back into the queue, for this machine or another.
//
// A trial that needs what this machine has not (a vendor's library, or the version of it that the
// candidate was made for) is told as absent, which is no failure: its job does not wait for it.
//
// A job that may not or cannot be measured here (not signed by a key that is trusted, for another
// target, damaged) goes back as well, and its campaign is passed over: others are served
// meanwhile, and it is looked at again after a while, or once other keys are trusted.
#pragma once

#include <atomic>
#include <cmath>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "db/store/store.h"
#include "tuner/fleet/finding.h"
#include "tuner/fleet/permission.h"
#include "tuner/measure/runner.h"
#include "vm/base/gpu_facts.h"

namespace nimble::tuner {

struct FleetWorkerOptions {
  std::string database;
  db::OpenOptions open;              // how the database is opened
  std::string name;                  // for people; empty: the host's
  std::optional<db::Uuid> campaign;  // nothing: whose turn it is
  // Of whose jobs it takes some, as those that were packed for any GPU; nothing: of its machine's.
  // What it finds is its machine's in any case.
  std::optional<db::Hash> jobs_for;
  std::string program;          // that measures
  std::string device = "cpu";   // whose lock is held
  std::optional<GpuFacts> gpu;  // what it measures on, this process's; nothing: the CPU
  std::vector<int> cpus;        // the measuring process is bound to these; empty: to none
  int64_t lease_ms = 60'000;
  int64_t poll_ms = 1000;  // at most between two looks at an empty queue
  int64_t hang_ms = 4000;
  int64_t pass_over_ms = 60'000;  // until a campaign that was passed over is looked at again
  bool once = false;              // ends after one job
  double max_idle_s = HUGE_VAL;   // without a job for so long it ends
};

struct FleetTally {
  int64_t jobs = 0, trials = 0;
  int64_t absent = 0;  // trials that this machine lacks something for
  int64_t leases_lost = 0;
  std::map<db::Uuid, std::string> passed_over;  // campaigns, with the latest reason
};

// Serves until told to stop, or as the options say. A job that it held when told to stop goes back
// into the queue. `say` is called from this thread, with a line each time. Errors: of the keys when
// it begins (Permission::renew); kInternal if this machine cannot measure (the measuring process
// does not start, or is lost with every candidate); of the database, those that trying again does
// not mend.
FleetTally serve_jobs(const FleetWorkerOptions& options, Permission& permission,
                      const std::atomic<bool>& cancel,
                      const std::function<void(const std::string&)>& say);

// Measures one trial of a job once more, as a worker would, and tells what became of it; nothing is
// stored. For whoever looks into a failure. Errors: kNotFound for a trial that was in no job;
// of the permission; what a worker would pass a campaign over for; kInternal if this machine cannot
// measure.
struct Rerun {
  db::Job job;  // with that trial alone
  Finding finding;
  std::string output;  // of the measuring process, if it was lost: what it wrote to stderr
};
Rerun rerun_trial(const FleetWorkerOptions& options, Permission& permission, const db::Uuid& trial,
                  const std::atomic<bool>& cancel,
                  const std::function<void(const std::string&)>& say);
// The command that does so on the CPU or a GPU; it holds no password.
std::string rerun_command(const std::string& database, const db::Uuid& trial, bool gpu);

}  // namespace nimble::tuner
