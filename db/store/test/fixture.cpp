#include "db/store/test/fixture.h"

#include <unistd.h>

#include <cctype>
#include <cstdlib>

#ifdef NIMBLE_POSTGRES
#include "db/store/postgres/connection.h"
#endif
#include "db/store/sqlite.h"

namespace nimble::db {
namespace {

constexpr int kLockTimeoutMs = 20'000;

bool is_set(const char* variable, const std::string& value) {
  const char* set = std::getenv(variable);
  return set && set == value;
}

#ifdef NIMBLE_POSTGRES
const char* server() {
  const char* url = std::getenv("NIMBLE_TEST_POSTGRES");
  return url && *url ? url : nullptr;
}

void on_the_server(const std::string& sql) {
  PostgresConnection(server(), kLockTimeoutMs, false).script(sql);
}
std::unique_ptr<Connection> connect(const std::string& url) {
  return std::make_unique<PostgresConnection>(url, kLockTimeoutMs, false);
}
#else
const char* server() {
  return nullptr;
}
void on_the_server(const std::string&) {}
std::unique_ptr<Connection> connect(const std::string&) {
  return nullptr;
}
#endif

// The server's URL with another database.
std::string url_of(const std::string& database) {
  const std::string url = server();
  const size_t begin = url.find('/', url.find("://") + 3) + 1;
  return url.substr(0, begin) + database + url.substr(std::min(url.find('?', begin), url.size()));
}

std::string database_of(const std::string& folder, const std::string& name) {
  std::string all = folder.substr(folder.rfind('/') + 1) + "_" + name;
  for (char& c : all) c = std::isalnum(static_cast<unsigned char>(c)) ? std::tolower(c) : '_';
  return all;
}

}  // namespace

StoreTest::StoreTest(Where where)
    : server_(where == Where::kServer ||
              (where == Where::kAnywhere && is_set("NIMBLE_TEST_ENGINE", "postgres"))) {
  // In memory where there is such a place: every write is synced, and a disk may be slow.
  const std::filesystem::path root =
      access("/dev/shm", W_OK) == 0 ? "/dev/shm" : std::filesystem::temp_directory_path();
  std::string pattern = (root / "nimble-db-XXXXXX").string();
  folder = mkdtemp(pattern.data());
  options.clock_ms = [this] { return clock; };
  options.busy_timeout_ms = kLockTimeoutMs;
}

StoreTest::~StoreTest() {
  std::error_code ignored;
  std::filesystem::permissions(folder, std::filesystem::perms::owner_all, ignored);
  std::filesystem::remove_all(folder, ignored);
  try {
    while (!on_server_.empty()) remove(*on_server_.begin());
  } catch (const Error& error) {
    ADD_FAILURE() << error.what();
  }
}

void StoreTest::SetUp() {
  if (on_server() && !server())
    GTEST_SKIP() << "no server: NIMBLE_TEST_POSTGRES=$(scripts/postgres-dev start)";
}

std::string StoreTest::place(const std::string& name) {
  if (!on_server()) return file(name);
  const std::string database = database_of(folder, name);
  // Children of a fork share what the parent has made.
  if (on_server_.insert(name).second) on_the_server("CREATE DATABASE " + database);
  return url_of(database);
}

std::unique_ptr<Connection> StoreTest::connection(const std::string& name) {
  if (on_server()) return connect(place(name));
  return std::make_unique<SqliteConnection>(file(name), SQLITE_OPEN_READWRITE, "", name);
}

void StoreTest::remove(const std::string& name) {
  if (!on_server()) {
    std::filesystem::remove(file(name));
    return;
  }
  on_the_server("DROP DATABASE IF EXISTS " + database_of(folder, name) + " WITH (FORCE)");
  on_server_.erase(name);
}

}  // namespace nimble::db
