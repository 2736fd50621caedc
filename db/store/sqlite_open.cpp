// Opening a SQLite file: where most user errors show, so each is told apart here.
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "db/store/filesystem.h"
#include "db/store/migrations.h"
#include "db/store/open.h"
#include "db/store/sqlite.h"
#include "vm/base/error.h"

namespace nimble::db {
namespace {

// Files up to this size are checked whole at each opening (some ms); larger ones by `check`.
constexpr int64_t kQuickCheckBytes = 4 << 20;

int64_t size_of_file(const std::string& path) {
  struct stat info;
  return stat(path.c_str(), &info) == 0 ? info.st_size : 0;
}

// A file: URI, with what would mean something in a URI escaped.
std::string uri_of(const std::string& path, const char* query) {
  std::string uri = "file:";
  for (char c : path) {
    if (c == '%' || c == '?' || c == '#')
      uri += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    else
      uri += c;
  }
  return uri + query;
}

// Switching to the log needs the only connection for a moment, and SQLite does not wait for that
// by itself; so this tries again within the busy time-out.
void use_write_ahead_log(SqliteConnection& db, int timeout_ms, bool durable) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout_ms);
  for (;;) {
    try {
      const std::string mode = db.text("PRAGMA journal_mode = WAL");
      if (mode != "wal")
        throw Error(Status::kUnsupported, db.name(),
                    fmt::format("its file system allows no write-ahead log (mode {})", mode),
                    "keep it on a local disk");
      break;
    } catch (const Error&) {
      const bool busy = sqlite3_errcode(db.raw()) == SQLITE_BUSY;
      if (!busy || std::chrono::steady_clock::now() >= deadline) throw;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }
  db.script(durable ? "PRAGMA synchronous = FULL" : "PRAGMA synchronous = NORMAL");
}

// No text or blob of an imported row may be larger.
constexpr int kLongestImportedValue = 256 << 20;

std::unique_ptr<SqliteConnection> connect(const std::string& path, const OpenOptions& options) {
  int flags = SQLITE_OPEN_URI | SQLITE_OPEN_EXRESCODE;
  const char* query = "";
  if (options.read_only) {
    flags |= SQLITE_OPEN_READONLY;
    // Reading a log-mode database needs its shared-memory file. Where none can be made and no log
    // is left, nobody writes either, and the file alone is the whole database.
    const bool log = size_of_file(path + "-wal") > 0;
    if (!log && access(folder_of(path).c_str(), W_OK) != 0) query = "?immutable=1";
  } else {
    flags |= SQLITE_OPEN_READWRITE | (options.create ? SQLITE_OPEN_CREATE : 0);
  }
  auto db = std::make_unique<SqliteConnection>(uri_of(path, query), flags, options.vfs, path);
  sqlite3_busy_timeout(db->raw(), options.busy_timeout_ms);
  sqlite3_db_config(db->raw(), SQLITE_DBCONFIG_DEFENSIVE, 1, nullptr);
  db->script("PRAGMA trusted_schema = OFF; PRAGMA foreign_keys = ON; PRAGMA cell_size_check = ON");
  return db;
}

std::unique_ptr<SqliteConnection> memory_copy(SqliteConnection& source) {
  auto copy = connect_to_memory(source.name());
  sqlite3_backup* backup = sqlite3_backup_init(copy->raw(), "main", source.raw(), "main");
  if (!backup) copy->fail(sqlite3_errcode(copy->raw()));
  sqlite3_backup_step(backup, -1);
  copy->check(sqlite3_backup_finish(backup));
  sqlite3_db_config(copy->raw(), SQLITE_DBCONFIG_ENABLE_TRIGGER, 0, nullptr);
  return copy;
}

}  // namespace

std::unique_ptr<Connection> open_sqlite(const std::string& path, const OpenOptions& options) {
  check_database_place(path, options.create, options.read_only);
  const bool existed = access(path.c_str(), F_OK) == 0;
  std::unique_ptr<SqliteConnection> db = connect(path, options);

  const FileKind kind = inspect_schema(*db);
  if (kind == FileKind::kEmpty && (options.read_only || (existed && !options.create)))
    throw Error(Status::kCorrupt, path, "is empty", "name a tuning database");
  if (kind == FileKind::kNimble) {
    const int64_t bytes = size_of_file(path);
    const bool log = size_of_file(path + "-wal") > 0;
    const int64_t due = db->integer("PRAGMA page_count") * db->integer("PRAGMA page_size");
    if (!log && bytes < due)
      throw Error(Status::kCorrupt, path, fmt::format("is cut short ({} of {} bytes)", bytes, due),
                  "restore a copy");
    if (bytes <= kQuickCheckBytes) db->check_pages(kRestoreDamaged);
  }
  if (options.read_only) {
    if (db->schema_version().value_or(0) < latest_schema_version())
      throw Error(
          Status::kIncompatible, path, "has an older schema and is opened read-only",
          "open it once for writing (nimble db check --migrate), which brings it up to date");
  } else {
    use_write_ahead_log(*db, options.busy_timeout_ms, options.durable);
    migrate(
        *db, latest_schema_version(),
        options.clock_ms ? options.clock_ms : [&db] { return db->clock_ms(); });
  }
  return db;
}

std::unique_ptr<Connection> open_sqlite_source(const std::string& path) {
  OpenOptions options;
  options.read_only = true;
  check_database_place(path, false, true);
  std::unique_ptr<SqliteConnection> source = connect(path, options);
  sqlite3_db_config(source->raw(), SQLITE_DBCONFIG_ENABLE_TRIGGER, 0, nullptr);
  sqlite3_db_config(source->raw(), SQLITE_DBCONFIG_ENABLE_VIEW, 0, nullptr);
  sqlite3_limit(source->raw(), SQLITE_LIMIT_LENGTH, kLongestImportedValue);
  if (inspect_schema(*source) == FileKind::kEmpty)
    throw Error(Status::kCorrupt, path, "is empty", "name a file that nimble db export wrote");
  const int version = source->schema_version().value_or(0);
  if (!has_expected_schema(*source, version))
    throw Error(Status::kCorrupt, path,
                fmt::format("its tables are not those of schema {}", version),
                "import only what nimble db export wrote");
  source->check_pages("export it again");
  if (version < latest_schema_version()) {
    source = memory_copy(*source);
    migrate(*source, latest_schema_version(), [] { return int64_t{0}; });
  }
  return source;
}

void finish_sqlite_export(const std::string& copy, const OpenOptions& options,
                          const std::string& name) {
  SqliteConnection db(copy, SQLITE_OPEN_READWRITE, options.vfs, name);
  db.script(
      "PRAGMA journal_mode = DELETE;"
      "UPDATE trial SET state = 'queued', lease_owner = NULL, lease_until = NULL "
      "WHERE state = 'claimed'");
  // What is of one database alone.
  bool removed = false;
  for (const char* table : {"job_trial", "job", "heartbeat", "event"}) {
    db.run(fmt::format("DELETE FROM {}", table));
    removed = removed || db.changes() > 0;
  }
  db.run("UPDATE event_counter SET last = 0");
  if (removed) db.run("VACUUM");
}

}  // namespace nimble::db
