// Export and import: merging two databases.
//
// Every row has a key that means the same in every database (a content hash, a UUID, or a UUID
// derived from a unique key), so a merge is "insert what is missing" and its order does not matter.
// What may change in a row only moves forward, so there the row that went further wins: a finished
// trial over an open one, a campaign that consumed more, the larger miss count of a replica.
//
// A file to import is not trusted. It is opened read-only with views and triggers off; its schema
// must equal, word for word, the one that the migrations yield; every row's key is computed again
// from its content; and our own CHECKs, foreign keys and invariants judge it, all in one
// transaction. An older schema is first brought up to date in a copy in memory.
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "db/store/filesystem.h"
#include "db/store/hash.h"
#include "db/store/migrations.h"
#include "db/store/sqlite_store.h"
#include "db/store/tables.h"
#include "vm/base/error.h"
#include "vm/base/printable.h"

namespace nimble::db {
namespace {

// No text or blob of an imported row may be larger.
constexpr int kLongestImportedValue = 256 << 20;

bool same_file(const std::string& a, const std::string& b) {
  struct stat x, y;
  return stat(a.c_str(), &x) == 0 && stat(b.c_str(), &y) == 0 && x.st_dev == y.st_dev &&
         x.st_ino == y.st_ino;
}

std::unique_ptr<Connection> memory_copy(Connection& source) {
  auto copy = std::make_unique<Connection>(":memory:", SQLITE_OPEN_READWRITE | SQLITE_OPEN_MEMORY,
                                           "", source.name());
  sqlite3_backup* backup = sqlite3_backup_init(copy->raw(), "main", source.raw(), "main");
  if (!backup) copy->fail(sqlite3_errcode(copy->raw()));
  sqlite3_backup_step(backup, -1);
  copy->check(sqlite3_backup_finish(backup));
  sqlite3_db_config(copy->raw(), SQLITE_DBCONFIG_ENABLE_TRIGGER, 0, nullptr);
  return copy;
}

std::unique_ptr<Connection> open_for_import(const std::string& file) {
  OpenOptions options;
  options.read_only = true;
  check_database_place(file, false, true);
  std::unique_ptr<Connection> source = connect(file, options);
  sqlite3_db_config(source->raw(), SQLITE_DBCONFIG_ENABLE_TRIGGER, 0, nullptr);
  sqlite3_db_config(source->raw(), SQLITE_DBCONFIG_ENABLE_VIEW, 0, nullptr);
  sqlite3_limit(source->raw(), SQLITE_LIMIT_LENGTH, kLongestImportedValue);
  if (inspect_schema(*source) == FileKind::kEmpty)
    throw Error(Status::kCorrupt, file, "is empty", "name a file that nimble db export wrote");
  const auto version = static_cast<int>(source->integer("PRAGMA user_version"));
  if (schema_text(*source) != expected_schema_text(version))
    throw Error(Status::kCorrupt, file,
                fmt::format("its tables are not those of schema {}", version),
                "import only what nimble db export wrote");
  source->check_pages("export it again");
  if (version < latest_schema_version()) {
    source = memory_copy(*source);
    migrate(*source, latest_schema_version(), [] { return int64_t{0}; });
  }
  return source;
}

int column_count(const TableSpec& table) {
  return 1 + static_cast<int>(
                 std::count(table.columns, table.columns + std::strlen(table.columns), ','));
}

// Inserts the source's rows that are missing here; returns how many were.
int64_t insert_missing(Connection& into, Connection& from, const TableSpec& table) {
  const int columns = column_count(table);
  std::string marks = "?";
  for (int i = 1; i < columns; ++i) marks += ",?";
  // "ON CONFLICT … DO NOTHING" skips the same key only; "OR IGNORE" would skip refused rows too.
  Statement insert =
      into.prepare(fmt::format("INSERT INTO {} ({}) VALUES ({}) ON CONFLICT ({}) DO NOTHING",
                               table.name, table.columns, marks, table.key));
  Statement rows = from.prepare(fmt::format("SELECT {} FROM {}", table.columns, table.name));
  const bool is_trial = std::string_view(table.name) == "trial";
  int64_t added = 0;
  while (rows.step()) {
    table.validate(rows);
    for (int i = 0; i < columns; ++i) insert.bind_at(i + 1, sqlite3_column_value(rows.raw(), i));
    if (is_trial && rows.text(10) == "claimed") {  // a lease holds in its own database only
      insert.bind_at(11, "queued");
      insert.bind_at(13, std::nullopt);
      insert.bind_at(14, std::nullopt);
    }
    insert.run();
    added += into.changes();
    sqlite3_reset(insert.raw());
  }
  return added;
}

// Takes over what went further in the source; returns how many rows did.
int64_t advance(Connection& into, Connection& from) {
  int64_t updated = 0;
  Statement trials = from.prepare(
      "SELECT uuid, state, attempt, error_class, message, finished_at FROM trial "
      "WHERE state NOT IN ('queued', 'claimed')");
  while (trials.step()) {
    into.run(
        "UPDATE trial SET state = ?2, attempt = max(attempt, ?3), error_class = ?4, message = ?5, "
        "finished_at = ?6, lease_owner = NULL, lease_until = NULL "
        "WHERE uuid = ?1 AND state IN ('queued', 'claimed')",
        trials.text(0), trials.text(1), trials.integer(2), trials.text(3), trials.text(4),
        trials.integer(5));
    updated += into.changes();
  }
  Statement campaigns =
      from.prepare("SELECT uuid, budget_s, consumed_s, state, updated_at FROM campaign");
  while (campaigns.step()) {
    into.run(
        "UPDATE campaign SET budget_s = ?2, consumed_s = ?3, state = ?4, updated_at = ?5 "
        "WHERE uuid = ?1 AND consumed_s < ?3",
        campaigns.text(0), campaigns.real(1), campaigns.real(2), campaigns.text(3),
        campaigns.integer(4));
    updated += into.changes();
  }
  Statement misses =
      from.prepare("SELECT replica, workload, hardware, dims, count FROM dispatch_miss");
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

void SqliteStore::export_to(const std::string& file, bool overwrite) {
  struct stat info;
  const std::string folder = folder_of(file);
  if (stat(folder.c_str(), &info) != 0)
    throw Error(Status::kNotFound, file, fmt::format("the folder '{}' does not exist", folder),
                fmt::format("create it: mkdir -p '{}'", folder));
  if (stat(file.c_str(), &info) == 0) {
    if (same_file(file, path_))
      throw Error(Status::kInvalidArgument, file, "is the database itself", "name another file");
    if (!overwrite || !S_ISREG(info.st_mode))
      throw Error(Status::kInvalidArgument, file, "exists already",
                  "name another file, or give --force to replace a file");
  }
  const std::string temporary = fmt::format("{}.tmp-{}", file, getpid());
  struct Removes {
    const std::string& path;
    ~Removes() { unlink(path.c_str()); }
  } removes{temporary};  // nothing is left to remove once it has its name
  try {
    db_->run("VACUUM INTO ?", temporary);
    {
      Connection copy(temporary, SQLITE_OPEN_READWRITE, options_.vfs, file);
      copy.script(
          "PRAGMA journal_mode = DELETE;"
          "UPDATE trial SET state = 'queued', lease_owner = NULL, lease_until = NULL "
          "WHERE state = 'claimed'");
    }
    sync_to_disk(temporary);
    if (std::rename(temporary.c_str(), file.c_str()) != 0)
      throw Error(Status::kIo, file, std::strerror(errno), "check the permissions of the folder");
    sync_to_disk(folder);
  } catch (const Error& error) {
    throw Error(error.status(), file, error.problem(), error.remedy());
  }
}

ImportReport SqliteStore::import_from(const std::string& file) {
  if (same_file(file, path_))
    throw Error(Status::kInvalidArgument, file, "is this database itself", "name another file");
  std::unique_ptr<Connection> source = open_for_import(file);
  ImportReport report;
  report.origin = source->text("SELECT uuid FROM identity");
  if (!is_uuid(report.origin)) throw Error(Status::kCorrupt, file, "has no identity");
  try {
    Write write(*this);
    // A table may come before its parent: foreign keys count at the end.
    db_->run("PRAGMA defer_foreign_keys = ON");
    for (const TableSpec& table : exchanged_tables())
      report.rows_added += insert_missing(*db_, *source, table);
    report.rows_updated = advance(*db_, *source);
    for (const Invariant& invariant : invariants()) {
      Statement offender = db_->prepare(invariant.query);
      if (offender.step())
        throw Error(Status::kCorrupt, file,
                    fmt::format("{} ({})", invariant.meaning, printable(offender.text(0))),
                    "export it again with nimble db export");
    }
    db_->run(
        "INSERT INTO import_batch (file_hash, origin, schema_version, rows_added, imported_at) "
        "VALUES (?,?,?,?,?) ON CONFLICT (file_hash) DO NOTHING",
        hash_of_file(file), report.origin, source->integer("PRAGMA user_version"),
        report.rows_added, now());
    write.commit();
  } catch (const Error& error) {
    // Every refusal is about the file, unless it is about room or locks.
    if (error.status() == Status::kExhausted || error.status() == Status::kIo) throw;
    const bool placed = error.place() != path_ && error.place() != file;
    throw Error(error.status(), file,
                fmt::format("not imported: {}{}{}", placed ? error.place() : "", placed ? ": " : "",
                            error.problem()),
                "import only what nimble db export wrote");
  }
  return report;
}

}  // namespace nimble::db
