// Reports as they were stored, for whoever plans what comes next.
#include "db/store/sql_store.h"

namespace nimble::db {

std::optional<StoredReport> SqlStore::stored_report(const Uuid& uuid) {
  StoredReport out;
  {
    Statement row = db_->prepare(
        "SELECT r.job, r.campaign, r.worker, w.machine, m.hardware, r.host_state, r.attempt, "
        "r.consumed_s, r.late, r.created_at FROM job_report r JOIN worker w ON w.uuid = r.worker "
        "JOIN machine m ON m.uuid = w.machine WHERE r.uuid = ?");
    if (!row.bind(uuid).step()) return std::nullopt;
    out.uuid = uuid;
    out.job = row.text(0);
    out.campaign = row.text(1);
    out.worker = row.text(2);
    out.machine = row.text(3);
    out.hardware = row.text(4);
    out.host_state = row.text(5);
    out.attempt = row.integer(6);
    out.consumed_s = row.real(7);
    out.late = row.integer(8) != 0;
    out.created_at = row.integer(9);
  }
  // A report has a host state of its own.
  {
    Statement row = db_->prepare(
        "SELECT m.trial, t.config, m.median_ns, w.median_ns FROM measurement m "
        "JOIN trial t ON t.uuid = m.trial LEFT JOIN twin_samples w ON w.measurement = m.uuid "
        "WHERE m.host_state = ? ORDER BY m.trial");
    row.bind(out.host_state);
    while (row.step())
      out.results.push_back(
          {row.text(0), row.text(1), TrialState::kOk, row.real(2), row.maybe_real(3)});
  }
  // A trial that the report ended bears its attempt and its moment.
  Statement row = db_->prepare(
      "SELECT t.uuid, t.config, t.state FROM job_trial j JOIN trial t ON t.uuid = j.trial "
      "WHERE j.job = ?1 AND t.attempt = ?2 AND t.finished_at = ?3 AND t.state <> 'ok' "
      "AND t.state <> 'queued' AND t.state <> 'claimed' ORDER BY j.ordinal");
  row.bind(out.job, out.attempt, out.created_at);
  while (row.step())
    out.results.push_back({row.text(0), row.text(1), trial_state_from_name(row.text(2)).value(),
                           std::nullopt, std::nullopt});
  return out;
}

}  // namespace nimble::db
