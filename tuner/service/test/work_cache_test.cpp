#include "tuner/service/work_cache.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <span>

#include "vm/base/file.h"

namespace nimble::tuner {
namespace {

namespace fs = std::filesystem;

class WorkCacheTest : public testing::Test {
 protected:
  WorkCacheTest() {
    std::string pattern = (fs::temp_directory_path() / "nimble-work-XXXXXX").string();
    root_ = mkdtemp(pattern.data());
    path = root_ + "/cache.work";
  }
  ~WorkCacheTest() override {
    std::error_code ignored;
    fs::remove_all(root_, ignored);
  }
  void write(std::span<const uint8_t> bytes) const {
    std::ofstream(path, std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()), static_cast<long>(bytes.size()));
  }
  std::string path;

 private:
  std::string root_;
};

const std::vector<uint8_t> kValue = {1, 2, 3, 4, 5};

TEST_F(WorkCacheTest, KeepsValuesAcrossProcesses) {
  {
    WorkCache cache(path);
    EXPECT_FALSE(cache.get("a"));
    EXPECT_TRUE(cache.put("a", kValue));
    EXPECT_TRUE(cache.put("empty", {}));
  }
  WorkCache cache(path);
  EXPECT_EQ(cache.get("a"), kValue);
  EXPECT_EQ(cache.get("empty"), std::vector<uint8_t>());
  EXPECT_FALSE(cache.get("b"));
  EXPECT_GT(cache.bytes(), 0u);
  cache.clear();
  EXPECT_FALSE(cache.get("a"));
  EXPECT_FALSE(fs::exists(path));
}

TEST_F(WorkCacheTest, ADamagedEntryIsNone) {
  { ASSERT_TRUE(WorkCache(path).put("a", kValue)); }
  const std::vector<uint8_t> good = read_file(path);
  for (size_t i = 0; i < good.size(); ++i) {
    std::vector<uint8_t> bad = good;
    bad[i] ^= 0x40;
    write(bad);
    EXPECT_FALSE(WorkCache(path).get("a")) << "byte " << i;
  }
  for (size_t n = 0; n < good.size(); ++n) {
    write(std::span(good).first(n));
    WorkCache cache(path);
    EXPECT_FALSE(cache.get("a")) << n << " bytes";
    // What is written after a kill is found by the next process.
    EXPECT_TRUE(cache.put("b", kValue));
    EXPECT_EQ(WorkCache(path).get("b"), kValue) << n << " bytes";
  }
  write(good);
  EXPECT_EQ(WorkCache(path).get("a"), kValue);
}

TEST_F(WorkCacheTest, TheLatestValueOfAKeyCounts) {
  WorkCache cache(path);
  ASSERT_TRUE(cache.put("a", kValue));
  ASSERT_TRUE(cache.put("b", {}));
  ASSERT_TRUE(cache.put("a", std::vector<uint8_t>{7}));
  EXPECT_EQ(cache.get("a"), std::vector<uint8_t>{7});
  EXPECT_EQ(WorkCache(path).get("a"), std::vector<uint8_t>{7});
  EXPECT_EQ(WorkCache(path).get("b"), std::vector<uint8_t>());
}

TEST_F(WorkCacheTest, StopsAtItsLimit) {
  WorkCache cache(path, 100);
  EXPECT_TRUE(cache.put("a", std::vector<uint8_t>(50)));
  EXPECT_FALSE(cache.put("b", std::vector<uint8_t>(50)));
  EXPECT_FALSE(cache.get("b"));
  EXPECT_LE(cache.bytes(), 100u);
  WorkCache again(path, 200);
  EXPECT_EQ(again.bytes(), cache.bytes());
  EXPECT_TRUE(again.put("b", std::vector<uint8_t>(50)));
}

TEST_F(WorkCacheTest, AFileThatCannotBeMadeIsNoError) {
  fs::create_directory(path);
  WorkCache cache(path);
  EXPECT_FALSE(cache.put("a", kValue));
  EXPECT_FALSE(cache.get("a"));
  cache.clear();
  EXPECT_FALSE(fs::exists(path));
  EXPECT_TRUE(cache.put("a", kValue));
}

// In a folder that others may write to, they may lay anything there.
TEST_F(WorkCacheTest, WhatOthersCouldHaveWrittenIsLeftAlone) {
  { ASSERT_TRUE(WorkCache(path).put("a", kValue)); }
  const std::string precious = path + ".precious";
  const auto left_alone = [&](const char* why) {
    const std::vector<uint8_t> before = read_file(precious);
    WorkCache cache(path);
    EXPECT_FALSE(cache.get("a")) << why;
    EXPECT_FALSE(cache.put("b", kValue)) << why;
    EXPECT_EQ(read_file(precious), before) << why;
  };
  fs::copy_file(path, precious);
  for (const auto may : {fs::perms::group_write, fs::perms::others_write}) {
    fs::permissions(path, may, fs::perm_options::add);
    left_alone("others may write");
    fs::permissions(path, may, fs::perm_options::remove);
  }
  EXPECT_EQ(WorkCache(path).get("a"), kValue);
  fs::remove(path);
  std::ofstream(precious) << "no cache, and long enough to hold the head of an entry";
  fs::create_symlink(precious, path);
  left_alone("a symbolic link");
  fs::remove(path);
  fs::create_hard_link(precious, path);
  left_alone("another name");
  fs::remove(path);
  fs::create_symlink(path + ".nowhere", path);
  left_alone("a link to nothing");
  EXPECT_FALSE(fs::exists(path + ".nowhere"));
}

}  // namespace
}  // namespace nimble::tuner
