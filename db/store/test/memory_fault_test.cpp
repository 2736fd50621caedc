// Out of memory, one request later at a time until none is left: of SQLite's allocator and of
// operator new, one request alone and with all that follow. Each call ends in success with the
// right result, or in kExhausted or std::bad_alloc; what is left is sound, nothing leaks, and the
// same Store goes on once there is memory again.
#include <gtest/gtest.h>

#include <functional>
#include <new>

#include "db/store/sqlite.h"
#include "db/store/test/all.h"
#include "db/store/test/failing_sqlite_memory.h"
#include "db/store/test/fixture.h"
#include "vm/base/fault/failing_new.h"

namespace nimble::db {
namespace {

namespace fs = std::filesystem;

struct Way {
  const char* name;
  bool sqlite, all_later;
  friend void PrintTo(const Way& w, std::ostream* out) { *out << w.name; }
};
constexpr Way kWays[] = {{"OneOfSqlite", true, false},
                         {"AllOfSqlite", true, true},
                         {"OneOfNew", false, false},
                         {"AllOfNew", false, true}};

class MemoryFaultTest : public FileTest, public testing::WithParamInterface<Way> {
 protected:
  void SetUp() override {
    install_failing_sqlite_memory();
    {
      auto store = open("made.db");
      World world(*store);
      world.tried(*store, 8, 64, 100);
      store->activate(store->create_table(world.draft(*store, 8)), "best");
    }
    open("empty.db");
  }

  // Under the n-th fault; whether it came.
  bool under_fault(uint64_t n, const std::function<void()>& body) const {
    if (GetParam().sqlite) {
      const FailSqliteMemory fail(n, GetParam().all_later);
      body();
      return fail.failed();
    }
    const FailNew fail(n, GetParam().all_later);
    body();
    return fail.failed();
  }

