// SQL as the store speaks it: a connection, statements on loan from its cache, transactions. The
// engines stand in sqlite.h and postgres/connection.h.
//
// A statement is one text for both engines. Its parameters are ?1, ?2, … or ? in order; what holds
// true or false is an integer; the few places where the engines differ are functions of Connection.
// Every failure becomes a nimble::Error that names the database.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "db/store/canceller.h"

namespace nimble::db {

enum class ValueKind { kNull, kInteger, kReal, kText, kBlob };

// A statement that an engine has prepared. Parameters count from 1, columns from 0.
class PreparedStatement {
 public:
  virtual ~PreparedStatement() = default;
  virtual void bind(int index, int64_t value) = 0;
  virtual void bind(int index, double value) = 0;
  virtual void bind(int index, std::string_view value) = 0;
  virtual void bind(int index, std::span<const uint8_t> value) = 0;
  // `kind` is what the parameter would be were it known: PostgreSQL asks for it.
  virtual void bind_null(int index, ValueKind kind) = 0;
  virtual bool step() = 0;            // true: a row is there
  virtual void reset() noexcept = 0;  // before the first row again; what is bound stays
  virtual void clear() noexcept = 0;  // reset, and nothing is bound
  virtual int columns() const = 0;
  virtual ValueKind kind(int column) const = 0;
  virtual int64_t integer(int column) const = 0;
  virtual double real(int column) const = 0;
  virtual std::string text(int column) const = 0;
  virtual std::span<const uint8_t> blob(int column) const = 0;  // until the next step
};

// A prepared statement on loan; goes back, cleared, at destruction.
class Statement {
 public:
  using Shelf = std::vector<std::unique_ptr<PreparedStatement>>;
  Statement(std::unique_ptr<PreparedStatement> prepared, Shelf& home)
      : prepared_(std::move(prepared)), home_(&home) {}
  Statement(Statement&&) noexcept = default;
  Statement& operator=(Statement&&) = delete;
  ~Statement();

  // Binds the arguments to parameters 1, 2, …; an empty optional binds NULL.
  template <class... Args>
  Statement& bind(const Args&... args) {
    int index = 0;
    (bind_at(++index, args), ...);
    return *this;
  }
  void bind_at(int index, int64_t value) { prepared_->bind(index, value); }
  void bind_at(int index, int value) { prepared_->bind(index, int64_t{value}); }
  void bind_at(int index, bool value) { prepared_->bind(index, int64_t{value}); }
  void bind_at(int index, double value) { prepared_->bind(index, value); }
  void bind_at(int index, std::string_view value) { prepared_->bind(index, value); }
  void bind_at(int index, const char* value) { bind_at(index, std::string_view(value)); }
  void bind_at(int index, const std::string& value) { bind_at(index, std::string_view(value)); }
  void bind_at(int index, std::span<const uint8_t> blob) { prepared_->bind(index, blob); }
  template <class T>
  void bind_at(int index, const std::optional<T>& value) {
    if (value)
      bind_at(index, *value);
    else
      prepared_->bind_null(index, kind_of(static_cast<const T*>(nullptr)));
  }
  void bind_null(int index, ValueKind kind) { prepared_->bind_null(index, kind); }
  // The value that `row` has there, of whatever kind.
  void bind_column(int index, const Statement& row, int column);

  bool step() { return prepared_->step(); }
  void run();  // steps to the end
  void reset() noexcept { prepared_->reset(); }

  int columns() const { return prepared_->columns(); }
  ValueKind kind(int column) const { return prepared_->kind(column); }
  bool is_null(int column) const { return prepared_->kind(column) == ValueKind::kNull; }
  int64_t integer(int column) const { return prepared_->integer(column); }
  double real(int column) const { return prepared_->real(column); }
  std::string text(int column) const { return prepared_->text(column); }  // "" if NULL
  std::span<const uint8_t> blob(int column) const { return prepared_->blob(column); }
  std::optional<double> maybe_real(int column) const;
  std::optional<std::string> maybe_text(int column) const;

 private:
  static ValueKind kind_of(const double*) { return ValueKind::kReal; }
  static ValueKind kind_of(const int64_t*) { return ValueKind::kInteger; }
  static ValueKind kind_of(const bool*) { return ValueKind::kInteger; }
  static ValueKind kind_of(const std::string*) { return ValueKind::kText; }
  static ValueKind kind_of(const std::string_view*) { return ValueKind::kText; }

