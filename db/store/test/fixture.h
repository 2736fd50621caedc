// A scratch place for databases, a clock that stands until told otherwise, and one of each record.
//
// StoreTest works on files; with NIMBLE_TEST_ENGINE=postgres on databases of the server whose URL
// is NIMBLE_TEST_POSTGRES and whose role there may make others (scripts/postgres-dev start), and
// without such a server its tests are skipped. FileTest is about files alone, PostgresTest about
// servers.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <set>
#include <string>

#include "db/store/sql.h"
#include "db/store/store.h"
#include "db/store/test/world.h"
#include "vm/base/error.h"

namespace nimble::db {

class StoreTest : public testing::Test {
 protected:
  enum class Where { kAnywhere, kFiles, kServer };
  explicit StoreTest(Where where = Where::kAnywhere);
  ~StoreTest() override;
  void SetUp() override;

  bool on_server() const { return server_; }
  std::string file(const std::string& name = "tuning.db") const { return folder + "/" + name; }
  // What names the database: its file, or its URL; a database of that name is then there.
  std::string place(const std::string& name = "tuning.db");
  std::unique_ptr<Store> open(const std::string& name = "tuning.db") {
    return Store::open(place(name), options);
  }
  // A look behind the store, at a database that it has made.
  std::unique_ptr<Connection> connection(const std::string& name = "tuning.db");
  void remove(const std::string& name = "tuning.db");

  std::string folder;
  OpenOptions options;
  int64_t clock = 1'000'000;

 private:
  bool server_;
  std::set<std::string> on_server_;  // databases that were made there
};

class FileTest : public StoreTest {
 protected:
  FileTest() : StoreTest(Where::kFiles) {}
};

class PostgresTest : public StoreTest {
 protected:
  PostgresTest() : StoreTest(Where::kServer) {}
};

// Runs `body`, which must throw an Error; returns it. Its text must be one line.
template <class Body>
Error error_of(Body&& body) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
    return error;
  }
  ADD_FAILURE() << "no Error was thrown";
  return Error(Status::kOk, "", "");
}

}  // namespace nimble::db
