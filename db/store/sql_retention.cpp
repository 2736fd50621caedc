// Retention: what only explains goes when it is old, what decides stays.
//
// A measurement without its samples keeps its median, interval, host state and everything that is
// derived from them. A tombstone says that the samples went on purpose: an import does not bring
// them back, and `check` does not miss them. Removing is each database's own decision: importing a
// tombstone removes nothing.
#include <set>

#include "db/store/sql_store.h"
#include "db/store/topics.h"
#include "vm/base/error.h"

namespace nimble::db {
namespace {

using Pair = std::pair<std::string, std::string>;

// Measurements that a call looks at for each that it may remove.
constexpr int64_t kLookedAt = 10;

// (workload, configuration) of what is, or may soon be, in force.
std::set<Pair> served(Connection& db) {
  std::set<Pair> all;
  Statement row = db.prepare(
      "SELECT s.workload, e.config FROM dispatch_status s "
      "JOIN dispatch_entry e ON e.dispatch_table = s.uuid WHERE s.status <> 'retired' "
      "UNION ALL SELECT o.workload, o.config FROM dispatch_override o WHERE NOT EXISTS "
      "(SELECT 1 FROM dispatch_withdrawal w WHERE w.dispatch_override = o.uuid)");
  while (row.step()) all.emplace(row.text(0), row.text(1));
  return all;
}

// What any table or override names as its evidence: one that is retired may be rolled back to.
std::set<std::string> evidence(Connection& db) {
  std::set<std::string> all;
  Statement row = db.prepare(
      "SELECT evidence FROM dispatch_entry WHERE evidence IS NOT NULL "
      "UNION ALL SELECT evidence FROM dispatch_override WHERE evidence IS NOT NULL");
  while (row.step()) all.insert(row.text(0));
  return all;
}

}  // namespace

void SqlStore::remove_samples(const RetentionRequest& request, int64_t before,
                              RetentionReport& report) {
  const std::set<Pair> in_force = served(*db_);
  const std::set<std::string> named = evidence(*db_);
  std::vector<std::string> old;
  {
    // A call looks at so many rows, whatever becomes of them, and the next goes on behind the last:
    // those that stay, and those whose samples went long ago, are met once.
    Statement row = db_->prepare(fmt::format(
        "SELECT m.uuid, t.workload, t.config, t.role, m.created_at, s.n FROM measurement m "
        "JOIN trial t ON t.uuid = m.trial LEFT JOIN samples s ON s.measurement = m.uuid "
        "WHERE m.created_at < ?1 {} ORDER BY m.created_at, m.uuid LIMIT ?2",
        request.from ? "AND (m.created_at, m.uuid) > (?3, ?4)" : ""));
    const int64_t most =
        request.limit > INT64_MAX / kLookedAt ? INT64_MAX : request.limit * kLookedAt;
    row.bind(before, most);
    if (request.from) {
      row.bind_at(3, request.from->created_at);
      row.bind_at(4, request.from->measurement);
    }
    int64_t seen = 0;
    report.next = request.from;
    while (static_cast<int64_t>(old.size()) < request.limit && row.step()) {
      ++seen;
      report.next = {row.integer(4), row.text(0)};
      if (row.is_null(5)) continue;
      if (row.text(3) == name_of(Role::kBaseline) || named.contains(row.text(0)) ||
          in_force.contains({row.text(1), row.text(2)}))
        ++report.kept;
      else
        old.push_back(row.text(0));
    }
    report.more = seen >= most || static_cast<int64_t>(old.size()) >= request.limit;
  }
  for (const std::string& measurement : old)
    for (const char* table : {"samples", "twin_samples"}) {
      if (!exists(fmt::format("SELECT 1 FROM {} WHERE measurement = ?", table), measurement))
        continue;
      db_->run(
          "INSERT INTO tombstone (table_name, row_key, reason, created_at) VALUES (?,?,?,?) "
          "ON CONFLICT (table_name, row_key) DO NOTHING",
          table, measurement, request.reason, now());
      db_->run(fmt::format("DELETE FROM {} WHERE measurement = ?", table), measurement);
    }
  report.samples = static_cast<int64_t>(old.size());
}

RetentionReport SqlStore::remove_old(const RetentionRequest& request) {
  if (request.older_than_ms <= 0 || request.limit <= 0)
    throw Error(Status::kInvalidArgument, "retention", "needs an age and a limit above zero");
  if (request.reason.empty())
    throw Error(Status::kInvalidArgument, "retention", "needs a reason", "give --reason");
  Write write = begin_write();
  const int64_t before = now() - request.older_than_ms;
  RetentionReport report;
  remove_samples(request, before, report);
  // What was only counted would be counted again.
  if (request.dry_run && request.from) return report;
  db_->run(
      "UPDATE blob SET encoding = 'removed', bytes = ?3 WHERE digest IN ("
      "SELECT b.digest FROM blob b JOIN candidate c ON c.digest = b.digest "
      "WHERE b.encoding <> 'removed' AND c.created_at < ?1 "
      "AND NOT EXISTS (SELECT 1 FROM job_trial t JOIN job j ON j.uuid = t.job "
      " WHERE t.candidate = b.digest AND j.state IN ('queued', 'claimed')) "
      "AND NOT EXISTS (SELECT 1 FROM measure_case m WHERE m.expected = b.digest) "
      "AND NOT EXISTS (SELECT 1 FROM generated_code g WHERE g.digest = b.digest) "
      "LIMIT ?2)",
      before, request.limit, std::span<const uint8_t>());
  report.blobs = db_->changes();
  // A part goes before the whole.
  constexpr std::string_view kEnded =
      "SELECT j.uuid FROM job j WHERE j.state NOT IN ('queued', 'claimed') AND j.finished_at < ?1 "
      "AND NOT EXISTS (SELECT 1 FROM job p WHERE p.parent = j.uuid) "
      // A campaign that goes on is planned anew from them after a restart.
      "AND NOT EXISTS (SELECT 1 FROM campaign c WHERE c.uuid = j.campaign "
      " AND c.state NOT IN ('finished', 'failed')) "
      "ORDER BY j.finished_at, j.uuid LIMIT ?2";
  std::vector<std::string> ended;
  {
    Statement row = db_->prepare(kEnded);
    row.bind(before, request.limit);
    while (row.step()) ended.push_back(row.text(0));
  }
  for (const std::string& job : ended) {
    db_->run("DELETE FROM job_trial WHERE job = ?", job);
    db_->run("DELETE FROM job WHERE uuid = ?", job);
  }
  report.jobs = static_cast<int64_t>(ended.size());
  db_->run(
      "DELETE FROM event WHERE number IN "
      "(SELECT number FROM event e WHERE e.created_at < ?1 AND NOT EXISTS "
      " (SELECT 1 FROM campaign c WHERE c.uuid = e.campaign "
      "  AND c.state NOT IN ('finished', 'failed')) ORDER BY e.number LIMIT ?2)",
      before, request.limit);
  report.events = db_->changes();
  if (request.dry_run) return report;  // undone
  report.more |= report.blobs >= request.limit || report.jobs >= request.limit ||
                 report.events >= request.limit;
  if (report.samples + report.blobs > 0)
    note_event(topic::kRetention, {}, identity_,
               fmt::format(R"({{"samples":{},"blobs":{}}})", report.samples, report.blobs));
  write.commit();
  return report;
}

}  // namespace nimble::db
