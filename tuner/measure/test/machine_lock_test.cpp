#include "tuner/measure/machine_lock.h"

#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <thread>

#include "vm/base/error.h"

namespace nimble::tuner {
namespace {

using ::testing::HasSubstr;

class MachineLockTest : public testing::Test {
 protected:
  MachineLockTest() {
    std::string pattern = testing::TempDir() + "nimble-lock-XXXXXX";
    folder = mkdtemp(pattern.data());
    ::setenv("NIMBLE_LOCK_FOLDER", folder.c_str(), 1);
  }
  ~MachineLockTest() override {
    std::filesystem::remove_all(folder);
    ::unsetenv("NIMBLE_LOCK_FOLDER");
  }
  std::string folder;
  std::atomic<bool> cancel{false};
};

TEST_F(MachineLockTest, TheSecondWaitsAndIsToldForWhom) {
  std::optional<MachineLock> first;
  first.emplace("cpu", "tuning into a.db", cancel, [](const std::string&) { FAIL(); });
  // Another device is another matter.
  const MachineLock other("gpu0", "tuning into b.db", cancel, [](const std::string&) { FAIL(); });
  int waited = 0;
  const MachineLock second("cpu", "tuning into c.db", cancel, [&](const std::string& holder) {
    ++waited;
    EXPECT_THAT(holder, HasSubstr("a.db"));
    EXPECT_THAT(holder, HasSubstr(std::to_string(::getpid())));
    first.reset();
  });
  EXPECT_EQ(waited, 1);
}

// Who releases it and comes back at once does not get it before somebody who waits.
TEST_F(MachineLockTest, WhoWaitsIsNext) {
  std::atomic<bool> waits{false};
  std::atomic<int> turns{0};
  std::optional<MachineLock> mine;
  mine.emplace("cpu", "never idle", cancel, [](const std::string&) {});
  int at = -1;
  std::thread other([&] {
    const MachineLock lock("cpu", "waits", cancel, [&](const std::string&) { waits = true; });
    at = turns;
  });
  while (!waits) std::this_thread::yield();
  for (; turns < 3; ++turns) {
    mine.reset();
    mine.emplace("cpu", "never idle", cancel, [](const std::string&) {});
  }
  other.join();
  EXPECT_EQ(at, 0);
}

TEST_F(MachineLockTest, CardsShareTheirMachineAndWhoWantsItAloneComesInTurn) {
  std::optional<MachineLock> first, second;
  for (std::optional<MachineLock>* card : {&first, &second})
    card->emplace(
        "cpu", "a card", cancel, [](const std::string&) { FAIL(); }, Hold::kBesideOthers);
  std::atomic<int> waiting{0}, turns{0};
  int builder = -1, third = -1;
  const auto take = [&](Hold hold, int* at) {
    const MachineLock lock(
        "cpu", "next", cancel, [&](const std::string&) { ++waiting; }, hold);
    *at = turns++;
  };
  std::thread builds(take, Hold::kAlone, &builder);
  while (waiting < 1) std::this_thread::yield();
  std::thread measures(take, Hold::kBesideOthers, &third);
  while (waiting < 2) std::this_thread::yield();
  second.reset();
  EXPECT_EQ(turns, 0) << "one still measures";
  first.reset();
  builds.join();
  measures.join();
  EXPECT_EQ(builder, 0);
  EXPECT_EQ(third, 1);
}

TEST_F(MachineLockTest, WaitingEndsByAnInterrupt) {
  const MachineLock first("cpu", "a", cancel, [](const std::string&) { FAIL(); });
  try {
    const MachineLock second("cpu", "b", cancel, [&](const std::string&) { cancel = true; });
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.status(), Status::kCancelled);
  }
}

TEST_F(MachineLockTest, AFolderThatIsNotThereIsNamed) {
  ::setenv("NIMBLE_LOCK_FOLDER", (folder + "/nowhere").c_str(), 1);
  try {
    const MachineLock lock("cpu", "a", cancel, [](const std::string&) {});
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.status(), Status::kIo);
    EXPECT_THAT(e.what(), HasSubstr("nowhere"));
    EXPECT_THAT(e.what(), HasSubstr("NIMBLE_LOCK_FOLDER"));
  }
}

// In a folder that all share anybody may lay anything there.
TEST_F(MachineLockTest, WhatIsNoFileOfItsOwnIsRefusedAndStaysAsItIs) {
  const std::string lock = folder + "/nimble-measuring-cpu.lock", precious = folder + "/precious";
  std::ofstream(precious) << "precious";
  const auto refused = [&](const std::string& says) {
    try {
      const MachineLock taken("cpu", "a", cancel, [](const std::string&) {});
      ADD_FAILURE() << says;
    } catch (const MachineLockError& e) {
      EXPECT_EQ(e.status(), Status::kIo);
      EXPECT_THAT(e.what(), HasSubstr(says));
    }
    std::filesystem::remove(lock);
    std::string text;
    std::getline(std::ifstream(precious), text);
    EXPECT_EQ(text, "precious");
  };
  std::filesystem::create_hard_link(precious, lock);
  refused("not a file of its own");
  std::filesystem::create_symlink(precious, lock);
  refused("symbolic link");
  std::filesystem::create_symlink(folder + "/nowhere", lock);
  refused("symbolic link");
  EXPECT_FALSE(std::filesystem::exists(folder + "/nowhere"));
  ASSERT_EQ(::mkfifo(lock.c_str(), 0666), 0);
  refused("not a file of its own");
  const MachineLock taken("cpu", "a", cancel, [](const std::string&) {});
}

}  // namespace
}  // namespace nimble::tuner
