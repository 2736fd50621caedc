// Export and import: merging two databases.
//
// Every row has a key that means the same in every database (a content hash, a UUID, or a UUID
// derived from a unique key), so a merge is "insert what is missing" and its order does not matter.
// What may change in a row only moves forward, so there the row that went further wins: a finished
// trial over an open one, a campaign that consumed more, the larger miss count of a replica. What
// is of one database alone (jobs, leases, heartbeats, requests that wait for an answer, the feed of
// changes) is not carried: importing makes nobody do anything. A campaign that runs here is nobody
// else's to end or to charge.
//
// What is imported is not trusted. A file is opened read-only with views and triggers off; its
// schema must equal, word for word, the one that the migrations yield; every row's key is computed
// again from its content; and our own CHECKs, foreign keys and invariants judge it, all in one
// transaction. A measurement of the future is refused, too: it would stay the newest of its
// configuration whatever is measured until then. An older schema is first brought up to date in a
// copy in memory.
#include <algorithm>
#include <cstring>
#include <limits>
#include <set>

#include "db/store/filesystem.h"
#include "db/store/hash.h"
#include "db/store/open.h"
#include "db/store/place.h"
#include "db/store/sql_store.h"
#include "db/store/tables.h"
#include "db/store/topics.h"
#include "vm/base/error.h"
#include "vm/base/printable.h"
#include "vm/base/stage.h"