  std::unique_ptr<PreparedStatement> prepared_;  // nothing: moved from
  Shelf* home_;
};

enum class Engine { kSqlite, kPostgres };

class Connection {
 public:
  virtual ~Connection() = default;
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  virtual Engine engine() const = 0;
  // What messages call the database; holds no password.
  const std::string& name() const { return name_; }

  Statement prepare(std::string_view sql);
  // The same for a table of any size: rows come one by one, and until the last has come the
  // connection takes no other statement.
  Statement prepare_streaming(std::string_view sql);
  template <class... Args>
  void run(std::string_view sql, const Args&... args) {
    prepare(sql).bind(args...).run();
  }
  int64_t integer(std::string_view sql);  // of the first row, 0 without one
  std::string text(std::string_view sql);
  virtual void script(const std::string& sql) = 0;  // several statements
  virtual int64_t changes() const = 0;              // rows that the last statement wrote

  // ---- transactions: level 0 is the transaction, others are savepoints in it -------------------
  // Waits for locks at the start and never in the middle where the engine has one writer. An
  // `exclusive` one excludes other exclusive ones: for what reads before it writes.
  virtual void begin(int level, bool exclusive) = 0;
  // For reading alone: all statements up to roll_back(0) see one state of the database.
  virtual void begin_snapshot() = 0;
  virtual void commit(int level) = 0;
  // Runs `last` (without parameters; see literal()) and commits the whole transaction. A server
  // gets both in one message: what `last` locks is held no longer than the commit takes.
  virtual void commit_after(const std::string& last) = 0;
  virtual std::string literal(const std::string& text) const = 0;  // as it stands in SQL, quoted
  virtual void roll_back(int level) noexcept = 0;                  // needs no memory
  // Whether a transaction is open. SQLite ends one by itself after some failures (a full disk).
  virtual bool in_transaction() const noexcept = 0;

  // Stops what the connection runs, from another thread; may outlive the connection.
  virtual std::shared_ptr<Canceller> canceller() = 0;

  // ---- where the engines differ ----------------------------------------------------------------
  // The time of day in ms since 1970 by the clock that all clients of the database share.
  virtual int64_t clock_ms() = 0;
  // Takes what `key` stands for until the connection ends, unless another connection has it.
  virtual bool try_hold(const std::string& key) = 0;
  // Behind a SELECT inside an UPDATE that claims rows: passes by rows that another claims just now.
  virtual std::string_view skip_locked() const = 0;
  // The schema's version as the database tells it; nothing if it is empty. Throws
  // Error(kInvalidArgument) for another program's database.
  virtual std::optional<int> schema_version() = 0;
  virtual void set_schema_version(int version) = 0;
  // Everything that is in the schema, in a fixed order; equal texts mean equal schemas.
  virtual std::string schema_text() = 0;
  // The hash of schema_text() as it was noted at the last migration, where the engine prints a
  // schema in words of its own; nothing where the migrations tell what it must be.
  virtual std::optional<std::string> noted_schema_hash() = 0;
  // Foreign keys count at the end of the transaction that is open.
  virtual void defer_foreign_keys() = 0;
  // What is damaged below the level of rows, one line each.
  virtual std::vector<std::string> integrity_problems() = 0;

 protected:
  explicit Connection(std::string name) : name_(std::move(name)) {}
  virtual std::unique_ptr<PreparedStatement> make(std::string_view sql, bool streaming) = 0;
  // Must be called before the engine's connection ends.
  void drop_statements() noexcept { idle_.clear(); }

 private:
  Statement lend(std::string_view sql, bool streaming);
  std::string name_;
  std::unordered_map<std::string, Statement::Shelf> idle_;  // by SQL text
};

// Reading of one state of the database; ends with the scope.
class Snapshot {
 public:
  explicit Snapshot(Connection& db) : db_(db) { db_.begin_snapshot(); }
  ~Snapshot() { db_.roll_back(0); }
  Snapshot(const Snapshot&) = delete;
  Snapshot& operator=(const Snapshot&) = delete;

 private:
  Connection& db_;
};

// A transaction that ends with the scope: rolled back unless committed.
class Transaction {
 public:
  Transaction(Connection& db, int& depth, bool exclusive);
  ~Transaction();
  Transaction(const Transaction&) = delete;
  Transaction& operator=(const Transaction&) = delete;
  void commit();
  void commit_after(const std::string& last);  // of the outermost alone; see Connection

 private:
  void check_open();
  Connection& db_;
  int& depth_;  // how many are open, this one included
  int level_;
  bool open_ = true;
};

}  // namespace nimble::db
