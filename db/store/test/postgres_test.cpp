// What is peculiar to a database on a server. All that both engines do is in the tests of
// StoreTest.
#ifdef NIMBLE_POSTGRES
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <iterator>
#include <thread>

#include "db/store/hash.h"
#include "db/store/migrations.h"
#include "db/store/postgres/connection.h"
#include "db/store/sqlite.h"
#include "db/store/test/fixture.h"

namespace nimble::db {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

std::vector<std::string> lines_of(Connection& db, const std::string& sql) {
  std::vector<std::string> lines;
  Statement rows = db.prepare(sql);
  while (rows.step()) lines.push_back(rows.text(0));
  return lines;
}

// Tables, columns, keys, references and indices in words that both engines can be put into.
std::vector<std::string> layout_of(SqliteConnection& db) {
  std::vector<std::string> lines;
  const auto columns_of = [&](const std::string& index) {
    return fmt::format("{}", fmt::join(lines_of(db, fmt::format("SELECT name FROM pragma_index_info"
                                                                "('{}') ORDER BY seqno",
                                                                index)),
                                       ","));
  };
  for (const std::string& view : lines_of(db, "SELECT name FROM sqlite_schema WHERE type = 'view'"))
    for (const std::string& column :
         lines_of(db, fmt::format("SELECT name FROM pragma_table_info('{}')", view)))
      lines.push_back(fmt::format("view {}.{}", view, column));
  for (const std::string& table : lines_of(
           db, "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite%'")) {
    Statement column = db.prepare(
        fmt::format("SELECT name, CASE type WHEN 'TEXT' THEN 'text' WHEN 'INTEGER' THEN 'bigint' "
                    "WHEN 'REAL' THEN 'double precision' WHEN 'BLOB' THEN 'bytea' ELSE type END, "
                    "\"notnull\" OR pk > 0 FROM pragma_table_info('{}')",
                    table));
    while (column.step())
      lines.push_back(fmt::format("column {}.{} {}{}", table, column.text(0), column.text(1),
                                  column.integer(2) ? " not null" : ""));
    lines.push_back(fmt::format(
        "key {}({})", table,
        fmt::join(lines_of(db, fmt::format("SELECT name FROM pragma_table_info('{}') WHERE pk > 0 "
                                           "ORDER BY pk",
                                           table)),
                  ",")));
    Statement index =
        db.prepare(fmt::format("SELECT name, origin, partial FROM pragma_index_list('{}')", table));
    while (index.step()) {
      if (index.text(1) == "pk") continue;
      lines.push_back(fmt::format("{} {}({}){}", index.text(1) == "u" ? "unique" : "index", table,
                                  columns_of(index.text(0)), index.integer(2) ? " partial" : ""));
    }
    Statement reference = db.prepare(fmt::format(
        "SELECT \"from\", \"table\", \"to\" FROM pragma_foreign_key_list('{}')", table));
    while (reference.step())
      lines.push_back(fmt::format("reference {}.{} to {}.{}", table, reference.text(0),
                                  reference.text(1), reference.text(2)));
  }
  std::sort(lines.begin(), lines.end());
  return lines;
}

std::vector<std::string> layout_of_server(Connection& db) {
  std::vector<std::string> lines;
  for (const char* sql :
       {"SELECT CASE t.table_type WHEN 'VIEW' THEN 'view ' || c.table_name || '.' || c.column_name "
        "ELSE 'column ' || c.table_name || '.' || c.column_name || ' ' || c.data_type || "
        "CASE c.is_nullable WHEN 'NO' THEN ' not null' ELSE '' END END "
        "FROM information_schema.columns c JOIN information_schema.tables t "
        "ON t.table_schema = c.table_schema AND t.table_name = c.table_name "
        "WHERE c.table_schema = 'nimble'",
        "SELECT CASE contype WHEN 'p' THEN 'key ' ELSE 'unique ' END || c.relname || '(' || "
        "(SELECT string_agg(a.attname, ',' ORDER BY k.place) "
        " FROM unnest(conkey) WITH ORDINALITY AS k(number, place) "
        " JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = k.number) || ')' "
        "FROM pg_constraint n JOIN pg_class c ON c.oid = n.conrelid "
        "WHERE n.connamespace = CAST('nimble' AS regnamespace) AND contype IN ('p', 'u')",
        "SELECT 'reference ' || c.relname || '.' || a.attname || ' to ' || p.relname || '.' || "
        "b.attname FROM pg_constraint n JOIN pg_class c ON c.oid = n.conrelid "
        "JOIN pg_class p ON p.oid = n.confrelid "
        "JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = n.conkey[1] "
        "JOIN pg_attribute b ON b.attrelid = p.oid AND b.attnum = n.confkey[1] "
        "WHERE n.connamespace = CAST('nimble' AS regnamespace) AND contype = 'f'",
        "SELECT 'index ' || t.relname || '(' || (SELECT string_agg(replace("
        "pg_get_indexdef(i.indexrelid, n, true), '\"', ''), ',' ORDER BY n) FROM "
        "generate_series(1, i.indnatts) AS n) || ')' || "
        "CASE WHEN i.indpred IS NULL THEN '' ELSE ' partial' END "
        "FROM pg_index i JOIN pg_class t ON t.oid = i.indrelid "
        "WHERE t.relnamespace = CAST('nimble' AS regnamespace) AND NOT i.indisunique"}) {
    const std::vector<std::string> some = lines_of(db, sql);
    lines.insert(lines.end(), some.begin(), some.end());
  }
  std::sort(lines.begin(), lines.end());
  return lines;
}

TEST_F(PostgresTest, BothSchemasHaveTheSameLayout) {
  { open(); }
  const auto file = connect_to_memory();
  migrate(*file, latest_schema_version(), [] { return int64_t{1}; });
  const auto on_server = connection();
  const std::vector<std::string> expected = layout_of(*file);
  ASSERT_GT(expected.size(), 200u);
  const std::vector<std::string> actual = layout_of_server(*on_server);
  std::vector<std::string> only_file, only_server;
  std::set_difference(expected.begin(), expected.end(), actual.begin(), actual.end(),
                      std::back_inserter(only_file));
  std::set_difference(actual.begin(), actual.end(), expected.begin(), expected.end(),
                      std::back_inserter(only_server));
  EXPECT_THAT(only_file, IsEmpty());
  EXPECT_THAT(only_server, IsEmpty());
}

TEST_F(PostgresTest, IsBroughtUpToDateOnlyOnRequest) {
  const std::string url = place();
  {
    const auto old = connection();
    migrate(*old, 6, [] { return int64_t{5}; });
    old->run("INSERT INTO template (hash, name, version, parameters) VALUES (?,?,?,?)",
             std::string(32, 'a'), "dense", 1, "");
  }
  for (const bool read_only : {false, true}) {
    options.read_only = read_only;
    const Error error = error_of([&] { open(); });
    EXPECT_EQ(error.status(), Status::kIncompatible);
    EXPECT_THAT(error.what(), AllOf(HasSubstr("has schema 6, older than this program's"),
                                    HasSubstr("nimble db check --migrate")));
  }
  options.read_only = false;
  options.migrate_shared = true;
  auto store = open();
  EXPECT_EQ(store->schema_version(), latest_schema_version());
  const CheckReport report = store->check();
  EXPECT_EQ(report.problems.size(), 1u)
      << "the template's hash is none: " << testing::PrintToString(report.problems);
  World world(*store);
  world.tried(*store, 8, 64, 100);
  options.migrate_shared = false;
  EXPECT_NO_THROW(open());
}

TEST_F(PostgresTest, AProgramOlderThanTheSchemaSaysSo) {
  { open(); }
  connection()->run("INSERT INTO migration (version, checksum, applied_at) VALUES (99, 'x', 0)");
  const Error error = error_of([&] { open(); });
  EXPECT_EQ(error.status(), Status::kIncompatible);
  EXPECT_THAT(error.what(), AllOf(HasSubstr("has schema 99, newer than this program's"),
                                  HasSubstr("use the nimble that wrote it, or a newer one")));
}

TEST_F(PostgresTest, ChangedTablesAreFound) {
  auto store = open();
  EXPECT_TRUE(store->check().sound()) << testing::PrintToString(store->check().problems);
  for (const char* change :
       {"ALTER TABLE trial DISABLE TRIGGER trial_is_final", "DROP INDEX trial_queue",
        "ALTER TABLE samples ADD COLUMN more bigint",
        "CREATE OR REPLACE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS "
        "'BEGIN RETURN NEW; END'"}) {
    const auto raw = connection();
    raw->begin(0, false);
    raw->script(change);
    EXPECT_FALSE(has_expected_schema(*raw, latest_schema_version())) << change;
    raw->roll_back(0);
    EXPECT_TRUE(has_expected_schema(*raw, latest_schema_version()));
  }
}

TEST_F(PostgresTest, FactsCannotBeChangedByAnyone) {
  { World world(*open()); }
  const auto raw = connection();
  for (const char* sql : {"UPDATE hardware SET isa = 'x'", "DELETE FROM workload",
                          "UPDATE migration SET version = 9", "UPDATE campaign SET consumed_s = -1",
                          "UPDATE campaign SET seed = 8", "DELETE FROM campaign"})
    EXPECT_EQ(error_of([&] { raw->script(sql); }).status(), Status::kInvalidArgument) << sql;
}

TEST_F(PostgresTest, ReadOnlyRefusesWritesAndMakesNothing) {
  options.read_only = true;
  EXPECT_EQ(error_of([&] { open(); }).status(), Status::kNotFound);
  options.read_only = false;
  { open(); }
  options.read_only = true;
  auto store = open();
  EXPECT_EQ(error_of([&] { store->put(Template{"t", 1, ""}); }).status(), Status::kIo);
}

TEST_F(PostgresTest, LockedForTooLong) {
  auto store = open();
  World world(*store);
  const Uuid a = store->create_table(world.draft(*store, 8));
  options.busy_timeout_ms = 1;
  auto hasty = open();
  const auto other = connection();
  other->begin(0, true);
  const Error error = error_of([&] { hasty->activate(a, "tuned"); });
  EXPECT_EQ(error.status(), Status::kExhausted);
  EXPECT_THAT(error.what(), HasSubstr("another client holds the database"));
  other->roll_back(0);
  hasty->activate(a, "tuned");
}

// It was stopped, or its machine sleeps: the server ends it before those who wait give up.
TEST_F(PostgresTest, WhoStandsStillWithinATransactionHoldsNobodyUp) {
  auto store = open();
  World world(*store);
  const Uuid a = store->create_table(world.draft(*store, 8));
  options.busy_timeout_ms = 1000;
  auto still = open();
  const Error error = error_of([&] {
    still->transaction([&] {
      still->activate(a, "half");
      store->activate(a, "whole");  // waits until the other is ended
      still->put(Template{"other", 1, ""});
    });
  });
  EXPECT_EQ(error.status(), Status::kIo) << error.what();
  EXPECT_EQ(store->history(world.workload_hash, world.hardware_hash)[0].reason, "whole");
}

TEST_F(PostgresTest, ALostConnectionIsSaidAndNothingIsHalfWritten) {
  auto store = open();
  World world(*store);
  const Error error = error_of([&] {
    store->transaction([&] {
      store->put(Template{"half", 1, ""});
      connection()->run(
          "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
          "WHERE datname = current_database() AND pid <> pg_backend_pid()");
      store->put(Template{"other", 1, ""});
    });
  });
  EXPECT_EQ(error.status(), Status::kIo);
  EXPECT_EQ(connection()->integer("SELECT count(*) FROM template WHERE name <> 'dense'"), 0);
}

TEST_F(PostgresTest, ACampaignIsHeldByOneProcessOfAllMachines) {
  auto store = open();
  const World world(*store);
  auto other = open();
  EXPECT_TRUE(store->hold(world.campaign));
  EXPECT_FALSE(other->hold(world.campaign));
  EXPECT_TRUE(other->hold(new_uuid()));
  store.reset();
  // The server learns of the end of a connection a moment later.
  bool held = false;
  for (int i = 0; i < 1000 && !held; ++i) {
    held = other->hold(world.campaign);
    if (!held) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_TRUE(held);
}

TEST_F(PostgresTest, RecordsGoToAFileAndBack) {
  auto store = open();
  World world(*store);
  world.tried(*store, 8, 64, 100);
  world.tried(*store, 16, 64, 80);
  store->enqueue({{world.trial_key(*store, 32, 64)}, {world.trial_key(*store, 24, 64)}});
  store->activate(store->create_table(world.draft(*store, 16)), "tuned");
  store->tell_shapes(new_uuid(), {{world.workload_hash, world.hardware_hash, {{"m", 5}}, 1}});
  ASSERT_EQ(store->claim({world.campaign, "me", 60'000, 1}).size(), 1u);
  store->export_to(file("out"));

  OpenOptions plain = options;
  auto from_file = Store::open(file("out"), plain);
  EXPECT_TRUE(from_file->check().sound()) << testing::PrintToString(from_file->check().problems);
  const auto said = store->outcomes(world.campaign), read = from_file->outcomes(world.campaign);
  ASSERT_EQ(read.size(), said.size());
  for (size_t i = 0; i < said.size(); ++i) {
    EXPECT_EQ(read[i].trial.uuid, said[i].trial.uuid) << "the order of the queue is kept";
    EXPECT_EQ(read[i].median_ns, said[i].median_ns);
  }
  EXPECT_EQ(from_file->progress(world.campaign).claimed, 0) << "leases stay behind";
  EXPECT_EQ(from_file->lookup(world.lookup_key()).outcome,
            store->lookup(world.lookup_key()).outcome);
  from_file.reset();

  // Into another database of the server, from the file and from the first, with one outcome.
  auto second = open("second");
  const ImportReport first = second->import_from(file("out"));
  EXPECT_GT(first.rows_added, 20);
  EXPECT_EQ(second->import_from(place()).rows_added, 0) << "it has them by way of the file";
  EXPECT_TRUE(second->check().sound()) << testing::PrintToString(second->check().problems);
  // And into a file straight from the server.
  auto third = Store::open(file("third.db"), plain);
  EXPECT_EQ(third->import_from(place()).rows_added, first.rows_added);
  EXPECT_EQ(error_of([&] { store->import_from(place()); }).status(), Status::kInvalidArgument);
}

TEST_F(PostgresTest, NoMessageHasThePassword) {
  const std::string url = "postgresql://me:secret@127.0.0.1:1/nowhere?connect_timeout=1";
  const Error error = error_of([&] { Store::open(url); });
  EXPECT_EQ(error.status(), Status::kIo);
  EXPECT_EQ(error.place(), "postgresql://me@127.0.0.1:1/nowhere");
  EXPECT_THAT(error.what(), Not(HasSubstr("secret")));
}

TEST(Postgres, AServerElsewhereMustProveWhoItIs) {
  for (const char* mode : {"disable", "prefer", "require", "verify-ca"}) {
    const Error error = error_of([&] {
      Store::open(std::string("postgresql://192.0.2.1/x?connect_timeout=1&sslmode=") + mode);
    });
    EXPECT_EQ(error.status(), Status::kInvalidArgument) << mode;
    EXPECT_THAT(error.what(), HasSubstr("sslmode=verify-full")) << mode;
  }
}

// However the place is told: no part of it makes a server elsewhere a local one.
TEST(Postgres, NoWayOfNamingAServerElsewhereGetsAroundItsProof) {
  struct Way {
    const char *variable, *value, *url;
  };
  const char* const variables[] = {"PGSSLMODE", "PGHOST", "PGHOSTADDR", "PGSERVICE"};
  for (const char* name : variables) unsetenv(name);
  for (const Way& way :
       {Way{"PGSSLMODE", "disable", "postgresql://192.0.2.1/x"},
        Way{"PGSSLMODE", "prefer", "postgresql://server.example/x"},
        Way{"PGHOST", "192.0.2.1", "postgresql:///x?sslmode=disable"},
        Way{"PGHOSTADDR", "192.0.2.1", "postgresql://localhost/x?sslmode=disable"},
        Way{"PGSERVICE", "elsewhere", "postgresql:///x?sslmode=disable"},
        Way{nullptr, nullptr, "postgresql://localhost/x?hostaddr=192.0.2.1&sslmode=disable"},
        Way{nullptr, nullptr, "postgresql:///x?service=elsewhere&sslmode=allow"},
        Way{nullptr, nullptr, "postgresql://localhost,192.0.2.1/x?sslmode=require"},
        Way{nullptr, nullptr, "postgresql://localhost.example/x?sslmode=disable"},
        Way{nullptr, nullptr, "postgresql://127.0.0.1.example/x?sslmode=disable"}}) {
    if (way.variable) setenv(way.variable, way.value, 1);
    const Error error = error_of([&] { Store::open(way.url); });
    if (way.variable) unsetenv(way.variable);
    EXPECT_EQ(error.status(), Status::kInvalidArgument) << way.url;
    EXPECT_THAT(error.what(), HasSubstr("does not verify a server elsewhere")) << way.url;
  }
}

// A server that has no certificate, at an address that does not count as this machine's: it is
// asked for one, and told nothing when it refuses.
TEST(Postgres, AServerElsewhereWithoutACertificateLearnsNothing) {
  const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(0x7F000002);  // 127.0.0.2
  socklen_t size = sizeof address;
  ASSERT_EQ(::bind(listener, reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(::listen(listener, 4), 0);
  ASSERT_EQ(::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size), 0);
  std::string heard;
  std::thread server([&] {
    const int client = ::accept(listener, nullptr, nullptr);
    char bytes[1024];
    for (ssize_t n; (n = ::read(client, bytes, sizeof bytes)) > 0;) {
      heard.append(bytes, static_cast<size_t>(n));
      if (heard.size() == 8 && ::write(client, "N", 1) != 1) break;  // no encryption here
    }
    ::close(client);
  });
  unsetenv("PGSSLMODE");
  const Error error = error_of([&] {
    Store::open(fmt::format("postgresql://me:secret@127.0.0.2:{}/x?connect_timeout=10",
                            ntohs(address.sin_port)));
  });
  server.join();
  ::close(listener);
  EXPECT_EQ(heard, std::string("\0\0\0\x08\x04\xD2\x16\x2F", 8)) << "the request for TLS alone";
  EXPECT_EQ(error.status(), Status::kIo);
  EXPECT_THAT(error.what(), AllOf(HasSubstr("sslmode=verify-full"), Not(HasSubstr("secret"))));
}

}  // namespace
}  // namespace nimble::db
#endif