namespace nimble::db {
namespace {

int column_count(const TableSpec& table) {
  return 1 + static_cast<int>(
                 std::count(table.columns, table.columns + std::strlen(table.columns), ','));
}

// Campaigns that run in this database, or are paused: see Queue::is_at_home().
std::set<std::string> running_here(Connection& db) {
  std::set<std::string> all;
  Statement row = db.prepare(
      "SELECT uuid FROM campaign c WHERE state IN ('running', 'paused') AND EXISTS "
      "(SELECT 1 FROM event e WHERE e.campaign = c.uuid AND e.kind IN ('campaign', 'control'))");
  while (row.step()) all.insert(row.text(0));
  return all;
}

// Rows that break an invariant, of each.
std::vector<std::set<std::string>> offenders(Connection& db) {
  std::vector<std::set<std::string>> all;
  for (const Invariant& invariant : invariants()) {
    all.emplace_back();
    Statement row = db.prepare_streaming(invariant.query);
    while (row.step()) all.back().insert(row.text(0));
  }
  return all;
}

constexpr int kCreatedAtOfMeasurement = 12;  // column of its TableSpec

// Measurements that came from behind the latest time that can be, or not; and the first of them.
struct FromTheFuture {
  int64_t latest;
  int64_t count = 0;
  Uuid first;
  int64_t first_at = 0;
  void look_at(const Statement& measurement) {
    const int64_t at = measurement.integer(kCreatedAtOfMeasurement);
    if (at <= latest) return;
    if (count++ == 0) first = measurement.text(0), first_at = at;
  }
};

// Inserts the source's rows that are missing here; returns how many were.
int64_t insert_missing(Connection& into, Connection& from, const TableSpec& table,
                       const std::set<std::string>& running, FromTheFuture& future) {
  const int columns = column_count(table);
  std::string marks = "?";
  for (int i = 1; i < columns; ++i) marks += ",?";
  // "ON CONFLICT … DO NOTHING" skips the same key only; "OR IGNORE" would skip refused rows too.
  Statement insert =
      into.prepare(fmt::format("INSERT INTO {} ({}) VALUES ({}) ON CONFLICT ({}) DO NOTHING",
                               table.name, table.columns, marks, table.key));
  Statement rows =
      from.prepare_streaming(fmt::format("SELECT {} FROM {}{}", table.columns, table.name,
                                         std::string_view(table.name) == "control"
                                             ? " WHERE uuid IN (SELECT control FROM control_answer)"
                                             : ""));
  const bool is_trial = std::string_view(table.name) == "trial";
  const std::string_view name = table.name;
  const bool may_be_gone = name == "samples" || name == "twin_samples";
  int64_t added = 0;
  while (rows.step()) {
    table.validate(rows);
    if (name == "consumption" && running.contains(rows.text(0))) continue;
    // What was removed on purpose stays away.
    if (may_be_gone && into.prepare("SELECT 1 FROM tombstone WHERE table_name = ? AND row_key = ?")
                           .bind(name, rows.text(0))
                           .step())
      continue;
    for (int i = 0; i < columns; ++i) insert.bind_column(i + 1, rows, i);
    if (is_trial && rows.text(10) == "claimed") {  // a lease holds in its own database only
      insert.bind_at(11, "queued");
      insert.bind_null(13, ValueKind::kText);
      insert.bind_null(14, ValueKind::kInteger);
    }
    insert.run();
    if (name == "measurement" && into.changes() > 0) future.look_at(rows);
    added += into.changes();
    insert.reset();
  }
  return added;
}

// Takes over what went further in the source; returns how many rows did.
int64_t advance(Connection& into, Connection& from, const std::set<std::string>& running) {
  int64_t updated = 0;
  Statement trials = from.prepare_streaming(
      "SELECT uuid, state, attempt, error_class, message, finished_at, median_ns, measured_on "
      "FROM trial WHERE state NOT IN ('queued', 'claimed')");
  while (trials.step()) {
    into.run(
        "UPDATE trial SET state = ?2, attempt = CASE WHEN attempt < ?3 THEN ?3 ELSE attempt "
        "END, error_class = ?4, message = ?5, finished_at = ?6, median_ns = ?7, measured_on = ?8, "
        "lease_owner = NULL, lease_until = NULL "
        "WHERE uuid = ?1 AND state IN ('queued', 'claimed')",
        trials.text(0), trials.text(1), trials.integer(2), trials.text(3), trials.text(4),
        trials.integer(5), trials.maybe_real(6), trials.maybe_text(7));
    updated += into.changes();
  }
  Statement campaigns =
      from.prepare_streaming("SELECT uuid, budget_s, consumed_s, state, updated_at FROM campaign");
  while (campaigns.step()) {
    if (running.contains(campaigns.text(0))) continue;
    into.run(
        "UPDATE campaign SET budget_s = ?2, consumed_s = ?3, state = ?4, updated_at = ?5 "
        "WHERE uuid = ?1 AND consumed_s < ?3",
        campaigns.text(0), campaigns.real(1), campaigns.real(2), campaigns.text(3),
        campaigns.integer(4));
    updated += into.changes();
  }
  Statement consumed =
      from.prepare_streaming("SELECT campaign, machine, consumed_s FROM consumption");
  while (consumed.step()) {
    if (running.contains(consumed.text(0))) continue;
    into.run(
        "UPDATE consumption SET consumed_s = ?3 WHERE campaign = ?1 AND machine = ?2 "
        "AND consumed_s < ?3",
        consumed.text(0), consumed.text(1), consumed.real(2));
    updated += into.changes();
  }
  Statement counts =
      from.prepare_streaming("SELECT replica, workload, hardware, dims, count FROM shape_count");
  while (counts.step()) {
    into.run(
        "UPDATE shape_count SET count = ?5 WHERE replica = ?1 AND workload = ?2 "
        "AND hardware = ?3 AND dims = ?4 AND count < ?5",
        counts.text(0), counts.text(1), counts.text(2), counts.text(3), counts.integer(4));
    updated += into.changes();
  }
  Statement misses =
      from.prepare_streaming("SELECT replica, workload, hardware, dims, count FROM dispatch_miss");
  while (misses.step()) {
    into.run(
        "UPDATE dispatch_miss SET count = ?5 WHERE replica = ?1 AND workload = ?2 "
        "AND hardware = ?3 AND dims = ?4 AND count < ?5",
        misses.text(0), misses.text(1), misses.text(2), misses.text(3), misses.integer(4));
    updated += into.changes();
  }
  return updated;
}

}  // namespace

void SqlStore::export_to(const std::string& file, bool overwrite) {
  const bool is_file = db_->engine() == Engine::kSqlite;
  check_export_place(file, is_file ? path() : std::string(), overwrite);
  const TemporaryFile copy(file);
  try {
    if (is_file) {
      db_->run("VACUUM INTO ?", copy.path());
    } else {
      OpenOptions options = options_;
      options.create = true;
      options.read_only = false;
      SqlStore into(open_sqlite(copy.path(), options), options);
      const Snapshot snapshot(*db_);
      Write write = into.begin_write();
      into.add_records_of(*db_, std::numeric_limits<int64_t>::max());  // a copy of what is there
      write.commit();
    }
    finish_sqlite_export(copy.path(), options_, file);
    copy.rename_to(file);
  } catch (const Error& error) {
    throw Error(error.status(), file, error.problem(), error.remedy());
  }
}

ImportReport SqlStore::add_records_of(Connection& source, int64_t latest) {
  ImportReport report;
  // A table may come before its parent: foreign keys count at the end.
  db_->defer_foreign_keys();
  const std::set<std::string> running = running_here(*db_);
  FromTheFuture future{latest};
  for (const TableSpec& table : exchanged_tables())
    report.rows_added += insert_missing(*db_, source, table, running, future);
  if (future.count > 0)
    throw Error(Status::kInvalidArgument, source.name(),
                fmt::format("{} {} from the future, the first {} ({} hours ahead)", future.count,
                            future.count == 1 ? "measurement is" : "measurements are", future.first,
                            (future.first_at - (latest - kDayMs)) / 3'600'000),
                "look whether this machine's clock is right; if it is, the other's was not");
  report.rows_updated = advance(*db_, source, running);
  return report;
}

ImportReport SqlStore::import_from(const std::string& place) {
  const Stage stage("merge");
  const bool is_file = !names_server(place);
  if (is_file && db_->engine() == Engine::kSqlite && same_file(place, path()))
    throw Error(Status::kInvalidArgument, place, "is this database itself", "name another file");
  std::unique_ptr<Connection> source =
      is_file ? open_sqlite_source(place) : open_postgres_source(place);
  const std::string name = source->name();
  const std::string origin = source->text("SELECT uuid FROM identity");
  if (!is_uuid(origin)) throw Error(Status::kCorrupt, name, "has no identity");
  if (origin == identity_ && !is_file)
    throw Error(Status::kInvalidArgument, name, "is this database itself", "name another one");
  const int64_t version = source->schema_version().value_or(0);
  ImportReport report;
  try {
    const Snapshot snapshot(*source);
    Write write = begin_write();
    // What is wrong here already is no fault of the source's; in a shared database anybody who
    // measures may have written it, and nobody can take it back.
    const std::vector<std::set<std::string>> known = offenders(*db_);
    report = add_records_of(*source, now() + kDayMs);
    // A measurement and its samples come both from the source, or are both of this database.
    find_wrong_samples(*source, [&](const std::string& problem) {
      throw Error(Status::kCorrupt, name, problem, "export it again with nimble db export");
    });
    const std::vector<std::set<std::string>> all = offenders(*db_);
    for (size_t i = 0; i < all.size(); ++i)
      for (const std::string& offender : all[i])
        if (!known[i].contains(offender))
          throw Error(Status::kCorrupt, name,
                      fmt::format("{} ({})", invariants()[i].meaning, printable(offender)),
                      "export it again with nimble db export");
    // A server has no bytes to take the hash of: each import from one is a batch.
    db_->run(
        "INSERT INTO import_batch (file_hash, origin, schema_version, rows_added, imported_at) "
        "VALUES (?,?,?,?,?) ON CONFLICT (file_hash) DO NOTHING",
        is_file ? hash_of_file(place) : hash_of(new_uuid()), origin, version, report.rows_added,
        now());
    if (report.rows_added + report.rows_updated > 0)
      note_event(topic::kImport, {}, origin,
                 fmt::format(R"({{"rows":{}}})", report.rows_added + report.rows_updated));
    write.commit();
  } catch (const Error& error) {
    // Every refusal is about the source, unless it is about room or locks.
    if (error.status() == Status::kExhausted || error.status() == Status::kIo) throw;
    const bool placed = error.place() != path() && error.place() != name;
    throw Error(
        error.status(), name,
        fmt::format("not imported: {}{}{}", placed ? error.place() : "", placed ? ": " : "",
                    error.problem()),
        error.remedy().empty() ? "import only what nimble db export wrote" : error.remedy());
  }
  report.origin = origin;
  return report;
}

}  // namespace nimble::db
