// Work for many machines: what is to be measured, who measures it, and what came out.
//
// A *case* is one workload, shape and policy with its data and expected result. A *job* hands a
// case to one kind of hardware, with the trials (configurations) that are timed in turn there,
// anchors among them. A *worker* claims one job at a time under a lease, runs its candidates, and
// reports. All of it meets in the database alone. Part of Store, whose head says what every call
// may throw; on a server the time of day is the server's, so that leases need no equal clocks.
#pragma once

#include <span>

#include "db/store/records.h"

namespace nimble::db {

using Digest = std::string;  // BLAKE2b-256, 64 lower-case hex digits

// ---- what is measured ------------------------------------------------------------------------

// An executable file with one kernel: `digest` is of the file, a blob.
struct Candidate {
  Hash artifact;  // tells the workload, the configuration and the code's hash
  Digest digest;
  std::string target;      // what its machine code may use, as the compiler names it
  int64_t created_at = 0;  // set by the store
};

// The key covers every field.
struct MeasureCase {
  Hash workload, shape, policy;
  int64_t seed = 0;          // of the operands' data
  std::string fills = "{}";  // JSON; canonicalised: how operands are filled
  double tolerance = 0;      // of the comparison with `expected`
  // Blob of the expected results. A worker refuses a case without: it has nothing to compare with.
  std::optional<Digest> expected;
};
Hash key_of(const MeasureCase&);  // throws Error(kInvalidArgument) if `fills` is not JSON

// Machine-seconds that a campaign has taken of a machine.
struct Consumption {
  Uuid machine;
  std::string hostname;
  Hash hardware;
  double consumed_s = 0;
};

// ---- who measures ----------------------------------------------------------------------------

struct Worker {
  Uuid uuid;
  Uuid machine;
  std::string name;  // for people
  int64_t pid = 0;
  std::string version;              // of nimble
  std::string capabilities = "{}";  // JSON; canonicalised
  std::string trusted_keys = "[]";  // JSON; canonicalised: public keys whose candidates it runs
  int64_t started_at = 0;           // set by the store
};

enum class WorkerState { kIdle, kMeasuring, kStopping, kStopped };

struct Heartbeat {
  Uuid worker;
  WorkerState state = WorkerState::kIdle;
  std::optional<Uuid> job;
  double load = 0;      // runnable threads of others
  std::string message;  // for people
  int64_t at = 0;       // set by the store
};

struct LiveWorker {
  Worker worker;
  std::string hostname;
  Hash hardware;
  std::optional<Heartbeat> heartbeat;  // nothing: never heard of since it was registered
};

// ---- jobs ------------------------------------------------------------------------------------

// `split`: its lease ran out, and its trials went into jobs of half the size.
enum class JobState { kQueued, kClaimed, kDone, kSplit, kCancelled };
constexpr bool is_final(JobState s) {
  return s != JobState::kQueued && s != JobState::kClaimed;
}

struct NewJobTrial {
  NewTrial trial;  // enqueued with the job if it is new; of the case's workload and shape
  Hash artifact;
  std::optional<Digest> candidate;  // nothing: who claims the job has the executable already
  // Timed beside the others to relate their times to those of other hours and machines; measured
  // again though its trial is finished.
  bool anchor = false;
};

struct NewJob {
  Uuid campaign;
  Hash measure_case, hardware;
  std::optional<Uuid> machine;  // nothing: any machine of that hardware
  std::string limits = "{}";    // JSON; canonicalised: what one candidate may take
  double priority = 0;          // higher is claimed earlier
  std::vector<NewJobTrial> trials;
  std::optional<Uuid> avoid = {};  // a machine that gets it only if there is no other
};

struct JobTrial {
  Trial trial;  // as of now
  Hash artifact;
  std::optional<Digest> candidate;
  bool anchor = false;
};

struct Job {
  Uuid uuid, campaign;
  Hash measure_case, hardware;
  std::optional<Uuid> machine;
  std::string limits;
  double priority = 0;
  int64_t position = 0;  // in the order of its campaign's queue, from 1
  JobState state = JobState::kQueued;
  int64_t attempt = 0;         // claims so far; with the worker it says which lease is meant
  int64_t lost = 0;            // leases that ran out, as far as they count (JobRequest::max_losses)
  std::optional<Uuid> worker;  // who holds it
  int64_t lease_until = 0;
  std::optional<Uuid> avoid;   // the machine on which its lease ran out last
  std::optional<Uuid> parent;  // the job that it is a part of
  int64_t created_at = 0, claimed_at = 0, finished_at = 0;  // 0: not yet
  std::vector<JobTrial> trials;  // anchors, and what was not finished when it was read
};

struct JobRequest {
  Uuid worker;                   // its machine's hardware decides what it gets, but for `hardware`
  std::optional<Uuid> campaign;  // nothing: of the running campaign whose turn it is
  int64_t lease_ms = 60'000;
  // A trial alone in its job whose lease ran out that often ends as crashed ("lease-expired"). A
  // loss counts only if the candidate may have caused it: not if the worker was heard of since,
  // and not a second time in turn on one machine while another of the hardware is alive.
  int64_t max_losses = 5;
  std::vector<Uuid> leave_out;  // campaigns that this worker cannot serve
  // Jobs for this kind of hardware are taken instead of those for its machine's own. What is
  // reported of them is its machine's.
  std::optional<Hash> hardware = {};
};

struct OpenJobs {
  int64_t queued = 0, claimed = 0;
};

// What a process that failed left: for whoever looks into it.
struct FailureLog {
  Uuid uuid;
  Uuid trial;
  int64_t attempt = 0;
  std::optional<Uuid> worker;  // nothing: the program that tuned
  std::string error_class;     // "segfault", "mismatch", …
  std::string message;
  std::string output;      // what it wrote to stderr; of more than 64 KiB the end is kept
  std::string command;     // reproduces it; holds no password; empty if nothing does
  int64_t created_at = 0;  // set by the store
};

// How one trial ended. With state kOk a measurement is due; its `trial`, `machine` and `host_state`
// are filled in by the store.
struct TrialReport {
  Uuid trial;
  TrialState state = TrialState::kOk;
  std::string error_class;  // "segfault", "mismatch", …; empty when ok
  std::string message;
  std::optional<Measurement> measurement;
  std::optional<Correctness> correctness;
  std::optional<FailureLog> failure;  // its trial, attempt and worker are filled in by the store
};

// The error class of what a machine could not run for lack of something: a vendor's library, or the
// version of it that the candidate was made for. It says nothing about the candidate.
inline constexpr char kNotAvailable[] = "not-available";
// Of a trial whose candidate compiles and is not measured, for what its code takes of a GPU. Its
// state is that of one that does not compile: nothing of it ran.
inline constexpr char kPruned[] = "pruned";

// A trial that the worker's machine could not run, and why. It stays open, is written down as a
// FailureLog of that class, and the job no longer waits for it.
struct AbsentTrial {
  Uuid trial;
  std::string message;
};

struct JobReport {
  Uuid uuid;  // made by the worker, once: the same report told twice counts once
  Uuid job, worker;
  int64_t attempt = 0;    // as claimed
  HostState host;         // of the session: what it timed side by side
  double consumed_s = 0;  // of the machine, since the claim or the report before
  std::vector<TrialReport> results;
  bool last = true;  // false: more will follow, and the lease goes on
  std::vector<AbsentTrial> absent = {};
};

enum class ReportOutcome {
  kStored,
  kDuplicate,  // was stored before; nothing was changed now
  // Stored, but the lease was no longer the worker's. Times, and what would be the same anywhere (a
  // wrong result, a failure to compile), count unless the trial was finished meanwhile; that it
  // crashed or took too long does not: the machine may have been the cause.
  kLate,
};

// A report as it was stored: what one session on one machine found out.
struct StoredReport {
  struct Result {
    Uuid trial;
    Hash config;
    TrialState state = TrialState::kOk;  // of the trial, if this report decided it; else kOk
    std::optional<double> median_ns;     // nothing: it failed
    std::optional<double> twin_ns;       // median of its A/A pair, if it had one
  };
  Uuid uuid, job, campaign, worker, machine, host_state;
  Hash hardware;
  int64_t attempt = 0;
  double consumed_s = 0;
  bool late = false;
  // Measurements, also of trials that were finished before, and failures that counted.
  std::vector<Result> results;
  std::map<Hash, std::string> absent;  // by configuration: why that machine could not run it
  int64_t created_at = 0;
};

// ---- tasks, requests, events -----------------------------------------------------------------

// A workload that a campaign tunes. The UUID follows from campaign and workload.
struct Task {
  Uuid uuid;
  Uuid campaign;
  Hash workload;
  std::string label;               // where it stands in the model, for people
  std::optional<double> share;     // of the model's time, 0…1: as added, or as last told
  int64_t calls = 0;               // in one run of the model
  std::map<Hash, double> weights;  // shape → how much it counts; any unit, ≥ 0
  std::string phase = {};          // read only: of the latest event; empty before the first
  std::string detail = {};
  int64_t phase_since = 0;
  int64_t created_at = 0;
};

// Something that a task came to, and when.
struct TaskPhase {
  std::string phase, detail;
  std::optional<double> share;
  int64_t created_at = 0;
};

enum class ControlRequest { kPause, kResume, kStop, kCancel };

struct Control {
  Uuid uuid;
  Uuid campaign;
  ControlRequest request = ControlRequest::kPause;
  std::string requested_by, reason;
  int64_t created_at = 0;
  // What the campaign's service made of it; nothing: not yet seen.
  std::optional<bool> accepted;
  std::string answer;
};

// Something changed: what it was (`kind`: one of db/store/topics.h), its key, and a few words of
// JSON, which that list describes; another kind is a newer program's, and nothing to stumble over.
// Who wants the row itself reads it.
struct Event {
  int64_t number = 0;
  std::string kind;
  std::optional<Uuid> campaign;
  std::string subject;
  std::string detail;
  int64_t created_at = 0;
};

std::string_view name_of(WorkerState);
std::string_view name_of(JobState);
std::string_view name_of(ReportOutcome);
std::string_view name_of(ControlRequest);
std::optional<WorkerState> worker_state_from_name(std::string_view);
std::optional<JobState> job_state_from_name(std::string_view);
std::optional<ControlRequest> control_request_from_name(std::string_view);

class Queue {
 public:
  virtual ~Queue() = default;

