#include "db/store/postgres/connection.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "db/store/hash.h"
#include "db/store/place.h"
#include "db/store/postgres/statement.h"
#include "vm/base/error.h"

namespace nimble::db {
namespace {

// One line of what the server says.
std::string one_line(const char* message) {
  std::string out;
  for (const char* c = message ? message : ""; *c; ++c) {
    const bool space = *c == '\n' || *c == ' ' || *c == '\t';
    if (!space || (!out.empty() && out.back() != ' ')) out += space ? ' ' : *c;
  }
  while (!out.empty() && out.back() == ' ') out.pop_back();
  return out;
}

// The Error that a code of SQLSTATE means to a user (PostgreSQL's manual, appendix A).
Error error_of(std::string_view state, const std::string& message, const std::string& place) {
  const std::string_view kind = state.substr(0, 2);
  if (kind == "23" || kind == "22" || state == "P0001")
    return Error(Status::kInvalidArgument, place, fmt::format("record refused ({})", message),
                 "times must be positive and finite, and every key must exist");
  if (state == "40001" || state == "40P01" || state == "55P03")
    return Error(Status::kExhausted, place, "another client holds the database",
                 "wait until it ends, then try again");
  if (state == "57014") return Error(Status::kCancelled, place, "the query was cancelled");
  if (state == "53100")
    return Error(Status::kExhausted, place, "the server's disk is full",
                 "free some space; nothing was changed");
  if (kind == "53" || kind == "54")
    return Error(Status::kExhausted, place, fmt::format("too much for the server ({})", message),
                 "try again later, or raise the server's limit");
  if (state == "25006")
    return Error(Status::kIo, place, "is opened read-only", "open it for writing");
  if (state == "42501")
    // Another try gives the same: not kIo.
    return Error(Status::kInvalidArgument, place,
                 fmt::format("your role may not do this ({})", message),
                 "ask the owner of the database for the role that does");
  if (state == "25P03")
    return Error(Status::kIo, place,
                 "the server ended the connection: it stood still within a transaction",
                 "try again; nothing was changed");
  if (kind == "08" || kind == "57")
    return Error(Status::kIo, place, fmt::format("the server ended the connection ({})", message),
                 "try again once it is up");
  if (kind == "XX")
    return Error(Status::kCorrupt, place, fmt::format("is damaged ({})", message),
                 "restore a copy");
  return Error(Status::kCorrupt, place, fmt::format("is not laid out as expected ({})", message),
               "run nimble db check, or restore a copy");
}

// Numbers of advisory locks that every nimble agrees on: "Nmbl", and the next.
constexpr int32_t kLockSpace = 0x4E6D626C;

// Speaks to the server over a connection of its own, so it may outlive ours.
class ServerCanceller final : public Canceller {
 public:
  explicit ServerCanceller(PGconn* db) : cancel_(PQgetCancel(db), &PQfreeCancel) {}
  void cancel() noexcept override {
    char message[256];
    if (cancel_) PQcancel(cancel_.get(), message, sizeof message);
  }

