// Reports as they were stored, for whoever plans what comes next.
#include <algorithm>

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
  // Of what this one could not run. A trial may be in two jobs that it held under equal attempts:
  // what it has a time for was there.
  Statement lacked = db_->prepare(
      "SELECT t.config, f.message FROM failure_log f JOIN job_trial j ON j.trial = f.trial "
      "JOIN trial t ON t.uuid = f.trial WHERE j.job = ?1 AND f.worker = ?2 AND f.attempt = ?3 "
      "AND f.error_class = ?4 ORDER BY j.ordinal, f.created_at, f.uuid");
  lacked.bind(out.job, out.worker, out.attempt, kNotAvailable);
  while (lacked.step()) {
    const Hash config = lacked.text(0);
    if (std::ranges::none_of(out.results, [&](const auto& x) { return x.config == config; }))
      out.absent[config] = lacked.text(1);
  }
  return out;
}

}  // namespace nimble::db
