#include "db/store/sqlite.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <mutex>

#include "vm/base/error.h"

namespace nimble::db {
namespace {

// The Error that a result code of SQLite means to a user.
Error error_of(int extended, const std::string& message, const std::string& place) {
  switch (extended & 0xff) {
    case SQLITE_FULL:
      return Error(Status::kExhausted, place, "the disk is full",
                   "free some space; nothing was changed");
    case SQLITE_READONLY:
    case SQLITE_PERM:
    case SQLITE_AUTH:
      return Error(Status::kIo, place, "is read-only", "make the file and its folder writable");
    case SQLITE_CANTOPEN:
      return Error(Status::kIo, place, "cannot be opened",
                   "check that the file and its folder are readable and writable");
    case SQLITE_NOTADB:
      return Error(Status::kCorrupt, place, "is not a database",
                   "name another file, or move this one away");
    case SQLITE_CORRUPT:
      return Error(Status::kCorrupt, place, fmt::format("is damaged ({})", message),
                   kRestoreDamaged);
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return Error(Status::kExhausted, place, "another process holds the database",
                   "wait until it ends, then try again");
    case SQLITE_INTERRUPT:
      return Error(Status::kCancelled, place, "the query was cancelled");
    case SQLITE_NOMEM:
    case SQLITE_TOOBIG:
      return Error(Status::kExhausted, place, fmt::format("too large for memory ({})", message));
    case SQLITE_IOERR:
      return Error(Status::kIo, place, fmt::format("input/output error ({})", message),
                   "check the disk; nothing was changed");
    case SQLITE_CONSTRAINT:
    case SQLITE_MISMATCH:
      return Error(Status::kInvalidArgument, place, fmt::format("record refused ({})", message),
                   "times must be positive and finite, and every key must exist");
    default:
      return Error(Status::kCorrupt, place,
                   fmt::format("is not laid out as expected ({})", message),
                   "run nimble db check, or restore a copy");
  }
}

class SqliteStatement final : public PreparedStatement {
 public:
  SqliteStatement(SqliteConnection& owner, sqlite3_stmt* stmt) : owner_(owner), stmt_(stmt) {}
  ~SqliteStatement() override { sqlite3_finalize(stmt_); }
  SqliteStatement(const SqliteStatement&) = delete;
  SqliteStatement& operator=(const SqliteStatement&) = delete;

  void bind(int index, int64_t value) override {
    owner_.check(sqlite3_bind_int64(stmt_, index, value));
  }
  void bind(int index, double value) override {
    owner_.check(sqlite3_bind_double(stmt_, index, value));
  }
  void bind(int index, std::string_view value) override {
    // A null pointer would bind NULL: an empty view may hold one.
    owner_.check(sqlite3_bind_text64(stmt_, index, value.data() ? value.data() : "", value.size(),
                                     SQLITE_TRANSIENT, SQLITE_UTF8));
  }
  void bind(int index, std::span<const uint8_t> blob) override {
    if (blob.empty())
      owner_.check(sqlite3_bind_zeroblob(stmt_, index, 0));
    else
      owner_.check(sqlite3_bind_blob64(stmt_, index, blob.data(), blob.size(), SQLITE_TRANSIENT));
  }
  void bind_null(int index, ValueKind) override { owner_.check(sqlite3_bind_null(stmt_, index)); }

  bool step() override {
    const int code = sqlite3_step(stmt_);
    if (code == SQLITE_ROW) return true;
    if (code == SQLITE_DONE) return false;
    owner_.fail(code);
  }
  void reset() noexcept override { sqlite3_reset(stmt_); }
  void clear() noexcept override {
    sqlite3_reset(stmt_);
    sqlite3_clear_bindings(stmt_);
  }

