// Jobs: what is handed out to workers, under leases.
//
// A claim, as of trials (sql_trials.cpp), is one UPDATE that picks its row by an index over what is
// queued. A lease is (job, worker, attempt): whoever held an earlier one is recognised, and cannot
// change what its successor does. A report locks the lease first, so it is either the holder's or a
// late one, and never half of each.
//
// A lease that ran out says nothing about which candidate was to blame, or whether the machine was.
// So the job is split into halves, which go elsewhere where there is an elsewhere, until a trial
// stands alone; only one that took down its worker alone, again and again, ends as crashed. A
// machine that goes down by itself must not look like that: what counts is told by
// may_be_its_candidates_fault().
#include <algorithm>
#include <chrono>
#include <set>

#include "db/store/hash.h"
#include "db/store/sql_rows.h"
#include "db/store/sql_store.h"
#include "db/store/topics.h"
#include "vm/base/error.h"

namespace nimble::db {
namespace {

constexpr std::string_view kJobColumns =
    "job.uuid, job.campaign, job.measure_case, job.hardware, job.machine, job.limits, "
    "job.priority, job.position, job.state, job.attempt, job.lost, job.worker, job.lease_until, "
    "job.avoid, job.parent, job.created_at, job.claimed_at, job.finished_at";

Job read_job(const Statement& row) {
  Job j;
  j.uuid = row.text(0);
  j.campaign = row.text(1);
  j.measure_case = row.text(2);
  j.hardware = row.text(3);
  j.machine = row.maybe_text(4);
  j.limits = row.text(5);
  j.priority = row.real(6);
  j.position = row.integer(7);
  j.state = job_state_from_name(row.text(8)).value();
  j.attempt = row.integer(9);
  j.lost = row.integer(10);
  j.worker = row.maybe_text(11);
  j.lease_until = row.integer(12);
  j.avoid = row.maybe_text(13);
  j.parent = row.maybe_text(14);
  j.created_at = row.integer(15);
  j.claimed_at = row.integer(16);
  j.finished_at = row.integer(17);
  return j;
}

bool is_open(const JobTrial& t) {
  return !t.anchor && !is_final(t.trial.state);
}

// Whether there is something to measure in it. Read trials are anchors and what is open, so a job
// of anchors alone is told by what it was published with.
bool is_due(Connection& db, const Job& job) {
  if (std::any_of(job.trials.begin(), job.trials.end(), is_open)) return true;
  Statement row = db.prepare("SELECT 1 FROM job_trial WHERE job = ? AND anchor = 0 LIMIT 1");
  return !row.bind(job.uuid).step();
}

constexpr int64_t kMostSettled = 8;        // by one claim, which should not wait for more
constexpr int64_t kAliveWithin = 120'000;  // ms since a worker was last heard of
// Whoever may claim may have written any number.
constexpr int64_t kMostLost = 1'000'000'000;

}  // namespace

// Anchors, and what is not finished: whatever it was published with may be long. Or one of them.
void SqlStore::read_trials(Job& job, const std::optional<Uuid>& only) {
  Statement row = db_->prepare(fmt::format(
      "SELECT {}, jt.artifact, jt.candidate, jt.anchor FROM job_trial jt "
      "JOIN trial ON trial.uuid = jt.trial WHERE jt.job = ? AND {} ORDER BY jt.ordinal",
      kTrialColumns,
      only ? "jt.trial = ?" : "(jt.anchor = 1 OR trial.state IN ('queued', 'claimed'))"));
  row.bind(job.uuid);
  if (only) row.bind_at(2, *only);
  job.trials.clear();
  while (row.step())
    job.trials.push_back({read_trial(row), row.text(kTrialColumnCount),
                          row.maybe_text(kTrialColumnCount + 1),
                          row.integer(kTrialColumnCount + 2) != 0});
}

void SqlStore::insert_job(const NewJob& job, const Uuid& uuid, const std::optional<Uuid>& parent,
                          const std::optional<Uuid>& avoid) {
  db_->run(
      "INSERT INTO job (uuid, campaign, measure_case, hardware, machine, limits, priority, parent, "
      "avoid, created_at, position) VALUES (?1,?2,?3,?4,?5,?6,?7,?8,?9,?10, "
      "(SELECT coalesce(max(position), 0) + 1 FROM job "
      " WHERE campaign = ?2 AND position < 1000000000000)) "
      "ON CONFLICT (uuid) DO NOTHING",
      uuid, job.campaign, job.measure_case, job.hardware, job.machine,
      canonical_json(job.limits, "limits of a job"), job.priority, parent, avoid, now());
  if (db_->changes() == 0) return;
  int64_t ordinal = 0;
  for (const NewJobTrial& t : job.trials)
    db_->run(
        "INSERT INTO job_trial (job, ordinal, trial, artifact, candidate, anchor) "
        "VALUES (?,?,?,?,?,?)",
        uuid, ordinal++, uuid_of(t.trial.key), t.artifact, t.candidate, t.anchor);
  note_event(topic::kJob, job.campaign, uuid, R"({"state":"queued"})");
}

Uuid SqlStore::publish(const NewJob& job) {
  const Uuid uuid = uuid_of(job);
  const std::optional<MeasureCase> its_case = measure_case(job.measure_case);
  if (!its_case)
    throw Error(Status::kInvalidArgument, "job", fmt::format("has no case {}", job.measure_case),
                "store the case before what is measured in it");
  if (job.trials.empty()) throw Error(Status::kInvalidArgument, "job", "has no trials");
  std::vector<NewTrial> trials;
  for (const NewJobTrial& t : job.trials) {
    const TrialKey& k = t.trial.key;
    if (k.campaign != job.campaign || k.workload != its_case->workload ||
        k.shape != its_case->shape)
      throw Error(Status::kInvalidArgument, "job",
                  "one of its trials is of another campaign, workload or shape",
                  "a job is one case of one campaign");
    trials.push_back(t.trial);
  }
  Write write = begin_write();
  enqueue(trials);
  insert_job(job, uuid, {}, job.avoid);
  write.commit();
  return uuid;
}

std::vector<Uuid> SqlStore::campaigns_by_turn(const Hash& hardware) {
  std::vector<Uuid> all;
  Statement row = db_->prepare(
      "SELECT c.uuid FROM campaign c WHERE c.state = 'running' AND EXISTS "
      "(SELECT 1 FROM job q WHERE q.campaign = c.uuid AND q.hardware = ? AND q.state = 'queued') "
      "ORDER BY (SELECT count(*) FROM job h WHERE h.campaign = c.uuid AND h.state = 'claimed'), "
      "coalesce((SELECT max(s.claimed_at) FROM job s WHERE s.campaign = c.uuid), 0), "
      "c.created_at, c.uuid");
  row.bind(hardware);
  while (row.step()) all.push_back(row.text(0));
  return all;
}

std::optional<Uuid> SqlStore::take_job(const JobRequest& request, const Uuid& campaign,
                                       const Machine& machine, int64_t t) {
  const Hash& hardware = request.hardware ? *request.hardware : machine.hardware;
  const auto take = [&](bool whatever_failed_here) -> std::optional<Uuid> {
    Statement row = db_->prepare(fmt::format(
        // Chosen once: a planner that asked again for each row would find others free.
        "WITH chosen AS MATERIALIZED (SELECT uuid FROM job WHERE campaign = ?1 AND hardware = ?2 "
        "AND state = 'queued' AND (machine IS NULL OR machine = ?3) {} "
        "ORDER BY priority DESC, position LIMIT 1{}) "
        "UPDATE job SET state = 'claimed', attempt = CASE WHEN attempt < 1000000000 THEN "
        "attempt + 1 ELSE attempt END, worker = ?4, lease_until = ?5, "
        "claimed_at = ?6 WHERE uuid IN (SELECT uuid FROM chosen) RETURNING uuid",
        whatever_failed_here ? "" : "AND (avoid IS NULL OR avoid <> ?3)", db_->skip_locked()));
    row.bind(campaign, hardware, machine.uuid, request.worker, t + request.lease_ms, t);
    if (!row.step()) return std::nullopt;
    return row.text(0);
  };
  if (std::optional<Uuid> job = take(false)) return job;
  if (others_are_alive(machine, t)) return std::nullopt;
  return take(true);
}

bool SqlStore::others_are_alive(const Machine& machine, int64_t t) {
  Statement others = db_->prepare(
      "SELECT 1 FROM heartbeat h JOIN worker w ON w.uuid = h.worker JOIN machine m "
      "ON m.uuid = w.machine WHERE h.at > ? AND h.at < ? AND h.state <> 'stopped' "
      "AND m.hardware = ? AND m.uuid <> ? LIMIT 1");
  // A sign of life of the future would be one for ever.
  return others.bind(t - kAliveWithin, t + kDayMs, machine.hardware, machine.uuid).step();
}

bool SqlStore::may_be_its_candidates_fault(const Job& lost, const Worker& worker, int64_t t) {
  // Whoever speaks after its lease ran out stood still, or did not reach the database.
  Statement heard = db_->prepare("SELECT 1 FROM heartbeat WHERE worker = ? AND at >= ?");
  if (heard.bind(worker.uuid, lost.lease_until).step()) return false;
  return lost.avoid != worker.machine || !others_are_alive(machine(worker.machine).value(), t);
}

std::optional<Job> SqlStore::claim_job(const JobRequest& request) {
  if (request.lease_ms <= 0)
    throw Error(Status::kInvalidArgument, "claim", "needs a positive lease");
  const std::optional<Machine> its_machine = machine(require_worker(request.worker).machine);
  Write write = begin_write();
  const int64_t t = now();
  if (leases_can_be_judged(t, request.lease_ms)) settle_expired(t, request.max_losses);
  std::vector<Uuid> campaigns;
  if (!request.campaign)
    campaigns = campaigns_by_turn(request.hardware.value_or(its_machine->hardware));
  else if (db_->prepare("SELECT 1 FROM campaign WHERE uuid = ? AND state = 'running'")
               .bind(*request.campaign)
               .step())
    campaigns.push_back(*request.campaign);
  for (const Uuid& campaign : campaigns) {
    if (std::count(request.leave_out.begin(), request.leave_out.end(), campaign) > 0) continue;
    while (const std::optional<Uuid> uuid = take_job(request, campaign, *its_machine, t)) {
      Job taken = job(*uuid).value();
      if (is_due(*db_, taken)) {
        write.commit();
        return taken;
      }
      end_job(*uuid, JobState::kDone, t);  // a late report has finished its trials meanwhile
    }
  }
  write.commit();
  return std::nullopt;
}

void SqlStore::end_job(const Uuid& job, JobState state, int64_t t) {
  std::string campaign;
  {
    Statement row = db_->prepare(
        "UPDATE job SET state = ?2, worker = NULL, lease_until = NULL, finished_at = ?3 "
        "WHERE uuid = ?1 AND state IN ('queued', 'claimed') RETURNING campaign");
    if (!row.bind(job, name_of(state), t).step()) return;
    campaign = row.text(0);
  }
  note_event(topic::kJob, campaign, job, fmt::format(R"({{"state":"{}"}})", name_of(state)));
}

bool SqlStore::leases_can_be_judged(int64_t t, int64_t lease_ms) {
  // A server's clock is one for all, and its owner's affair.
  if (db_->engine() != Engine::kSqlite || (options_.clock_ms && !options_.elapsed_ms)) return true;
  const auto elapsed = std::chrono::steady_clock::now().time_since_epoch();
  return jumps_.steady(t,
                       options_.elapsed_ms
                           ? options_.elapsed_ms()
                           : std::chrono::duration_cast<std::chrono::milliseconds>(elapsed).count(),
                       lease_ms);
}

void SqlStore::settle_expired(int64_t t, int64_t max_losses) {
  std::vector<std::pair<Uuid, Uuid>> lost;  // job, its worker
  {
    Statement row = db_->prepare(
        fmt::format("SELECT uuid, worker FROM job WHERE state = 'claimed' AND lease_until <= ? "
                    "ORDER BY lease_until LIMIT ?{}",
                    db_->skip_locked()));
    row.bind(t, kMostSettled);
    while (row.step()) lost.emplace_back(row.text(0), row.text(1));
  }
  for (const auto& [job, worker] : lost) settle_lost(job, require_worker(worker), t, max_losses);
}

void SqlStore::settle_lost(const Uuid& uuid, const Worker& worker, int64_t t, int64_t max_losses) {
  const Job lost = job(uuid).value();
  std::vector<JobTrial> open, anchors;
  for (const JobTrial& trial : lost.trials) {
    if (trial.anchor) anchors.push_back(trial);
    if (is_open(trial)) open.push_back(trial);
  }
  if (!is_due(*db_, lost)) return end_job(uuid, JobState::kDone, t);
  // Who is bound to one machine cannot avoid it.
  std::optional<Uuid> avoid;
  if (!lost.machine) avoid = worker.machine;
  if (open.size() <= 1) {
    const int64_t losses =
        std::min(lost.lost, kMostLost) + (may_be_its_candidates_fault(lost, worker, t) ? 1 : 0);
    if (losses < max_losses) {
      db_->run(
          "UPDATE job SET state = 'queued', worker = NULL, lease_until = NULL, lost = ?3, "
          "avoid = ?2 WHERE uuid = ?1",
          uuid, avoid, losses);
      return note_event(topic::kJob, lost.campaign, uuid, R"({"state":"queued","lost":true})");
    }
    if (open.empty()) return end_job(uuid, JobState::kDone, t);
    db_->run(
        "UPDATE trial SET state = 'crashed', error_class = 'lease-expired', finished_at = ?2, "
        "message = ?3, attempt = ?4, lease_owner = NULL, lease_until = NULL "
        "WHERE uuid = ?1 AND state IN ('queued', 'claimed')",
        open[0].trial.uuid, t,
        fmt::format("its worker {} stopped without a result, as {} others before", worker.name,
                    losses - 1),
        lost.attempt);
    note_event(topic::kTrial, lost.campaign, open[0].trial.uuid, R"({"state":"crashed"})");
    return end_job(uuid, JobState::kDone, t);
  }
  const size_t half = (open.size() + 1) / 2;
  for (int part = 0; part < 2; ++part) {
    NewJob child;
    child.campaign = lost.campaign;
    child.measure_case = lost.measure_case;
    child.hardware = lost.hardware;
    child.machine = lost.machine;
    child.limits = lost.limits;
    child.priority = lost.priority;
    const auto add = [&](const JobTrial& trial) {
      child.trials.push_back({{trial.trial.key}, trial.artifact, trial.candidate, trial.anchor});
    };
    std::for_each(anchors.begin(), anchors.end(), add);
    std::for_each(open.begin() + static_cast<std::ptrdiff_t>(part == 0 ? 0 : half),
                  part == 0 ? open.begin() + static_cast<std::ptrdiff_t>(half) : open.end(), add);
    insert_job(child, uuid_from_hash(hash_of_fields("part of a job", {uuid, part ? "1" : "0"})),
               uuid, avoid);
  }
  end_job(uuid, JobState::kSplit, t);
}

bool SqlStore::release_job(const Uuid& job, const Uuid& worker, int64_t attempt) {
  db_->run(
      "UPDATE job SET state = 'queued', worker = NULL, lease_until = NULL "
      "WHERE uuid = ? AND state = 'claimed' AND worker = ? AND attempt = ?",
      job, worker, attempt);
  return db_->changes() == 1;
}

int64_t SqlStore::release_jobs(const Uuid& worker) {
  db_->run(
      "UPDATE job SET state = 'queued', worker = NULL, lease_until = NULL "
      "WHERE state = 'claimed' AND worker = ?",
      worker);
  return db_->changes();
}

int64_t SqlStore::cancel_jobs(const Uuid& campaign) {
  check_campaign_exists(campaign);
  Write write = begin_write();
  db_->run(
      "UPDATE job SET state = 'cancelled', worker = NULL, lease_until = NULL, finished_at = ?2 "
      "WHERE campaign = ?1 AND state IN ('queued', 'claimed')",
      campaign, now());
  const int64_t cancelled = db_->changes();
  if (cancelled > 0)
    note_event(topic::kCampaign, campaign, campaign,
               fmt::format(R"({{"cancelled_jobs":{}}})", cancelled));
  write.commit();
  return cancelled;
}

bool SqlStore::cancel_job(const Uuid& uuid) {
  Write write = begin_write();
  const std::optional<Job> found = job(uuid);
  const bool open = found && !is_final(found->state);
  if (open) end_job(uuid, JobState::kCancelled, now());
  write.commit();
  return open;
}

// In one statement for up to this many: what a job has, mostly.
constexpr size_t kTrialsAtOnce = 50;

void SqlStore::finish_trials(const JobReport& r, const Hash& hardware, bool holds, int64_t t) {
  std::vector<const TrialReport*> counting;
  for (const TrialReport& result : r.results)
    // What a machine may have caused is no verdict of one that had lost the lease.
    if (holds || result.state == TrialState::kOk || result.state == TrialState::kWrong ||
        result.state == TrialState::kCompileFailed)
      counting.push_back(&result);
  for (size_t begin = 0; begin < counting.size(); begin += kTrialsAtOnce) {
    const size_t end = std::min(counting.size(), begin + kTrialsAtOnce);
    std::string rows;
    for (size_t i = begin; i < end; ++i)
      rows += i == begin ? "(?,?,?,?,?,?,?,?)" : ",(?,?,?,?,?,?,?,?)";
    Statement update = db_->prepare(fmt::format(
        "UPDATE trial SET state = r.column2, error_class = r.column3, message = r.column4, "
        "finished_at = r.column5, attempt = r.column6, median_ns = r.column7, "
        "measured_on = r.column8, lease_owner = NULL, lease_until = NULL "
        "FROM (VALUES {}) AS r WHERE trial.uuid = r.column1 "
        "AND trial.state IN ('queued', 'claimed')",
        rows));
    int at = 0;
    for (size_t i = begin; i < end; ++i) {
      const TrialReport& result = *counting[i];
      std::optional<double> median;
      std::optional<Hash> measured_on;
      if (result.state == TrialState::kOk) {
        median = result.measurement->median_ns;
        measured_on = hardware;
      }
      update.bind_at(++at, result.trial);
      update.bind_at(++at, name_of(result.state));
      update.bind_at(++at, result.error_class);
      update.bind_at(++at, result.message);
      update.bind_at(++at, t);
      update.bind_at(++at, r.attempt);
      update.bind_at(++at, median);
      update.bind_at(++at, measured_on);
    }
    update.run();
  }
}

ReportOutcome SqlStore::report(const JobReport& r) {
  if (!is_uuid(r.uuid))
    throw Error(Status::kInvalidArgument, "report", "has no UUID",
                "whoever reports makes one, and reports again under the same");
  for (const TrialReport& result : r.results) check_result(result.state, result.measurement);
  Machine its_machine;
  {
    Statement row = db_->prepare(
        "SELECT m.uuid, m.hardware FROM worker w JOIN machine m ON m.uuid = w.machine "
        "WHERE w.uuid = ?");
    if (!row.bind(r.worker).step()) require_worker(r.worker);
    its_machine.uuid = row.text(0);
    its_machine.hardware = row.text(1);
  }
  Write write = begin_write();
  const int64_t t = now();
  Uuid campaign;
  Hash its_case;
  bool holds = false;
  {
    // Locks the lease, if it is the worker's.
    Statement lease = db_->prepare(
        "UPDATE job SET lease_until = lease_until WHERE uuid = ? AND state = 'claimed' "
        "AND worker = ? AND attempt = ? RETURNING campaign, measure_case");
    holds = lease.bind(r.job, r.worker, r.attempt).step();
    Statement any = db_->prepare("SELECT campaign, measure_case FROM job WHERE uuid = ?");
    if (!holds && !any.bind(r.job).step())
      throw Error(Status::kNotFound, path(), fmt::format("has no job {}", r.job),
                  "it was finished long ago and forgotten");
    const Statement& row = holds ? lease : any;
    campaign = row.text(0);
    its_case = row.text(1);
  }
  const Uuid host_state = put(r.host);
  db_->run(
      "INSERT INTO job_report (uuid, job, campaign, measure_case, worker, host_state, attempt, "
      "consumed_s, results, late, created_at) VALUES (?,?,?,?,?,?,?,?,?,?,?) "
      "ON CONFLICT (uuid) DO NOTHING",
      r.uuid, r.job, campaign, its_case, r.worker, host_state, r.attempt, r.consumed_s,
      static_cast<int64_t>(r.results.size()), !holds, t);
  if (db_->changes() == 0) return ReportOutcome::kDuplicate;

  std::set<Uuid> of_job;
  {
    Statement row = db_->prepare("SELECT trial FROM job_trial WHERE job = ?");
    row.bind(r.job);
    while (row.step()) of_job.insert(row.text(0));
  }
  const auto require_of_job = [&](const Uuid& trial) {
    if (of_job.contains(trial)) return;
    throw Error(Status::kInvalidArgument, "report",
                fmt::format("trial {} is not of job {}", trial, r.job), "report what was claimed");
  };
  std::set<Uuid> absent;
  for (const TrialReport& result : r.results) require_of_job(result.trial);
  for (const AbsentTrial& a : r.absent) {
    require_of_job(a.trial);
    absent.insert(a.trial);
  }
  finish_trials(r, its_machine.hardware, holds, t);
  Facts facts(*db_);
  for (const TrialReport& result : r.results) {
    if (result.measurement) {
      Measurement m = *result.measurement;
      m.trial = result.trial;
      m.machine = its_machine.uuid;
      m.host_state = host_state;
      insert_measurement(m, facts, t);
    }
    if (result.correctness) insert_correctness(*result.correctness, facts, t);
    if (result.failure) {
      FailureLog log = *result.failure;
      log.trial = result.trial;
      log.attempt = r.attempt;
      log.worker = r.worker;
      add(log);
    }
  }
  for (const AbsentTrial& a : r.absent) {
    FailureLog log;
    log.trial = a.trial;
    log.attempt = r.attempt;
    log.worker = r.worker;
    log.error_class = kNotAvailable;
    log.message = a.message;
    add(log);
  }
  facts.flush();
  // Before what follows from it: whoever reads the feed knows all of a job when it ends.
  note_event(topic::kReport, campaign, r.uuid,
             fmt::format(R"({{"job":"{}","late":{},"results":{}}})", r.job,
                         holds ? "false" : "true", r.results.size()));
  if (holds && r.last) {
    bool is_open = false;
    {
      Statement rest = db_->prepare(
          "SELECT jt.trial FROM job_trial jt JOIN trial ON trial.uuid = jt.trial WHERE jt.job = ? "
          "AND jt.anchor = 0 AND trial.state IN ('queued', 'claimed')");
      rest.bind(r.job);
      while (!is_open && rest.step()) is_open = !absent.contains(rest.text(0));
    }
    if (is_open)
      db_->run("UPDATE job SET state = 'queued', worker = NULL, lease_until = NULL WHERE uuid = ?",
               r.job);
    else
      end_job(r.job, JobState::kDone, t);
  }
  // Last: the row of a campaign on a machine is one for all of its workers.
  add_consumed(campaign, its_machine.uuid, r.consumed_s);
  write.commit();
  return holds ? ReportOutcome::kStored : ReportOutcome::kLate;
}

std::optional<Job> SqlStore::job(const Uuid& uuid) {
  std::optional<Job> found;
  {
    Statement row = db_->prepare(fmt::format("SELECT {} FROM job WHERE job.uuid = ?", kJobColumns));
    if (!row.bind(uuid).step()) return std::nullopt;
    found = read_job(row);
  }
  read_trials(*found);
  return found;
}

std::optional<Job> SqlStore::job_of(const Uuid& trial) {
  std::optional<Job> found;
  {
    Statement row = db_->prepare(
        fmt::format("SELECT {} FROM job JOIN job_trial jt ON jt.job = job.uuid WHERE jt.trial = ? "
                    "ORDER BY job.position DESC LIMIT 1",
                    kJobColumns));
    if (!row.bind(trial).step()) return std::nullopt;
    found = read_job(row);
  }
  read_trials(*found, trial);
  return found;
}

OpenJobs SqlStore::open_jobs(const Uuid& campaign) {
  check_campaign_exists(campaign);
  Statement row = db_->prepare(
      "SELECT (SELECT count(*) FROM job WHERE campaign = ?1 AND state = 'queued'), "
      "(SELECT count(*) FROM job WHERE campaign = ?1 AND state = 'claimed')");
  row.bind(campaign).step();
  return {row.integer(0), row.integer(1)};
}

std::vector<Job> SqlStore::claimed_jobs(const std::optional<Uuid>& campaign) {
  std::vector<Job> all;
  {
    Statement row =
        db_->prepare(fmt::format("SELECT {} FROM job WHERE job.state = 'claimed' {} "
                                 "ORDER BY job.claimed_at, job.uuid",
                                 kJobColumns, campaign ? "AND job.campaign = ?" : ""));
    if (campaign) row.bind_at(1, *campaign);
    while (row.step()) all.push_back(read_job(row));
  }
  for (Job& job : all) read_trials(job);
  return all;
}

}  // namespace nimble::db
