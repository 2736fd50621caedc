// A thin RAII layer over the C API of SQLite: a connection, cached statements, transactions.
// Every failure becomes a nimble::Error that names the database file.
#pragma once

#include <sqlite3.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

namespace nimble::db {

class Connection;

inline constexpr char kRestoreDamaged[] =
    "restore a copy, or save what is left: sqlite3 FILE .recover";

// A prepared statement on loan from its connection's cache; goes back, reset, at destruction.
class Statement {
 public:
  Statement(Connection& owner, sqlite3_stmt* stmt, bool cached);
  Statement(Statement&& other) noexcept;
  Statement& operator=(Statement&&) = delete;
  ~Statement();

  // Binds the arguments to parameters 1, 2, …; an empty optional binds NULL.
  template <class... Args>
  Statement& bind(const Args&... args) {
    int index = 0;
    (bind_at(++index, args), ...);
    return *this;
  }
  void bind_at(int index, int64_t value);
  void bind_at(int index, double value);
  void bind_at(int index, std::string_view value);
  void bind_at(int index, std::span<const uint8_t> blob);
  void bind_at(int index, std::nullopt_t);
  void bind_at(int index, const sqlite3_value* value);
  void bind_at(int index, bool value) { bind_at(index, int64_t{value}); }
  void bind_at(int index, int value) { bind_at(index, int64_t{value}); }
  void bind_at(int index, const char* value) { bind_at(index, std::string_view(value)); }
  void bind_at(int index, const std::string& value) { bind_at(index, std::string_view(value)); }
  template <class T>
  void bind_at(int index, const std::optional<T>& value) {
    if (value)
      bind_at(index, *value);
    else
      bind_at(index, std::nullopt);
  }

  bool step();  // true: a row is there
  void run();   // steps to the end

  bool is_null(int column) const;
  int64_t integer(int column) const;
  double real(int column) const;
  std::string text(int column) const;
  std::span<const uint8_t> blob(int column) const;
  std::optional<double> maybe_real(int column) const;
  std::optional<std::string> maybe_text(int column) const;
  sqlite3_stmt* raw() const { return stmt_; }

 private:
  Connection* owner_;
  sqlite3_stmt* stmt_;
  bool cached_;
};

class Connection {
 public:
  // `flags` as of sqlite3_open_v2. `name` is what messages call the database.
  Connection(const std::string& uri, int flags, const std::string& vfs, std::string name);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  Statement prepare(std::string_view sql);
  template <class... Args>
  void run(std::string_view sql, const Args&... args) {
    prepare(sql).bind(args...).run();
  }
  // Runs a script of several statements.
  void script(const std::string& sql);
  int64_t integer(std::string_view sql);
  std::string text(std::string_view sql);
  // SQLite's own look at the file's pages. Error(kCorrupt) with the first fault and `remedy`; a
  // look that ran out of memory, or could not read, finds no damage and says so.
  void check_pages(const std::string& remedy);
  int64_t changes() const { return sqlite3_changes64(db_); }
  sqlite3* raw() const { return db_; }
  const std::string& name() const { return name_; }

  [[noreturn]] void fail(int code) const;
  void check(int code) const {
    if (code != SQLITE_OK) fail(code);
  }

 private:
  friend class Statement;
  sqlite3* db_ = nullptr;
  std::string name_;
  std::unordered_map<std::string, std::vector<sqlite3_stmt*>> idle_;  // by SQL text
};

// One write transaction: BEGIN IMMEDIATE, so that waiting for the lock happens at the start and
// never in the middle. Rolls back unless committed.
class WriteTransaction {
 public:
  explicit WriteTransaction(Connection& db) : db_(db) { db_.run("BEGIN IMMEDIATE"); }
  ~WriteTransaction();
  void commit() {
    db_.run("COMMIT");
    open_ = false;
  }

 private:
  Connection& db_;
  bool open_ = true;
};

}  // namespace nimble::db
