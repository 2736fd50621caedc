// The queue of trials.
//
// A worker claims trials under a lease: state, owner and time of expiry are set by one UPDATE that
// also picks the rows (passing by those that another claims at that moment), so two processes never
// get the same trial, and a trial whose owner died is picked again once its lease is over, with no
// sweeper needed. No transaction stays open over a measurement. A trial that took its owners down
// max_attempts times is closed as crashed. How often it was tried, and where in the queue it
// stands, a merged database may say: the count stops where adding to it would fail, and the queue
// goes on behind the last position that is believable.
#include <algorithm>

#include "db/store/sql_rows.h"
#include "db/store/sql_store.h"
#include "db/store/topics.h"
#include "vm/base/error.h"

namespace nimble::db {

Trial read_trial(const Statement& row) {
  Trial t;
  t.uuid = row.text(0);
  t.key = {row.text(1),
           row.text(2),
           row.text(3),
           row.text(4),
           role_from_name(row.text(5)).value(),
           row.integer(6),
           row.maybe_text(17),
           row.maybe_text(18)};
  t.round = row.integer(7);
  t.priority = row.real(8);
  t.predicted_ns = row.maybe_real(9);
  t.state = trial_state_from_name(row.text(10)).value();
  t.attempt = row.integer(11);
  t.lease_owner = row.text(12);
  t.lease_until = row.integer(13);
  t.error_class = row.text(14);
  t.message = row.text(15);
  t.position = row.integer(16);
  return t;
}

void check_result(TrialState state, const std::optional<Measurement>& measurement) {
  if (!is_final(state))
    throw Error(Status::kInvalidArgument, "trial result",
                fmt::format("'{}' is not a final state", name_of(state)));
  if (state == TrialState::kOk && !measurement)
    throw Error(Status::kInvalidArgument, "trial result", "a trial that is ok needs its times");
}
int64_t SqlStore::enqueue(const std::vector<NewTrial>& trials) {
  int64_t added = 0;
  Write write = begin_write();
  const int64_t created_at = now();
  for (const NewTrial& t : trials) {
    if (t.predicted_ns) require_time(*t.predicted_ns, "predicted time of a trial");
    db_->run(
        "INSERT INTO trial (uuid, campaign, workload, config, shape, role, threads, hardware, "
        "policy, round, priority, predicted_ns, created_at, position) "
        "VALUES (?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12,?13, "
        "(SELECT coalesce(max(position), 0) + 1 FROM trial "
        " WHERE campaign = ?2 AND position < 1000000000000)) "
        "ON CONFLICT (uuid) DO NOTHING",
        uuid_of(t.key), t.key.campaign, t.key.workload, t.key.config, t.key.shape,
        name_of(t.key.role), t.key.threads, t.key.hardware, t.key.policy, t.round, t.priority,
        t.predicted_ns, created_at);
    added += db_->changes();
  }
  write.commit();
  return added;
}

std::vector<Trial> SqlStore::claim(const ClaimRequest& request) {
  if (request.owner.empty() || request.lease_ms <= 0)
    throw Error(Status::kInvalidArgument, "claim", "needs an owner and a positive lease");
  std::vector<Trial> claimed;
  Write write = begin_write();
  const int64_t t = now();
  db_->run(
      "UPDATE trial SET state = 'crashed', error_class = 'lease-expired', finished_at = ?2, "
      "message = 'its owner ' || lease_owner || ' stopped without a result, attempt ' || attempt, "
      "lease_owner = NULL, lease_until = NULL "
      "WHERE campaign = ?1 AND state = 'claimed' AND lease_until <= ?2 AND attempt >= ?3 "
      "AND lease_owner <> ?4",
      request.campaign, t, request.max_attempts, request.owner);
  {
    Statement rows = db_->prepare(
        // Both kinds come by an index and stop at the limit, however many trials there are. They
        // are chosen once: a planner that asked again for each row would find others free.
        fmt::format("WITH queued AS MATERIALIZED (SELECT uuid, priority, position FROM trial"
                    "  WHERE campaign = ?1 AND state = 'queued' {1}"
                    "  ORDER BY priority DESC, position LIMIT ?5{2}), "
                    "expired AS MATERIALIZED (SELECT uuid, priority, position FROM trial"
                    "  WHERE campaign = ?1 AND state = 'claimed' AND lease_until <= ?3"
                    "  AND lease_owner <> ?2 {1}"
                    "  ORDER BY lease_until LIMIT ?5{2}), "
                    "chosen AS MATERIALIZED (SELECT uuid FROM"
                    "  (SELECT * FROM queued UNION ALL SELECT * FROM expired) AS free"
                    "  ORDER BY priority DESC, position LIMIT ?5) "
                    "UPDATE trial SET state = 'claimed', "
                    "attempt = CASE WHEN attempt < 1000000000 THEN attempt + 1 ELSE attempt END, "
                    "lease_owner = ?2, lease_until = ?3 + ?4 "
                    "WHERE uuid IN (SELECT uuid FROM chosen) RETURNING {0}",
                    kTrialColumns,
                    "AND (?6 IS NULL OR role = ?6) AND (?7 IS NULL OR workload = ?7)",
                    db_->skip_locked()));
    std::optional<std::string> role;
    if (request.role) role = name_of(*request.role);
    rows.bind(request.campaign, request.owner, t, request.lease_ms, request.limit, role,
              request.workload);
    while (rows.step()) claimed.push_back(read_trial(rows));
  }
  write.commit();
  // RETURNING gives no order.
  std::sort(claimed.begin(), claimed.end(), [](const Trial& a, const Trial& b) {
    return a.priority != b.priority ? a.priority > b.priority : a.position < b.position;
  });
  return claimed;
}

int64_t SqlStore::release(const Uuid& campaign, const std::string& owner) {
  db_->run(
      "UPDATE trial SET state = 'queued', lease_owner = NULL, lease_until = NULL "
      "WHERE campaign = ? AND state = 'claimed' AND lease_owner = ?",
      campaign, owner);
  return db_->changes();
}

int64_t SqlStore::give_back(const Uuid& campaign, const std::string& owner) {
  db_->run(
      "UPDATE trial SET state = 'queued', lease_owner = NULL, lease_until = NULL, "
      "attempt = CASE WHEN attempt > 0 THEN attempt - 1 ELSE attempt END "
      "WHERE campaign = ? AND state = 'claimed' AND lease_owner = ?",
      campaign, owner);
  return db_->changes();
}

std::vector<std::string> SqlStore::lease_owners(const Uuid& campaign) {
  std::vector<std::string> owners;
  Statement rows = db_->prepare(
      "SELECT DISTINCT lease_owner FROM trial WHERE campaign = ? AND state = 'claimed' ORDER BY 1");
  rows.bind(campaign);
  while (rows.step()) owners.push_back(rows.text(0));
  return owners;
}

bool SqlStore::finish(const TrialResult& result) {
  check_result(result.state, result.measurement);
  if (result.measurement && result.measurement->trial != result.trial)
    throw Error(Status::kInvalidArgument, "trial result", "the measurement is of another trial");
  Write write = begin_write();
  std::string campaign;
  {
    Statement row = db_->prepare(
        "UPDATE trial SET state = ?1, error_class = ?2, message = ?3, finished_at = ?4, "
        "median_ns = ?7, measured_on = (SELECT hardware FROM machine WHERE uuid = ?8), "
        "lease_owner = NULL, lease_until = NULL "
        "WHERE uuid = ?5 AND state = 'claimed' AND lease_owner = ?6 RETURNING campaign");
    std::optional<double> median;
    std::optional<Uuid> machine;
    if (result.state == TrialState::kOk) {
      median = result.measurement->median_ns;
      machine = result.measurement->machine;
    }
    row.bind(name_of(result.state), result.error_class, result.message, now(), result.trial,
             result.owner, median, machine);
    if (!row.step()) return false;
    campaign = row.text(0);
  }
  if (result.measurement) {
    Facts facts(*db_);
    insert_measurement(*result.measurement, facts, now());
    facts.flush();
  }
  note_event(topic::kTrial, campaign, result.trial,
             fmt::format(R"({{"state":"{}"}})", name_of(result.state)));
  write.commit();
  return true;
}

std::optional<Trial> SqlStore::trial(const Uuid& uuid) {
  Statement row =
      db_->prepare(fmt::format("SELECT {} FROM trial WHERE trial.uuid = ?", kTrialColumns));
  if (!row.bind(uuid).step()) return std::nullopt;
  return read_trial(row);
}

namespace {

// The newest measurement of a trial stands for it.
std::string outcome_query() {
  return fmt::format(
      "SELECT {}, s.dims, c.json, (SELECT m.median_ns FROM measurement m WHERE m.trial = "
      "trial.uuid ORDER BY m.created_at DESC, m.uuid LIMIT 1) "
      "FROM trial JOIN shape s ON s.hash = trial.shape JOIN config c ON c.hash = trial.config ",
      kTrialColumns);
}

TrialOutcome read_outcome(const Statement& row) {
  return {read_trial(row), dims_from_text(row.text(kTrialColumnCount)),
          row.text(kTrialColumnCount + 1), row.maybe_real(kTrialColumnCount + 2)};
}

}  // namespace

std::vector<TrialOutcome> SqlStore::outcomes(const Uuid& campaign,
                                             const std::optional<Hash>& workload, int64_t limit,
                                             const std::optional<Trial>& after) {
  std::vector<TrialOutcome> all;
  Statement row = db_->prepare(
      fmt::format("{}WHERE trial.campaign = ?1 AND (?2 IS NULL OR trial.workload = ?2) {}"
                  "ORDER BY trial.position, trial.uuid LIMIT ?3",
                  outcome_query(), after ? "AND (trial.position, trial.uuid) > (?4, ?5) " : ""));
  row.bind(campaign, workload, limit);
  if (after) {
    row.bind_at(4, after->position);
    row.bind_at(5, after->uuid);
  }
  while (row.step()) all.push_back(read_outcome(row));
  return all;
}

std::optional<TrialOutcome> SqlStore::outcome(const Uuid& trial) {
  Statement row = db_->prepare(outcome_query() + "WHERE trial.uuid = ?");
  if (!row.bind(trial).step()) return std::nullopt;
  return read_outcome(row);
}

}  // namespace nimble::db