 private:
  const std::unique_ptr<PGcancel, decltype(&PQfreeCancel)> cancel_;  // never changes: thread safe
};

using Options = std::unique_ptr<PQconninfoOption, decltype(&PQconninfoFree)>;

std::string value_of(const PQconninfoOption* options, std::string_view keyword) {
  for (; options && options->keyword; ++options)
    if (keyword == options->keyword) return options->val ? options->val : "";
  return {};
}

Options parse(const std::string& url) {
  // What libpq says of a bad one may quote the password.
  Options options(PQconninfoParse(url.c_str(), nullptr), &PQconninfoFree);
  // A password with an unescaped @ or / is read as host, port or name, and would be told by every
  // message about them.
  const std::string host = value_of(options.get(), "host"), port = value_of(options.get(), "port");
  const bool strays = host.find('@', 1) != std::string::npos ||
                      value_of(options.get(), "dbname").find('@') != std::string::npos ||
                      port.find_first_not_of("0123456789,") != std::string::npos;
  if (!options || strays)
    throw Error(Status::kInvalidArgument, printable_place(url), "cannot be read as a URL",
                "write postgresql://USER@HOST:PORT/DATABASE, with % and two digits for what is "
                "special in a name, and the password into ~/.pgpass");
  return options;
}

// Whether each of the hosts, a list with commas, is this machine.
bool is_local(const std::string& hosts) {
  size_t begin = 0;
  for (;;) {
    const size_t end = std::min(hosts.find(',', begin), hosts.size());
    const std::string host = hosts.substr(begin, end - begin);
    const bool local = host.empty() || host.front() == '/' || host.front() == '@' ||
                       host == "localhost" || host == "127.0.0.1" || host == "::1";
    if (!local) return false;
    if (end == hosts.size()) return true;
    begin = end + 1;
  }
}

std::string or_environment(const std::string& value, const char* variable) {
  if (!value.empty()) return value;
  const char* set = std::getenv(variable);
  return set ? set : "";
}

}  // namespace

PostgresConnection::PostgresConnection(const std::string& url, int lock_timeout_ms, bool read_only,
                                       bool durable)
    : Connection(printable_place(url)) {
  const Options options = parse(url);
  // A service names its host in a file that is not read here.
  const bool service = !or_environment(value_of(options.get(), "service"), "PGSERVICE").empty();
  const bool local = !service &&
                     is_local(or_environment(value_of(options.get(), "host"), "PGHOST")) &&
                     is_local(or_environment(value_of(options.get(), "hostaddr"), "PGHOSTADDR"));
  const std::string mode = or_environment(value_of(options.get(), "sslmode"), "PGSSLMODE");
  if (!local && !mode.empty() && mode != "verify-full")
    throw Error(Status::kInvalidArgument, name(),
                fmt::format("sslmode={} does not verify a server elsewhere", mode),
                "use sslmode=verify-full, with sslrootcert=FILE for a certificate of your own");

  // A server that vanishes would hold up who waits for it for ever; what the URL says goes before.
  std::vector<const char*> keys = {"keepalives_idle", "keepalives_interval", "keepalives_count",
                                   "tcp_user_timeout"};
  std::vector<const char*> values = {"30", "10", "3", "60000"};
  if (!std::getenv("PGCONNECT_TIMEOUT")) {
    keys.push_back("connect_timeout");
    values.push_back("10");
  }
  keys.insert(keys.end(), {"dbname", "client_encoding", "fallback_application_name"});
  values.insert(values.end(), {url.c_str(), "UTF8", "nimble"});
  if (!local) {
    keys.push_back("sslmode");
    values.push_back("verify-full");
  }
  keys.push_back(nullptr);
  values.push_back(nullptr);
  db_ = PQconnectdbParams(keys.data(), values.data(), 1);
  std::unique_ptr<PGconn, decltype(&PQfinish)> closes(db_, &PQfinish);
  if (!db_ || PQstatus(db_) != CONNECTION_OK)
    throw Error(Status::kIo, name(),
                fmt::format("cannot be opened ({})", one_line(db_ ? PQerrorMessage(db_) : "")),
                local ? "check the server, the name and the password file (~/.pgpass)"
                      : "check the server, the name and the password file (~/.pgpass); a server "
                        "elsewhere must show a certificate that is verified "
                        "(sslmode=verify-full; sslrootcert=FILE names your own authority)");
  PQsetNoticeProcessor(
      db_, [](void*, const char*) {}, nullptr);
  // A client that stands still within a transaction (it was stopped, or its machine sleeps) would
  // hold up all others: the server ends it before those that wait give up.
  script(fmt::format(
      "SET search_path = nimble; SET lock_timeout = {}; "
      "SET idle_in_transaction_session_timeout = {}; "
      "SET default_transaction_read_only = {}; SET synchronous_commit = {}",
      lock_timeout_ms, lock_timeout_ms / 2, read_only ? "on" : "off", durable ? "on" : "off"));
  canceller_ = std::make_shared<ServerCanceller>(db_);
  closes.release();
}

PostgresConnection::~PostgresConnection() {
  drop_statements();
  PQfinish(db_);
}

std::unique_ptr<PreparedStatement> PostgresConnection::make(std::string_view sql, bool streaming) {
  return std::make_unique<PostgresStatement>(*this, sql, streaming);
}

void PostgresConnection::script(const std::string& sql) {
  const PgResult result(PQexec(db_, sql.c_str()), &PQclear);
  const ExecStatusType status = PQresultStatus(result.get());
  if (status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK && status != PGRES_EMPTY_QUERY)
    fail(result.get());
  note_changes(result.get());
}

void PostgresConnection::note_changes(const PGresult* result) {
  // The count is a text, empty for a statement that writes nothing.
  changes_ = std::strtoll(PQcmdTuples(const_cast<PGresult*>(result)), nullptr, 10);
}

void PostgresConnection::begin(int level, bool exclusive) {
  script(level == 0 ? "BEGIN" : fmt::format("SAVEPOINT level{}", level));
  // Held until the transaction ends.
  if (exclusive) script(fmt::format("SELECT pg_advisory_xact_lock({}, 0)", kLockSpace));
}

void PostgresConnection::begin_snapshot() {
  script("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY");
}

bool PostgresConnection::try_hold(const std::string& key) {
  // Of 31 bits of the key: two keys may meet there once in a blue moon; one is then refused.
  const auto number = static_cast<int32_t>(std::stoul(hash_of(key).substr(0, 8), nullptr, 16) >> 1);
  return integer(fmt::format("SELECT CAST(pg_try_advisory_lock({}, {}) AS int)", kLockSpace + 1,
                             number)) != 0;
}

void PostgresConnection::commit(int level) {
  if (level > 0) return script(fmt::format("RELEASE level{}", level));
  commit_after({});
}

std::string PostgresConnection::literal(const std::string& text) const {
  const std::unique_ptr<char, decltype(&PQfreemem)> quoted(
      PQescapeLiteral(db_, text.data(), text.size()), &PQfreemem);
  if (!quoted) fail(nullptr);
  return quoted.get();
}

void PostgresConnection::commit_after(const std::string& last) {
  const std::string sql = last.empty() ? "COMMIT" : last + "; COMMIT";
  const PgResult result(PQexec(db_, sql.c_str()), &PQclear);
  if (PQresultStatus(result.get()) != PGRES_COMMAND_OK) fail(result.get());
  // A transaction in which a statement failed is rolled back by COMMIT, without an error.
  if (std::strcmp(PQcmdStatus(const_cast<PGresult*>(result.get())), "COMMIT") != 0)
    throw Error(Status::kIo, name(), "the transaction was undone by an earlier failure",
                "mend that and try again");
}

void PostgresConnection::roll_back(int level) noexcept {
  char undo[64] = "ROLLBACK";
  if (level > 0)
    std::snprintf(undo, sizeof undo, "ROLLBACK TO level%d; RELEASE level%d", level, level);
  PQclear(PQexec(db_, undo));
}

bool PostgresConnection::in_transaction() const noexcept {
  const PGTransactionStatusType status = PQtransactionStatus(db_);
  return status == PQTRANS_INTRANS || status == PQTRANS_INERROR || status == PQTRANS_ACTIVE;
}

int64_t PostgresConnection::clock_ms() {
  return integer("SELECT CAST(floor(extract(epoch FROM clock_timestamp()) * 1000) AS bigint)");
}

std::optional<int> PostgresConnection::schema_version() {
  if (integer("SELECT CAST(to_regclass('nimble.migration') IS NOT NULL AS int)") == 0) {
    if (integer("SELECT count(*) FROM pg_namespace WHERE nspname = 'nimble'") == 0)
      return std::nullopt;
    throw Error(Status::kInvalidArgument, name(),
                "has a schema \"nimble\" that is not a tuning database",
                "name another database, or a new one");
  }
  return static_cast<int>(integer("SELECT max(version) FROM migration"));
}

void PostgresConnection::set_schema_version(int) {
  // The rows of `migration` tell it. What is noted here tells whether someone changed the tables.
  script(fmt::format("COMMENT ON SCHEMA nimble IS '{} {}'", PQserverVersion(db_) / 10000,
                     hash_of(schema_text())));
}

std::optional<std::string> PostgresConnection::noted_schema_hash() {
  const std::string note = text(
      "SELECT coalesce(obj_description(oid, 'pg_namespace'), '') FROM pg_namespace "
      "WHERE nspname = 'nimble'");
  // Another release of the server prints the same schema in other words: there nothing can be told.
  const std::string release = std::to_string(PQserverVersion(db_) / 10000) + " ";
  const size_t space = note.find(' ');
  if (space != std::string::npos && !note.starts_with(release)) return hash_of(schema_text());
  return note.substr(space == std::string::npos ? 0 : space + 1);
}

std::string PostgresConnection::schema_text() {
  std::string text;
  for (const char* query :
       {"SELECT CAST(table_name AS text), CAST(column_name AS text), "
        "data_type || coalesce(column_default, ''), CAST(is_nullable AS text) "
        "FROM information_schema.columns WHERE table_schema = 'nimble' "
        "ORDER BY table_name COLLATE \"C\", ordinal_position",
        "SELECT CAST(CAST(conrelid AS regclass) AS text), conname, CAST(contype AS text), "
        "pg_get_constraintdef(oid) FROM pg_constraint "
        "WHERE connamespace = CAST('nimble' AS regnamespace) ORDER BY 1, 2",
        "SELECT tablename, indexname, indexdef, '' FROM pg_indexes WHERE schemaname = 'nimble' "
        "ORDER BY 1, 2",
        "SELECT viewname, '', definition, '' FROM pg_views WHERE schemaname = 'nimble' ORDER BY 1",
        "SELECT CAST(CAST(tgrelid AS regclass) AS text), tgname, pg_get_triggerdef(t.oid), "
        "CAST(tgenabled AS text) "
        "FROM pg_trigger t JOIN pg_class c ON c.oid = tgrelid "
        "WHERE c.relnamespace = CAST('nimble' AS regnamespace) AND NOT tgisinternal ORDER BY 1, "
        "2",
        "SELECT proname, pg_get_functiondef(oid), '', '' FROM pg_proc "
        "WHERE pronamespace = CAST('nimble' AS regnamespace) ORDER BY 1"}) {
    Statement rows = prepare(query);
    while (rows.step()) {
      for (int column = 0; column < 4; ++column) text += rows.text(column) + '\x1f';
      text += '\n';
    }
  }
  return text;
}

void PostgresConnection::fail(const PGresult* result) const {
  if (PQstatus(db_) != CONNECTION_OK)
    throw Error(
        Status::kIo, name(),
        fmt::format("the connection to the server was lost ({})", one_line(PQerrorMessage(db_))),
        "try again once it is up");
  const char* state = result ? PQresultErrorField(result, PG_DIAG_SQLSTATE) : nullptr;
  const char* primary = result ? PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY) : nullptr;
  throw error_of(state ? state : "", one_line(primary ? primary : PQerrorMessage(db_)), name());
}

}  // namespace nimble::db
