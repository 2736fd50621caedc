// Overrides: what a person has decided for some shapes, and its withdrawal.
//
// Neither is ever changed or deleted. An override with a withdrawal is history; to lay it again,
// one makes another. So databases merge by union, and a withdrawal anywhere counts everywhere.
#include <algorithm>

#include "db/store/hash.h"
#include "db/store/sql_store.h"
#include "db/store/topics.h"
#include "vm/base/error.h"

namespace nimble::db {
Uuid SqlStore::add(const NewOverride& o) {
  if (o.reason.empty())
    throw Error(Status::kInvalidArgument, "override", "needs a reason", "give --reason");
  const std::string region = json_of(o.region);
  region_from_json(region, "region of the override");
  Write write = begin_write(true);
  if (!config(o.config))
    throw Error(Status::kNotFound, path(), fmt::format("has no configuration {}", o.config),
                "list them: nimble db top");
  std::optional<Uuid> evidence;
  {
    Statement row = db_->prepare(
        "SELECT measurement FROM newest_measured WHERE workload = ? AND hardware = ? AND config = "
        "? "
        "ORDER BY created_at DESC, measurement LIMIT 1");
    if (row.bind(o.workload, o.hardware, o.config).step()) evidence = row.text(0);
  }
  const Uuid uuid = new_uuid();
  // The later of two that overlap counts, also when the clock was set back.
  const int64_t t = now();
  Statement last = db_->prepare(
      "SELECT coalesce(max(created_at), 0) FROM dispatch_override "
      "WHERE workload = ? AND hardware = ? AND created_at < ?");
  last.bind(o.workload, o.hardware, t + kDayMs).step();
  db_->run(
      "INSERT INTO dispatch_override (uuid, workload, hardware, region, config, evidence, reason, "
      "created_at) VALUES (?,?,?,?,?,?,?,?)",
      uuid, o.workload, o.hardware, region, o.config, evidence, o.reason,
      std::max(t, last.integer(0) + 1));
  note_event(topic::kOverride, {}, uuid, R"({"state":"in force"})");
  write.commit();
  return uuid;
}

void SqlStore::withdraw(const Uuid& uuid, const std::string& reason) {
  if (reason.empty())
    throw Error(Status::kInvalidArgument, "withdrawal", "needs a reason", "give --reason");
  Write write = begin_write(true);
  if (!exists("SELECT 1 FROM dispatch_override WHERE uuid = ?", uuid))
    throw Error(Status::kNotFound, path(), fmt::format("has no override {}", uuid),
                "list them: nimble dispatch overrides");
  if (exists("SELECT 1 FROM dispatch_withdrawal WHERE dispatch_override = ?", uuid))
    throw Error(Status::kInvalidArgument, fmt::format("override {}", uuid), "is withdrawn already",
                "list those in force: nimble dispatch overrides");
  db_->run(
      "INSERT INTO dispatch_withdrawal (uuid, dispatch_override, reason, created_at) "
      "VALUES (?,?,?,?)",
      new_uuid(), uuid, reason, now());
  note_event(topic::kOverride, {}, uuid, R"({"state":"withdrawn"})");
  write.commit();
}

std::vector<Override> SqlStore::overrides(bool all, const std::optional<Hash>& workload,
                                          const std::optional<Hash>& hardware) {
  // Two databases may have withdrawn the same: the earlier reason is told. What was merged from the
  // far future would never be overlaid: it counts as the earliest.
  Statement row = db_->prepare(
      "SELECT o.uuid, o.workload, o.hardware, o.region, o.config, t.name, t.version, c.json, "
      "o.reason, o.evidence, a.code_hash, o.created_at, w.reason, w.created_at "
      "FROM dispatch_override o JOIN config c ON c.hash = o.config "
      "JOIN template t ON t.hash = c.template LEFT JOIN measurement m ON m.uuid = o.evidence "
      "LEFT JOIN artifact a ON a.hash = m.artifact LEFT JOIN dispatch_withdrawal w ON w.uuid = "
      "(SELECT x.uuid FROM dispatch_withdrawal x WHERE x.dispatch_override = o.uuid "
      "ORDER BY x.created_at, x.uuid LIMIT 1) "
      "WHERE (?1 = 1 OR w.uuid IS NULL) AND (?2 IS NULL OR o.workload = ?2) "
      "AND (?3 IS NULL OR o.hardware = ?3) "
      "ORDER BY CASE WHEN o.created_at < ?4 THEN o.created_at ELSE 0 END DESC, o.uuid");
  row.bind(all, workload, hardware, now() + kDayMs);
  std::vector<Override> found;
  while (row.step()) {
    Override o;
    o.uuid = row.text(0);
    o.workload = row.text(1);
    o.hardware = row.text(2);
    o.region = row.text(3);
    o.config = row.text(4);
    o.info = {row.text(5), row.integer(6), row.text(7)};
    o.reason = row.text(8);
    o.evidence = row.maybe_text(9);
    o.code_hash = row.text(10);
    o.created_at = row.integer(11);
    if (!row.is_null(12)) o.withdrawn = Withdrawal{row.text(12), row.integer(13)};
    found.push_back(std::move(o));
  }
  return found;
}

}  // namespace nimble::db