  int columns() const override { return sqlite3_column_count(stmt_); }
  ValueKind kind(int column) const override {
    switch (sqlite3_column_type(stmt_, column)) {
      case SQLITE_INTEGER:
        return ValueKind::kInteger;
      case SQLITE_FLOAT:
        return ValueKind::kReal;
      case SQLITE_TEXT:
        return ValueKind::kText;
      case SQLITE_BLOB:
        return ValueKind::kBlob;
      default:
        return ValueKind::kNull;
    }
  }
  int64_t integer(int column) const override { return sqlite3_column_int64(stmt_, column); }
  double real(int column) const override { return sqlite3_column_double(stmt_, column); }
  std::string text(int column) const override {
    const bool null = kind(column) == ValueKind::kNull;  // asked first: the next call may convert
    const auto* data = reinterpret_cast<const char*>(sqlite3_column_text(stmt_, column));
    if (!data && !null) owner_.fail(SQLITE_NOMEM);
    return data ? std::string(data, static_cast<size_t>(sqlite3_column_bytes(stmt_, column)))
                : std::string();
  }
  std::span<const uint8_t> blob(int column) const override {
    const auto* data = static_cast<const uint8_t*>(sqlite3_column_blob(stmt_, column));
    return {data, data ? static_cast<size_t>(sqlite3_column_bytes(stmt_, column)) : 0};
  }

 private:
  SqliteConnection& owner_;
  sqlite3_stmt* stmt_;
};

}  // namespace

class SqliteConnection::Interrupter final : public Canceller {
 public:
  explicit Interrupter(sqlite3* db) : db_(db) {}
  void cancel() noexcept override {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (db_) sqlite3_interrupt(db_);
  }
  void forget() noexcept {
    const std::lock_guard<std::mutex> lock(mutex_);
    db_ = nullptr;
  }

