// Opening a database: where most user errors show, so each is told apart here.
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <thread>

#include "db/store/filesystem.h"
#include "db/store/migrations.h"
#include "db/store/sqlite_store.h"
#include "vm/base/error.h"

namespace nimble::db {
namespace {

int64_t system_clock_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

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
void use_write_ahead_log(Connection& db, int timeout_ms, bool durable) {
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

}  // namespace

std::unique_ptr<Connection> connect(const std::string& path, const OpenOptions& options) {
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
  auto db = std::make_unique<Connection>(uri_of(path, query), flags, options.vfs, path);
  sqlite3_busy_timeout(db->raw(), options.busy_timeout_ms);
  sqlite3_db_config(db->raw(), SQLITE_DBCONFIG_DEFENSIVE, 1, nullptr);
  db->script("PRAGMA trusted_schema = OFF; PRAGMA foreign_keys = ON; PRAGMA cell_size_check = ON");
  return db;
}

void require_time(double value, std::string_view what) {
  if (!(value > 0) || !std::isfinite(value))
    throw Error(Status::kInvalidArgument, std::string(what),
                fmt::format("{} is not a time: it must be positive and finite", value),
                "measure again; a clock that stands still measures nothing");
}

std::unique_ptr<Store> Store::open(const std::string& path, const OpenOptions& options) {
  return std::make_unique<SqliteStore>(path, options);
}

SqliteStore::SqliteStore(const std::string& path, const OpenOptions& options)
    : path_(path), options_(options) {
  if (!options_.clock_ms) options_.clock_ms = system_clock_ms;
  check_database_place(path, options.create, options.read_only);
  const bool existed = access(path.c_str(), F_OK) == 0;
  db_ = connect(path, options_);
  roll_back_.emplace(db_->prepare("ROLLBACK"));

  const FileKind kind = inspect_schema(*db_);
  if (kind == FileKind::kEmpty && (options.read_only || (existed && !options.create)))
    throw Error(Status::kCorrupt, path, "is empty", "name a tuning database");
  if (kind == FileKind::kNimble) {
    const int64_t bytes = size_of_file(path);
    const bool log = size_of_file(path + "-wal") > 0;
    const int64_t due = db_->integer("PRAGMA page_count") * db_->integer("PRAGMA page_size");
    if (!log && bytes < due)
      throw Error(Status::kCorrupt, path, fmt::format("is cut short ({} of {} bytes)", bytes, due),
                  "restore a copy");
    if (bytes <= kQuickCheckBytes) db_->check_pages(kRestoreDamaged);
  }
  if (options.read_only) {
    if (db_->integer("PRAGMA user_version") < latest_schema_version())
      throw Error(
          Status::kIncompatible, path, "has an older schema and is opened read-only",
          "open it once for writing (nimble db check --migrate), which brings it up to date");
  } else {
    use_write_ahead_log(*db_, options.busy_timeout_ms, options.durable);
    migrate(*db_, latest_schema_version(), options_.clock_ms);
  }
  identity_ = db_->text("SELECT uuid FROM identity");
  schema_version_ = db_->integer("PRAGMA user_version");
}

void SqliteStore::roll_back_now() noexcept {
  sqlite3_step(roll_back_->raw());
  sqlite3_reset(roll_back_->raw());
}

SqliteStore::Write::Write(SqliteStore& store) : store_(store), level_(store.write_depth_) {
  if (level_ == 0) {
    // What could not be undone when there was no memory at all.
    if (!sqlite3_get_autocommit(store_.db_->raw())) store_.roll_back_now();
    store_.db_->run("BEGIN IMMEDIATE");
  } else {
    store_.db_->run(fmt::format("SAVEPOINT level{}", level_));
  }
  ++store_.write_depth_;
}

SqliteStore::Write::~Write() {
  if (!open_) return;
  --store_.write_depth_;
  // SQLite ends the transaction itself after some failures (a full disk): nothing to undo then.
  if (sqlite3_get_autocommit(store_.db_->raw())) return;
  if (level_ == 0) {
    store_.roll_back_now();
    return;
  }
  char undo[64];
  std::snprintf(undo, sizeof undo, "ROLLBACK TO level%d; RELEASE level%d", level_, level_);
  sqlite3_exec(store_.db_->raw(), undo, nullptr, nullptr, nullptr);
}

void SqliteStore::Write::commit() {
  if (sqlite3_get_autocommit(store_.db_->raw()))
    throw Error(Status::kIo, store_.path_, "the transaction was undone by an earlier failure",
                "mend that and try again");
  if (level_ == 0)
    store_.db_->run("COMMIT");
  else
    store_.db_->run(fmt::format("RELEASE level{}", level_));
  open_ = false;
  --store_.write_depth_;
}

void SqliteStore::transaction(const std::function<void()>& body) {
  Write write(*this);
  body();
  write.commit();
}

}  // namespace nimble::db
