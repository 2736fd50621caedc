// A worker of a fleet: takes one job at a time from the database, measures it and reports.
//
// It holds the machine's lock while it claims and measures, so whoever else measures or builds on
// the machine waits; a lease is never held by somebody who waits for the machine. While it measures
// a thread of its own renews the lease; when the lease is gone (the job was cancelled, or this
// process stood still for too long and another has it) it stops at once. All results of a case are
// one report with a UUID of its own, told until the database has it: telling it twice counts once.
//
// What says nothing about a candidate is not reported of it: an entry that had no time, or whose
// measuring process was lost again and again where no candidate ran. Its trial stays open, and the
// job goes back into the queue, for this machine or another.
#pragma once

#include <atomic>
#include <cmath>
#include <functional>
#include <optional>
#include <span>
#include <string>

#include "db/store/store.h"
#include "tuner/measure/runner.h"

namespace nimble::tuner {

struct FleetWorkerOptions {
  std::string database;
  std::string name;                  // for people; empty: the host's
  std::optional<db::Uuid> campaign;  // nothing: whose turn it is
  std::string program;               // that measures
  std::string device = "cpu";        // whose lock is held
  int64_t lease_ms = 60'000;
  int64_t poll_ms = 1000;  // between looks at an empty queue
  int64_t hang_ms = 4000;
  bool once = false;                // ends after one job
  double max_idle_s = HUGE_VAL;     // without a job for so long it ends
  std::string trusted_keys = "[]";  // JSON, for people
};

struct FleetTally {
  int64_t jobs = 0, trials = 0;
  int64_t leases_lost = 0;
};

// Whether this executable may run here as machine code. Throws Error with the reason if not.
using Permission =
    std::function<void(const db::Job&, const db::JobTrial&, std::span<const uint8_t> executable)>;

// Serves until told to stop, or as the options say. A job that it held when told to stop goes back
// into the queue. Errors: kInvalidArgument for a candidate that may not run here; kInternal if this
// machine cannot measure (the measuring process does not start, or is lost with every candidate);
// of the database, those that trying again does not mend.
FleetTally serve_jobs(const FleetWorkerOptions& options, const Permission& permission,
                      const std::atomic<bool>& cancel,
                      const std::function<void(const std::string&)>& say);

}  // namespace nimble::tuner