 private:
  std::mutex mutex_;
  sqlite3* db_;
};

std::shared_ptr<Canceller> SqliteConnection::canceller() {
  return canceller_;
}

SqliteConnection::SqliteConnection(const std::string& uri, int flags, const std::string& vfs,
                                   std::string name)
    : Connection(std::move(name)) {
  const int code = sqlite3_open_v2(uri.c_str(), &db_, flags, vfs.empty() ? nullptr : vfs.c_str());
  std::unique_ptr<sqlite3, int (*)(sqlite3*)> closes(db_, sqlite3_close_v2);
  if (code != SQLITE_OK)
    throw error_of(db_ ? sqlite3_extended_errcode(db_) : code,
                   db_ ? sqlite3_errmsg(db_) : sqlite3_errstr(code), this->name());
  sqlite3_extended_result_codes(db_, 1);
  canceller_ = std::make_shared<Interrupter>(db_);
  check(sqlite3_prepare_v3(db_, "ROLLBACK", -1, SQLITE_PREPARE_PERSISTENT, &roll_back_, nullptr));
  closes.release();
}

SqliteConnection::~SqliteConnection() {
  canceller_->forget();
  drop_statements();
  sqlite3_finalize(roll_back_);
  sqlite3_close_v2(db_);
}

std::unique_ptr<SqliteConnection> connect_to_memory(std::string name) {
  return std::make_unique<SqliteConnection>(":memory:", SQLITE_OPEN_READWRITE | SQLITE_OPEN_MEMORY,
                                            "", std::move(name));
}

std::unique_ptr<PreparedStatement> SqliteConnection::make(std::string_view sql, bool) {
  sqlite3_stmt* raw = nullptr;
  check(sqlite3_prepare_v3(db_, sql.data(), static_cast<int>(sql.size()), SQLITE_PREPARE_PERSISTENT,
                           &raw, nullptr));
  std::unique_ptr<sqlite3_stmt, int (*)(sqlite3_stmt*)> guard(raw, sqlite3_finalize);
  auto statement = std::make_unique<SqliteStatement>(*this, raw);
  guard.release();
  return statement;
}

void SqliteConnection::script(const std::string& sql) {
  check(sqlite3_exec(db_, sql.c_str(), nullptr, nullptr, nullptr));
}

void SqliteConnection::begin(int level, bool) {
  run(level == 0 ? "BEGIN IMMEDIATE" : fmt::format("SAVEPOINT level{}", level));
}

void SqliteConnection::commit_after(const std::string& last) {
  script(last);
  commit(0);
}

std::string SqliteConnection::literal(const std::string& text) const {
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("''") : std::string(1, c);
  return out + "'";
}

void SqliteConnection::commit(int level) {
  run(level == 0 ? "COMMIT" : fmt::format("RELEASE level{}", level));
}

void SqliteConnection::roll_back(int level) noexcept {
  if (level == 0) {
    sqlite3_step(roll_back_);
    sqlite3_reset(roll_back_);
    return;
  }
  char undo[64];
  std::snprintf(undo, sizeof undo, "ROLLBACK TO level%d; RELEASE level%d", level, level);
  sqlite3_exec(db_, undo, nullptr, nullptr, nullptr);
}

int64_t SqliteConnection::clock_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

std::optional<int> SqliteConnection::schema_version() {
  const int64_t application = integer("PRAGMA application_id");
  const int64_t version = integer("PRAGMA user_version");
  if (application == kApplicationId) return static_cast<int>(version);
  if (application == 0 && version == 0 && integer("SELECT count(*) FROM sqlite_schema") == 0)
    return std::nullopt;
  throw Error(Status::kInvalidArgument, name(), "is a database of another program",
              "name a tuning database of nimble, or a new file");
}

void SqliteConnection::set_schema_version(int version) {
  script(
      fmt::format("PRAGMA application_id = {}; PRAGMA user_version = {}", kApplicationId, version));
}

// All but what SQLite makes for itself: its names alone prove nothing in a file of unknown origin.
std::string SqliteConnection::schema_text() {
  std::string text;
  Statement rows = prepare(
      "SELECT type, name, tbl_name, coalesce(sql, '') FROM sqlite_schema WHERE NOT "
      "((type = 'index' AND sql IS NULL) OR "
      "(type = 'table' AND name IN ('sqlite_sequence', 'sqlite_stat1', 'sqlite_stat4'))) "
      "ORDER BY type, name");
  while (rows.step()) {
    for (int column = 0; column < 4; ++column) text += rows.text(column) + '\x1f';
    text += '\n';
  }
  return text;
}

void SqliteConnection::check_pages(const std::string& remedy) {
  std::string verdict = text("PRAGMA quick_check(1)");
  if (verdict == "ok") return;
  // "*** in database main ***", then the fault.
  if (verdict.starts_with("***"))
    verdict.erase(0, std::min(verdict.find('\n'), verdict.size() - 1) + 1);
  // A page that it could not get is reported as a fault, with the code of what went wrong.
  constexpr std::string_view kCode = "error code=";
  if (const size_t at = verdict.find(kCode); at != std::string::npos) {
    const int code = std::atoi(verdict.c_str() + at + kCode.size());
    if ((code & 0xff) != SQLITE_CORRUPT) throw error_of(code, "checking its pages", name());
  }
  if (verdict.empty()) throw error_of(SQLITE_NOMEM, "checking its pages", name());
  throw Error(Status::kCorrupt, name(),
              fmt::format("is damaged ({})", verdict.substr(0, verdict.find('\n'))), remedy);
}

std::vector<std::string> SqliteConnection::integrity_problems() {
  std::vector<std::string> problems;
  Statement pages = prepare("PRAGMA integrity_check(100)");
  while (pages.step())
    if (pages.text(0) != "ok") problems.push_back("integrity: " + pages.text(0));
  Statement keys = prepare("PRAGMA foreign_key_check");
  while (keys.step())
    problems.push_back(fmt::format("{}: row {} refers to a row of {} that does not exist",
                                   keys.text(0), keys.integer(1), keys.text(2)));
  return problems;
}

void SqliteConnection::fail(int code) const {
  const int extended = sqlite3_extended_errcode(db_);
  const bool current = (extended & 0xff) == (code & 0xff);
  // A CHECK that failed is quoted as it stands in the schema, over several lines.
  std::string message;
  for (const char* c = current ? sqlite3_errmsg(db_) : sqlite3_errstr(code); *c; ++c) {
    const bool space = *c == '\n' || *c == ' ';
    if (!space || message.empty() || message.back() != ' ') message += space ? ' ' : *c;
  }
  throw error_of(current ? extended : code, message, name());
}

}  // namespace nimble::db
