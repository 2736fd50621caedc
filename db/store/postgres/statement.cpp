#include "db/store/postgres/statement.h"

#include <bit>
#include <cstring>

#include "vm/base/error.h"

namespace nimble::db {
namespace {

// Types by number, as in the server's catalogue pg_type.
constexpr Oid kBool = 16, kBytea = 17, kName = 19, kInt8 = 20, kInt2 = 21, kInt4 = 23, kText = 25,
              kFloat4 = 700, kFloat8 = 701, kUnknown = 705, kVarchar = 1043;

template <class T>
std::string big_endian(T value) {
  std::string bytes(sizeof value, '\0');
  std::memcpy(bytes.data(), &value, sizeof value);
  if constexpr (std::endian::native == std::endian::little)
    bytes.assign(bytes.rbegin(), bytes.rend());
  return bytes;
}

template <class T>
T from_big_endian(std::string_view bytes) {
  char buffer[sizeof(T)];
  for (size_t i = 0; i < sizeof(T); ++i)
    buffer[std::endian::native == std::endian::little ? sizeof(T) - 1 - i : i] = bytes[i];
  return std::bit_cast<T>(buffer);
}

}  // namespace

std::string translate_parameters(std::string_view sql) {
  std::string out;
  int next = 0;
  char quote = 0;
  for (size_t i = 0; i < sql.size(); ++i) {
    const char c = sql[i];
    if (quote) {
      if (c == quote) quote = 0;  // a doubled one opens again at once
    } else if (c == '\'' || c == '"') {
      quote = c;
    } else if (c == '?') {
      out += '$';
      const bool numbered = i + 1 < sql.size() && sql[i + 1] >= '0' && sql[i + 1] <= '9';
      if (!numbered) out += std::to_string(++next);
      continue;
    }
    out += c;
  }
  return out;
}

PostgresStatement::~PostgresStatement() {
  reset();
}

PostgresStatement::Parameter& PostgresStatement::parameter(int index, Oid type) {
  if (parameters_.size() < static_cast<size_t>(index))
    parameters_.resize(static_cast<size_t>(index));
  Parameter& p = parameters_[static_cast<size_t>(index - 1)];
  p.type = type;
  p.null = false;
  return p;
}
void PostgresStatement::bind(int index, int64_t value) {
  parameter(index, kInt8).bytes = big_endian(value);
}
void PostgresStatement::bind(int index, double value) {
  parameter(index, kFloat8).bytes = big_endian(value);
}
void PostgresStatement::bind(int index, std::string_view value) {
  parameter(index, kText).bytes = value;
}
void PostgresStatement::bind(int index, std::span<const uint8_t> value) {
  parameter(index, kBytea).bytes.assign(value.begin(), value.end());
}
void PostgresStatement::bind_null(int index, ValueKind kind) {
  const Oid type = kind == ValueKind::kInteger ? kInt8
                   : kind == ValueKind::kReal  ? kFloat8
                   : kind == ValueKind::kText  ? kText
                   : kind == ValueKind::kBlob  ? kBytea
                                               : Oid{0};  // as the place where it stands wants
  parameter(index, type).null = true;
}

const std::string& PostgresStatement::prepared_name() {
  std::vector<Oid> types;
  for (const Parameter& p : parameters_) types.push_back(p.type);
  const auto [it, is_new] = names_.try_emplace(types);
  if (!is_new) return it->second;
  const std::string name = owner_.next_name();
  const PgResult made(PQprepare(owner_.raw(), name.c_str(), sql_.c_str(),
                                static_cast<int>(types.size()), types.data()),
                      &PQclear);
  if (PQresultStatus(made.get()) != PGRES_COMMAND_OK) {
    names_.erase(it);
    owner_.fail(made.get());
  }
  it->second = name;
  return it->second;
}

void PostgresStatement::send() {
  const std::string& name = prepared_name();
  std::vector<const char*> values;
  std::vector<int> lengths, formats(parameters_.size(), 1);
  for (const Parameter& p : parameters_) {
    values.push_back(p.null ? nullptr : p.bytes.data());
    lengths.push_back(static_cast<int>(p.bytes.size()));
  }
  const auto count = static_cast<int>(parameters_.size());
  sent_ = true;
  if (streaming_) {
    if (!PQsendQueryPrepared(owner_.raw(), name.c_str(), count, values.data(), lengths.data(),
                             formats.data(), 1) ||
        !PQsetSingleRowMode(owner_.raw()))
      owner_.fail(nullptr);
    return;
  }
  result_.reset(PQexecPrepared(owner_.raw(), name.c_str(), count, values.data(), lengths.data(),
                               formats.data(), 1));
  row_ = -1;
}

bool PostgresStatement::step() {
  if (!sent_) send();
  if (streaming_) {
    result_.reset(PQgetResult(owner_.raw()));
    row_ = 0;
    if (!result_) return false;
    if (PQresultStatus(result_.get()) == PGRES_SINGLE_TUPLE) return true;
    if (PQresultStatus(result_.get()) != PGRES_TUPLES_OK) owner_.fail(result_.get());
    drain();
    return false;
  }
  const ExecStatusType status = PQresultStatus(result_.get());
  if (status != PGRES_TUPLES_OK && status != PGRES_COMMAND_OK) {
    const PgResult failed = std::move(result_);
    result_ = PgResult(nullptr, &PQclear);
    owner_.fail(failed.get());
  }
  if (row_ < 0) owner_.note_changes(result_.get());
  return ++row_ < PQntuples(result_.get());
}

void PostgresStatement::drain() noexcept {
  while (PGresult* rest = PQgetResult(owner_.raw())) PQclear(rest);
}

void PostgresStatement::reset() noexcept {
  if (sent_ && streaming_ && result_) {
    // Told to stop rather than read to the end: the rest may be millions of rows.
    if (PQresultStatus(result_.get()) == PGRES_SINGLE_TUPLE) {
      char message[256];
      const std::unique_ptr<PGcancel, decltype(&PQfreeCancel)> cancel(PQgetCancel(owner_.raw()),
                                                                      &PQfreeCancel);
      if (cancel) PQcancel(cancel.get(), message, sizeof message);
    }
    drain();
  }
  result_.reset();
  sent_ = false;
  row_ = -1;
}

void PostgresStatement::clear() noexcept {
  reset();
  for (Parameter& p : parameters_) {
    p.null = true;
    p.bytes.clear();
  }
}

std::string_view PostgresStatement::bytes(int column) const {
  return {PQgetvalue(result_.get(), row_, column),
          static_cast<size_t>(PQgetlength(result_.get(), row_, column))};
}

void PostgresStatement::wrong_type(int column, const char* wanted) const {
  throw Error(Status::kInternal, owner_.name(),
              fmt::format("column {} has type {}, not {}, in: {}", column,
                          PQftype(result_.get(), column), wanted, sql_),
              "please report this");
}

ValueKind PostgresStatement::kind(int column) const {
  if (PQgetisnull(result_.get(), row_, column)) return ValueKind::kNull;
  switch (PQftype(result_.get(), column)) {
    case kBool:
    case kInt2:
    case kInt4:
    case kInt8:
      return ValueKind::kInteger;
    case kFloat4:
    case kFloat8:
      return ValueKind::kReal;
    case kText:
    case kVarchar:
    case kName:
    case kUnknown:
      return ValueKind::kText;
    case kBytea:
      return ValueKind::kBlob;
    default:
      wrong_type(column, "one that the store uses");
  }
}

int64_t PostgresStatement::integer(int column) const {
  if (PQgetisnull(result_.get(), row_, column)) return 0;
  switch (PQftype(result_.get(), column)) {
    case kBool:
      return bytes(column)[0] != 0;
    case kInt2:
      return from_big_endian<int16_t>(bytes(column));
    case kInt4:
      return from_big_endian<int32_t>(bytes(column));
    case kInt8:
      return from_big_endian<int64_t>(bytes(column));
    default:
      wrong_type(column, "an integer");
  }
}

double PostgresStatement::real(int column) const {
  if (PQgetisnull(result_.get(), row_, column)) return 0;
  switch (PQftype(result_.get(), column)) {
    case kFloat4:
      return static_cast<double>(from_big_endian<float>(bytes(column)));
    case kFloat8:
      return from_big_endian<double>(bytes(column));
    default:
      return static_cast<double>(integer(column));
  }
}

std::string PostgresStatement::text(int column) const {
  const ValueKind kind = this->kind(column);
  if (kind == ValueKind::kNull) return {};
  if (kind != ValueKind::kText) wrong_type(column, "text");
  return std::string(bytes(column));
}

std::span<const uint8_t> PostgresStatement::blob(int column) const {
  const ValueKind kind = this->kind(column);
  if (kind == ValueKind::kNull) return {};
  if (kind != ValueKind::kBlob) wrong_type(column, "bytes");
  const std::string_view view = bytes(column);
  return {reinterpret_cast<const uint8_t*>(view.data()), view.size()};
}

}  // namespace nimble::db