  // ---- blobs, candidates, cases: written if missing ------------------------------------------
  // Stored packed where that is smaller. At most 1 GiB: kInvalidArgument.
  virtual Digest put_blob(std::span<const uint8_t> bytes) = 0;
  // Nothing if there is none. The bytes have been compared with the digest: kCorrupt if they
  // differ.
  virtual std::optional<std::vector<uint8_t>> blob(const Digest&) = 0;
  virtual bool has_blob(const Digest&) = 0;
  // Its artifact and blob must be there.
  virtual void put(const Candidate&) = 0;
  // Of one artifact, the newest first.
  virtual std::vector<Candidate> candidates(const Hash& artifact) = 0;
  virtual std::optional<Artifact> artifact(const Hash&) = 0;
  virtual Hash put(const MeasureCase&) = 0;
  virtual std::optional<MeasureCase> measure_case(const Hash&) = 0;
  virtual std::optional<MeasurePolicy> policy(const Hash&) = 0;
  virtual std::optional<Machine> machine(const Uuid&) = 0;

  // ---- workers -------------------------------------------------------------------------------
  // An empty UUID gets a new one. Registering the same again changes nothing.
  virtual Uuid add(const Worker&) = 0;
  virtual std::optional<Worker> worker(const Uuid&) = 0;
  // Stores the sign of life, and with `job` renews that lease for `lease_ms` from now. False: the
  // worker no longer holds the job of that attempt (its lease passed on, or it was cancelled); it
  // should stop measuring. True without a job.
  virtual bool heartbeat(const Heartbeat&, int64_t attempt = 0, int64_t lease_ms = 60'000) = 0;
  // Those heard of, or registered, within that time; by name. Stopped ones are left out.
  virtual std::vector<LiveWorker> live_workers(int64_t within_ms = 120'000) = 0;

  // ---- jobs ----------------------------------------------------------------------------------
  // Enqueues it with those of its trials that are new, and returns its UUID, which follows from
  // what it consists of: publishing the same again, at whatever state, changes nothing. A job of
  // anchors alone is measured once, and never split: what is compared side by side stays so.
  // kInvalidArgument: without trials, or a trial of another campaign, workload or shape.
  virtual Uuid publish(const NewJob&) = 0;
  // Takes the next job that this worker may do: of a running campaign, for its hardware, for its
  // machine or any, highest priority first. Without a campaign in the request that of the campaign
  // fewest workers serve, then of the one that waited longest. Nothing: there is none now.
  // What it costs does not depend on how much is finished. First, jobs whose lease ran out are
  // settled: one with several unfinished trials is split into halves, one with a single trial goes
  // back into the queue, and either avoids the machine where that happened while a worker on
  // another one of the hardware is alive; see JobRequest::max_losses. On a file none is settled for
  // `lease_ms` after its clock was seen to jump forward: who is alive renews its lease meanwhile.
  virtual std::optional<Job> claim_job(const JobRequest&) = 0;
  // Puts a job back that the worker could not do for a reason of its own (told to stop, lost its
  // machine's lock): the attempt does not count. False if it no longer holds it.
  virtual bool release_job(const Uuid& job, const Uuid& worker, int64_t attempt) = 0;
  // Puts back whatever that worker holds; for one known to be dead. Returns how many.
  virtual int64_t release_jobs(const Uuid& worker) = 0;
  // Takes queued and claimed jobs out of the queue; who holds one learns it from its heartbeat.
  // Their trials stay as they are. Returns how many.
  virtual int64_t cancel_jobs(const Uuid& campaign) = 0;
  virtual bool cancel_job(const Uuid& job) = 0;
  // Stores all that a worker found out in one transaction: trials, measurements with their samples,
  // correctness, host state, machine-seconds. With `last` and trials of the job still unfinished,
  // but for those that were absent, it goes back into the queue for them. kNotFound for a worker or
  // trial that is not there; kInvalidArgument for a result that is none (see Store::finish).
  virtual ReportOutcome report(const JobReport&) = 0;
  virtual std::optional<StoredReport> stored_report(const Uuid&) = 0;
  virtual std::optional<Job> job(const Uuid&) = 0;
  // The latest job that a trial was in, with that trial alone, whether it is finished or not.
  virtual std::optional<Job> job_of(const Uuid& trial) = 0;
  virtual OpenJobs open_jobs(const Uuid& campaign) = 0;
  // Those that workers hold now, of all campaigns or one.
  virtual std::vector<Job> claimed_jobs(const std::optional<Uuid>& campaign = {}) = 0;

  // ---- consumption ---------------------------------------------------------------------------
  // Adds machine-seconds that no report tells (compiling, learning).
  virtual void add_consumed(const Uuid& campaign, const Uuid& machine, double seconds) = 0;
  virtual std::vector<Consumption> consumption(const Uuid& campaign) = 0;  // by hostname

  // ---- tasks ---------------------------------------------------------------------------------
  // Adds those that are new, with their weights; others stay as they are.
  virtual void add_tasks(const std::vector<Task>&) = 0;
  virtual std::vector<Task> tasks(const Uuid& campaign) = 0;  // the largest share first
  // With what it has come to, any text, and its share of the model's time, where that is known.
  virtual void enter_phase(const Uuid& task, const std::string& phase,
                           const std::string& detail = {}, std::optional<double> share = {}) = 0;
  virtual std::vector<TaskPhase> phases(const Uuid& task) = 0;  // the earliest first

  // ---- requests ------------------------------------------------------------------------------
  // Asks; the campaign's service acts on it and answers. An empty UUID gets a new one.
  virtual Uuid request(const Control&) = 0;
  virtual std::vector<Control> open_requests(const Uuid& campaign) = 0;  // the oldest first
  // Once: false if it was answered before.
  virtual bool answer(const Uuid& control, bool accepted, const std::string& message) = 0;
  // The newest first.
  virtual std::vector<Control> requests(const Uuid& campaign, int64_t limit = 100) = 0;
  // Whether it was begun, resumed or asked for anything in this database, by its feed. What merging
  // brought is a record, and nothing that anybody here wants done.
  virtual bool is_at_home(const Uuid& campaign) = 0;

  // ---- the feed ------------------------------------------------------------------------------
  // Events after that number, in order, at most `limit`. Numbers only grow and none becomes visible
  // after a higher one: who asks again from the last number that it saw misses nothing.
  virtual std::vector<Event> events(int64_t after, int64_t limit = 1000,
                                    const std::optional<Uuid>& campaign = {}) = 0;
  virtual int64_t last_event() = 0;  // 0 before the first
};

Uuid uuid_of(const NewJob&);  // throws Error(kInvalidArgument) if `limits` is not JSON
Uuid uuid_of_task(const Uuid& campaign, const Hash& workload);

}  // namespace nimble::db
