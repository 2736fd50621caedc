// PostgreSQL behind db/store/sql.h, by libpq. A tuning database is the schema "nimble" of a
// database.
//
// Values travel in binary. The store's SQL has ?1, ?2 where PostgreSQL has $1, $2: the text is
// translated once, when it is prepared. Parameters have the types of what is bound: text, bigint,
// double precision, bytea.
#pragma once

#include <libpq-fe.h>

#include <string>

#include "db/store/sql.h"

namespace nimble::db {

class PostgresConnection final : public Connection {
 public:
  // Connects. `url` is libpq's: what it leaves out comes from the environment and from the password
  // file, as for psql. A server elsewhere than on this machine must prove who it is
  // (sslmode=verify-full): another mode is refused. Errors: kIo, kInvalidArgument.
  // `durable`: OpenOptions::durable.
  PostgresConnection(const std::string& url, int lock_timeout_ms, bool read_only,
                     bool durable = true);
  ~PostgresConnection() override;

  Engine engine() const override { return Engine::kPostgres; }
  void script(const std::string& sql) override;
  int64_t changes() const override { return changes_; }
  std::shared_ptr<Canceller> canceller() override { return canceller_; }
  void begin(int level, bool exclusive) override;
  void begin_snapshot() override;
  void commit(int level) override;
  void commit_after(const std::string& last) override;
  std::string literal(const std::string& text) const override;
  void roll_back(int level) noexcept override;
  bool in_transaction() const noexcept override;
  int64_t clock_ms() override;
  bool try_hold(const std::string& key) override;
  std::string_view skip_locked() const override { return " FOR UPDATE SKIP LOCKED"; }
  std::optional<int> schema_version() override;
  void set_schema_version(int version) override;
  std::string schema_text() override;
  std::optional<std::string> noted_schema_hash() override;
  void defer_foreign_keys() override { script("SET CONSTRAINTS ALL DEFERRED"); }
  std::vector<std::string> integrity_problems() override { return {}; }  // the server's own affair

  PGconn* raw() const { return db_; }
  void note_changes(const PGresult* result);
  // Throws what the result, or the connection where it is null, failed of.
  [[noreturn]] void fail(const PGresult* result) const;
  std::string next_name() { return "s" + std::to_string(++names_); }

 private:
  std::unique_ptr<PreparedStatement> make(std::string_view sql, bool streaming) override;

  PGconn* db_ = nullptr;
  std::shared_ptr<Canceller> canceller_;
  int64_t changes_ = 0;
  int64_t names_ = 0;
};

}  // namespace nimble::db
