// A scratch folder, a clock that stands until told otherwise, and one of each record.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "db/store/store.h"
#include "db/store/test/world.h"
#include "vm/base/error.h"

namespace nimble::db {

class StoreTest : public testing::Test {
 protected:
  StoreTest() {
    // In memory where there is such a place: every write is synced, and a disk may be slow.
    const std::filesystem::path root =
        access("/dev/shm", W_OK) == 0 ? "/dev/shm" : std::filesystem::temp_directory_path();
    std::string pattern = (root / "nimble-db-XXXXXX").string();
    folder = mkdtemp(pattern.data());
    options.clock_ms = [this] { return clock; };
    options.busy_timeout_ms = 20'000;
  }
  ~StoreTest() override {
    std::error_code ignored;
    std::filesystem::permissions(folder, std::filesystem::perms::owner_all, ignored);
    std::filesystem::remove_all(folder, ignored);
  }

  std::string file(const std::string& name = "tuning.db") const { return folder + "/" + name; }
  std::unique_ptr<Store> open(const std::string& name = "tuning.db") {
    return Store::open(file(name), options);
  }

  std::string folder;
  OpenOptions options;
  int64_t clock = 1'000'000;
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
