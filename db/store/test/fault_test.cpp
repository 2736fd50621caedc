// Full and failing disks, one operation later at a time until the work succeeds: every failure is
// one clean Error, and what is left is sound and holds all or nothing of each call.
#include <gmock/gmock.h>

#include "db/store/sqlite.h"
#include "db/store/test/all.h"
#include "db/store/test/fault_vfs.h"
#include "db/store/test/fixture.h"

namespace nimble::db {
namespace {

class FaultTest : public FileTest, public testing::WithParamInterface<int> {
 protected:
  void SetUp() override {
    register_faulty_vfs();
    options.vfs = "nimble-faulty";
  }
  void TearDown() override { stop_failing(); }
  Status expected() const { return GetParam() == SQLITE_FULL ? Status::kExhausted : Status::kIo; }
};

TEST_P(FaultTest, WhileWriting) {
  int failures = 0;
  for (long operations = 0;; ++operations) {
    ASSERT_LT(operations, 500) << "it never succeeds";
    const std::string name = "w" + std::to_string(operations) + ".db";
    { World world(*open(name)); }
    bool done = false;
    try {
      auto store = open(name);
      World world(*store);
      fail_after(operations, GetParam());
      world.tried(*store, 8, 64, 100);
      store->record_consumed(world.campaign, 5);
      done = true;
    } catch (const Error& error) {
      // A failed sync or truncation reports as an input/output error even where the disk is full.
      EXPECT_TRUE(error.status() == expected() || error.status() == Status::kIo) << error.what();
    }
    failures += stop_failing() && !done;
    auto store = open(name);
    const CheckReport report = store->check();
    ASSERT_TRUE(report.sound()) << operations << testing::PrintToString(report.problems);
    std::filesystem::remove(file(name));
    if (done) break;
  }
  EXPECT_GT(failures, 5);
}

TEST_P(FaultTest, WhileCreating) {
  int failures = 0;
  // Every operation at first, then fewer and fewer: one migration writes as the next does.
  for (long operations = 0;; operations += 1 + operations / 16) {
    ASSERT_LT(operations, 500) << "it never succeeds";
    const std::string name = "c" + std::to_string(operations) + ".db";
    fail_after(operations, GetParam());
    bool done = false;
    try {
      open(name);
      done = true;
    } catch (const Error& error) {
      EXPECT_TRUE(error.status() == expected() || error.status() == Status::kIo) << error.what();
    }
    failures += stop_failing() && !done;
    EXPECT_TRUE(open(name)->check().sound()) << "a later attempt succeeds, after " << operations;
    std::filesystem::remove(file(name));
    if (done) break;
  }
  EXPECT_GT(failures, 20);
}

TEST_P(FaultTest, WhileImporting) {
  OpenOptions plain = options;
  plain.vfs = "";
  {
    auto source = Store::open(file("source.db"), plain);
    World world(*source);
    world.tried(*source, 8, 64, 100);
    source->export_to(file("export"));
  }
  int failures = 0;
  for (long operations = 0;; ++operations) {
    ASSERT_LT(operations, 500) << "it never succeeds";
    const std::string name = "i" + std::to_string(operations) + ".db";
    bool done = false;
    {
      auto store = open(name);
      fail_after(operations, GetParam());
      try {
        store->import_from(file("export"));
        done = true;
      } catch (const Error& error) {
        EXPECT_TRUE(error.status() == expected() || error.status() == Status::kIo) << error.what();
      }
      failures += stop_failing() && !done;
    }
    auto store = open(name);
    // A commit whose sync failed may still be whole in the log; half of it never is.
    const size_t workloads = all_workloads(*store).size();
    EXPECT_EQ(all_campaigns(*store).size(), workloads);
    EXPECT_TRUE(store->check().sound());
    std::filesystem::remove(file(name));
    if (done) {
      EXPECT_EQ(workloads, 1u);
      break;
    }
  }
  EXPECT_GT(failures, 2);
}

using DurabilityTest = FileTest;

TEST_F(DurabilityTest, WhoNeedNotBeDurableWaitsForNoDiskAndIsSeenAtOnce) {
  register_faulty_vfs();
  options.vfs = "nimble-faulty";
  auto durable = open("tuning.db");
  options.durable = false;
  auto quick = open("tuning.db");
  World world(*quick);
  const long before = syncs();
  world.tried(*quick, 8, 64, 100);
  quick->transaction([&] { quick->put(Template{"later", 1, ""}); });
  EXPECT_EQ(syncs(), before);
  EXPECT_EQ(durable->outcomes(world.campaign).size(), 1u);
  // One log for all: this takes along what was written before.
  durable->record_consumed(world.campaign, 5);
  EXPECT_GT(syncs(), before);
}

INSTANTIATE_TEST_SUITE_P(All, FaultTest, testing::Values(SQLITE_FULL, SQLITE_IOERR),
                         [](const testing::TestParamInfo<int>& info) {
                           return info.param == SQLITE_FULL ? "FullDisk" : "FailingDisk";
                         });

}  // namespace
}  // namespace nimble::db
