// Prepared statements of PostgreSQL. Private to db/store/postgres/connection.cpp.
#pragma once

#include <map>

#include "db/store/postgres/connection.h"

namespace nimble::db {

using PgResult = std::unique_ptr<PGresult, decltype(&PQclear)>;

// ?1 and ? as $1: outside of quotes, and never both in one statement.
std::string translate_parameters(std::string_view sql);

class PostgresStatement final : public PreparedStatement {
 public:
  PostgresStatement(PostgresConnection& owner, std::string_view sql, bool streaming)
      : owner_(owner), sql_(translate_parameters(sql)), streaming_(streaming) {}
  ~PostgresStatement() override;
  PostgresStatement(const PostgresStatement&) = delete;
  PostgresStatement& operator=(const PostgresStatement&) = delete;

  void bind(int index, int64_t value) override;
  void bind(int index, double value) override;
  void bind(int index, std::string_view value) override;
  void bind(int index, std::span<const uint8_t> value) override;
  void bind_null(int index, ValueKind kind) override;
  bool step() override;
  void reset() noexcept override;
  void clear() noexcept override;
  int columns() const override { return PQnfields(result_.get()); }
  ValueKind kind(int column) const override;
  int64_t integer(int column) const override;
  double real(int column) const override;
  std::string text(int column) const override;
  std::span<const uint8_t> blob(int column) const override;

 private:
  struct Parameter {
    Oid type = 0;
    bool null = true;
    std::string bytes;
  };
  Parameter& parameter(int index, Oid type);
  // The name under which the server knows this text with the types that are bound.
  const std::string& prepared_name();
  void send();
  void drain() noexcept;  // what a stream has left
  std::string_view bytes(int column) const;
  [[noreturn]] void wrong_type(int column, const char* wanted) const;

  PostgresConnection& owner_;
  std::string sql_;
  bool streaming_, sent_ = false;
  std::vector<Parameter> parameters_;
  std::map<std::vector<Oid>, std::string> names_;
  PgResult result_{nullptr, &PQclear};
  int row_ = -1;
};

}  // namespace nimble::db
