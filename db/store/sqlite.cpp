#include "db/store/sqlite.h"

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <new>

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

}  // namespace

Statement::Statement(Connection& owner, sqlite3_stmt* stmt, bool cached)
    : owner_(&owner), stmt_(stmt), cached_(cached) {}

Statement::Statement(Statement&& other) noexcept
    : owner_(other.owner_), stmt_(std::exchange(other.stmt_, nullptr)), cached_(other.cached_) {}

Statement::~Statement() {
  if (!stmt_) return;
  if (!cached_) {
    sqlite3_finalize(stmt_);
    return;
  }
  sqlite3_reset(stmt_);
  sqlite3_clear_bindings(stmt_);
  try {
    owner_->idle_[sqlite3_sql(stmt_)].push_back(stmt_);
  } catch (const std::bad_alloc&) {
    sqlite3_finalize(stmt_);  // the next one is made anew
  }
}

void Statement::bind_at(int index, int64_t value) {
  owner_->check(sqlite3_bind_int64(stmt_, index, value));
}
void Statement::bind_at(int index, double value) {
  owner_->check(sqlite3_bind_double(stmt_, index, value));
}
void Statement::bind_at(int index, std::string_view value) {
  // A null pointer would bind NULL: an empty view may hold one.
  owner_->check(sqlite3_bind_text64(stmt_, index, value.data() ? value.data() : "", value.size(),
                                    SQLITE_TRANSIENT, SQLITE_UTF8));
}
void Statement::bind_at(int index, std::span<const uint8_t> blob) {
  if (blob.empty())
    owner_->check(sqlite3_bind_zeroblob(stmt_, index, 0));
  else
    owner_->check(sqlite3_bind_blob64(stmt_, index, blob.data(), blob.size(), SQLITE_TRANSIENT));
}
void Statement::bind_at(int index, std::nullopt_t) {
  owner_->check(sqlite3_bind_null(stmt_, index));
}
void Statement::bind_at(int index, const sqlite3_value* value) {
  owner_->check(sqlite3_bind_value(stmt_, index, value));
}

bool Statement::step() {
  const int code = sqlite3_step(stmt_);
  if (code == SQLITE_ROW) return true;
  if (code == SQLITE_DONE) return false;
  owner_->fail(code);
}

void Statement::run() {
  while (step()) {
  }
}

bool Statement::is_null(int c) const {
  return sqlite3_column_type(stmt_, c) == SQLITE_NULL;
}
int64_t Statement::integer(int c) const {
  return sqlite3_column_int64(stmt_, c);
}
double Statement::real(int c) const {
  return sqlite3_column_double(stmt_, c);
}
std::string Statement::text(int c) const {
  const bool null = is_null(c);  // asked first: the next call may convert
  const auto* data = reinterpret_cast<const char*>(sqlite3_column_text(stmt_, c));
  if (!data && !null) owner_->fail(SQLITE_NOMEM);
  return data ? std::string(data, static_cast<size_t>(sqlite3_column_bytes(stmt_, c)))
              : std::string();
}
std::span<const uint8_t> Statement::blob(int c) const {
  const auto* data = static_cast<const uint8_t*>(sqlite3_column_blob(stmt_, c));
  return {data, data ? static_cast<size_t>(sqlite3_column_bytes(stmt_, c)) : 0};
}
std::optional<double> Statement::maybe_real(int c) const {
  return is_null(c) ? std::nullopt : std::optional(real(c));
}
std::optional<std::string> Statement::maybe_text(int c) const {
  return is_null(c) ? std::nullopt : std::optional(text(c));
}

Connection::Connection(const std::string& uri, int flags, const std::string& vfs, std::string name)
    : name_(std::move(name)) {
  const int code = sqlite3_open_v2(uri.c_str(), &db_, flags, vfs.empty() ? nullptr : vfs.c_str());
  if (code != SQLITE_OK) {
    const std::unique_ptr<sqlite3, int (*)(sqlite3*)> closes(db_, sqlite3_close_v2);
    throw error_of(db_ ? sqlite3_extended_errcode(db_) : code,
                   db_ ? sqlite3_errmsg(db_) : sqlite3_errstr(code), name_);
  }
  sqlite3_extended_result_codes(db_, 1);
}

Connection::~Connection() {
  for (auto& [sql, statements] : idle_)
    for (sqlite3_stmt* statement : statements) sqlite3_finalize(statement);
  sqlite3_close_v2(db_);
}

Statement Connection::prepare(std::string_view sql) {
  auto found = idle_.find(std::string(sql));
  if (found != idle_.end() && !found->second.empty()) {
    sqlite3_stmt* statement = found->second.back();
    found->second.pop_back();
    return Statement(*this, statement, true);
  }
  sqlite3_stmt* statement = nullptr;
  const int code = sqlite3_prepare_v3(db_, sql.data(), static_cast<int>(sql.size()),
                                      SQLITE_PREPARE_PERSISTENT, &statement, nullptr);
  if (code != SQLITE_OK) fail(code);
  return Statement(*this, statement, true);
}

void Connection::script(const std::string& sql) {
  check(sqlite3_exec(db_, sql.c_str(), nullptr, nullptr, nullptr));
}

int64_t Connection::integer(std::string_view sql) {
  Statement statement = prepare(sql);
  return statement.step() ? statement.integer(0) : 0;
}

void Connection::check_pages(const std::string& remedy) {
  std::string verdict = text("PRAGMA quick_check(1)");
  if (verdict == "ok") return;
  // "*** in database main ***", then the fault.
  if (verdict.starts_with("***"))
    verdict.erase(0, std::min(verdict.find('\n'), verdict.size() - 1) + 1);
  // A page that it could not get is reported as a fault, with the code of what went wrong.
  constexpr std::string_view kCode = "error code=";
  if (const size_t at = verdict.find(kCode); at != std::string::npos) {
    const int code = std::atoi(verdict.c_str() + at + kCode.size());
    if ((code & 0xff) != SQLITE_CORRUPT) throw error_of(code, "checking its pages", name_);
  }
  if (verdict.empty()) throw error_of(SQLITE_NOMEM, "checking its pages", name_);
  throw Error(Status::kCorrupt, name_,
              fmt::format("is damaged ({})", verdict.substr(0, verdict.find('\n'))), remedy);
}

std::string Connection::text(std::string_view sql) {
  Statement statement = prepare(sql);
  return statement.step() ? statement.text(0) : std::string();
}

void Connection::fail(int code) const {
  const int extended = sqlite3_extended_errcode(db_);
  const bool current = (extended & 0xff) == (code & 0xff);
  // A CHECK that failed is quoted as it stands in the schema, over several lines.
  std::string message;
  for (const char* c = current ? sqlite3_errmsg(db_) : sqlite3_errstr(code); *c; ++c) {
    const bool space = *c == '\n' || *c == ' ';
    if (!space || message.empty() || message.back() != ' ') message += space ? ' ' : *c;
  }
  throw error_of(current ? extended : code, message, name_);
}

WriteTransaction::~WriteTransaction() {
  // SQLite rolls some failures back by itself (a full disk); then there is nothing left to undo.
  if (open_ && !sqlite3_get_autocommit(db_.raw()))
    sqlite3_exec(db_.raw(), "ROLLBACK", nullptr, nullptr, nullptr);
}

}  // namespace nimble::db
