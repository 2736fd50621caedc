// SQLite behind db/store/sql.h: a file, or a database in memory.
#pragma once

#include <sqlite3.h>

#include <string>

#include "db/store/sql.h"

namespace nimble::db {

// "Nmbl": marks a SQLite file as a tuning database of nimble.
inline constexpr int kApplicationId = 0x4E6D626C;

inline constexpr char kRestoreDamaged[] =
    "restore a copy, or save what is left: sqlite3 FILE .recover";

class SqliteConnection final : public Connection {
 public:
  // `flags` as of sqlite3_open_v2. `name` is what messages call the database.
  SqliteConnection(const std::string& uri, int flags, const std::string& vfs, std::string name);
  ~SqliteConnection() override;

  Engine engine() const override { return Engine::kSqlite; }
  void script(const std::string& sql) override;
  int64_t changes() const override { return sqlite3_changes64(db_); }
  std::shared_ptr<Canceller> canceller() override;
  void begin(int level, bool exclusive) override;
  void begin_snapshot() override { run("BEGIN"); }
  void commit(int level) override;
  void commit_after(const std::string& last) override;
  std::string literal(const std::string& text) const override;
  void roll_back(int level) noexcept override;
  bool in_transaction() const noexcept override { return !sqlite3_get_autocommit(db_); }
  int64_t clock_ms() override;
  // Files are of one machine, whose processes lock a file beside the database instead.
  bool try_hold(const std::string&) override { return true; }
  std::string_view skip_locked() const override { return ""; }  // there is one writer
  std::optional<int> schema_version() override;
  void set_schema_version(int version) override;
  std::string schema_text() override;
  std::optional<std::string> noted_schema_hash() override { return std::nullopt; }
  void defer_foreign_keys() override { run("PRAGMA defer_foreign_keys = ON"); }
  std::vector<std::string> integrity_problems() override;

  // SQLite's own look at the file's pages. Error(kCorrupt) with the first fault and `remedy`; a
  // look that ran out of memory, or could not read, finds no damage and says so.
  void check_pages(const std::string& remedy);
  sqlite3* raw() const { return db_; }
  [[noreturn]] void fail(int code) const;
  void check(int code) const {
    if (code != SQLITE_OK) fail(code);
  }

 private:
  std::unique_ptr<PreparedStatement> make(std::string_view sql, bool streaming) override;

  // Shared with whoever may cancel.
  class Interrupter;
  sqlite3* db_ = nullptr;
  std::shared_ptr<Interrupter> canceller_;
  sqlite3_stmt* roll_back_ = nullptr;  // prepared early: it is needed when there is no memory
};

// A database in memory that nothing else sees.
std::unique_ptr<SqliteConnection> connect_to_memory(std::string name = ":memory:");

}  // namespace nimble::db