  // Runs `body` on copies of `from` until no fault comes; it returns what it has read, which
  // `check` then sees along with the database.
  void loop(
      const std::string& from, const std::function<std::string(Store&)>& body,
      const std::function<void(Store&, bool)>& check = [](Store&, bool) {}) {
    std::string expected;
    uint64_t faults = 0;
    // Every request at first, then fewer and fewer: there are thousands.
    for (uint64_t n = 0;; n += 1 + n / 12) {
      SCOPED_TRACE("request " + std::to_string(n));
      fs::copy_file(file(from), file(), fs::copy_options::overwrite_existing);
      const int64_t of_sqlite = live_sqlite_allocations(), of_new = live_news();
      bool done = false, failed = false;
      {
        const auto store = open();
        std::string read;
        const auto guarded = [&] {
          try {
            read = body(*store);
            done = true;
          } catch (const std::bad_alloc&) {
          } catch (const Error& error) {
            EXPECT_EQ(error.status(), Status::kExhausted) << error.what();
          }
        };
        if (n == 0) {  // for comparison; and what a process makes once
          guarded();
          ASSERT_TRUE(done);
          expected = read;
        } else {
          failed = under_fault(n, guarded);
        }
        if (done) {
          EXPECT_EQ(read, expected) << "a fault was passed over";
        }
        check(*store, done);
        store->put(Toolchain{"llvm", "1", "-O0", 1, "x", false});
      }
      {
        const auto store = open();
        const CheckReport report = store->check();
        EXPECT_TRUE(report.sound()) << testing::PrintToString(report.problems);
        check(*store, done);
      }
      if (n > 0) {
        EXPECT_EQ(live_sqlite_allocations(), of_sqlite);
        EXPECT_EQ(live_news(), of_new);
      }
      if (HasFailure()) return;
      faults += failed;
      if (n > 0 && !failed) {
        EXPECT_TRUE(done);
        break;
      }
    }
    EXPECT_GT(faults, 10u);
  }
};

TEST_P(MemoryFaultTest, Creating) {
  open();  // what a process makes once
  uint64_t faults = 0;
  for (uint64_t n = 1;; n += 1 + n / 12) {
    SCOPED_TRACE("request " + std::to_string(n));
    fs::remove(file());
    const int64_t of_sqlite = live_sqlite_allocations(), of_new = live_news();
    bool done = false;
    const bool failed = under_fault(n, [&] {
      try {
        done = Store::open(file(), options) != nullptr;
      } catch (const std::bad_alloc&) {
      } catch (const Error& error) {
        EXPECT_EQ(error.status(), Status::kExhausted) << error.what();
      }
    });
    EXPECT_EQ(live_sqlite_allocations(), of_sqlite);
    EXPECT_EQ(live_news(), of_new);
    EXPECT_TRUE(open()->check().sound()) << "a later attempt succeeds";
    if (HasFailure()) return;
    faults += failed;
    if (failed) continue;
    EXPECT_TRUE(done);
    break;
  }
  EXPECT_GT(faults, 30u);
}

TEST_P(MemoryFaultTest, Reading) {
  loop("made.db", [&](Store& store) {
    std::string read;
    for (const Campaign& c : all_campaigns(store)) {
      read += c.uuid + c.command;
      for (const TrialOutcome& o : store.outcomes(c.uuid)) read += o.trial.uuid + o.config_json;
    }
    for (const Workload& w : all_workloads(store)) read += w.canonical;
    for (const DispatchTable& t : all_tables(store)) read += t.uuid + t.tree;
    for (const std::string& problem : store.check().problems) read += problem;
    return read;
  });
}

TEST_P(MemoryFaultTest, Writing) {
  loop(
      "empty.db",
      [&](Store& store) {
        const World world(store);
        store.transaction([&] {
          world.tried(store, 8, 64, 100);
          store.activate(store.create_table(world.draft(store, 8)), "best");
        });
        const LookupResult found = store.lookup(world.lookup_key());
        return found.table ? found.table->tree : "";
      },
      [&](Store& store, bool done) {
        // All of the transaction or nothing.
        size_t trials = 0;
        store.transaction([&] {
          for (const Campaign& c : all_campaigns(store)) trials += store.outcomes(c.uuid).size();
          EXPECT_EQ(trials, all_tables(store).size());
        });
        if (done) {
          EXPECT_EQ(trials, 1u);
        }
      });
}

TEST_P(MemoryFaultTest, Exporting) {
  open("made.db")->export_to(file("old.nimble"));
  loop(
      "made.db",
      [&](Store& store) {
        fs::copy_file(file("old.nimble"), file("export"), fs::copy_options::overwrite_existing);
        store.export_to(file("export"), true);
        return std::string();
      },
      [&](Store&, bool) {
        // The old one or the new one, whole, and nothing beside it.
        fs::remove(file("imported.db"));
        EXPECT_EQ(open("imported.db")->import_from(file("export")).rows_updated, 0);
        EXPECT_EQ(all_campaigns(*open("imported.db")).size(), 1u);
        for (const auto& entry : fs::directory_iterator(folder))
          EXPECT_NE(entry.path().extension(), ".tmp") << entry.path();
      });
}

TEST_P(MemoryFaultTest, Importing) {
  open("made.db")->export_to(file("export"));
  loop(
      "empty.db",
      [&](Store& store) { return std::to_string(store.import_from(file("export")).rows_added); },
      [&](Store& store, bool done) {
        // A commit that failed at its end may still be whole in the log; half of it never is.
        store.transaction([&] {
          const size_t campaigns = all_campaigns(store).size();
          EXPECT_EQ(campaigns, all_workloads(store).size());
          EXPECT_EQ(campaigns, all_tables(store).size());
          if (done) {
            EXPECT_EQ(campaigns, 1u);
          }
        });
      });
}

INSTANTIATE_TEST_SUITE_P(All, MemoryFaultTest, testing::ValuesIn(kWays),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace nimble::db
