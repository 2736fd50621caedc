#include "tuner/service/work_cache.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "vm/base/file.h"

namespace nimble::tuner {
namespace {

namespace fs = std::filesystem;

class WorkCacheTest : public testing::Test {
 protected:
  WorkCacheTest() {
    std::string pattern = (fs::temp_directory_path() / "nimble-work-XXXXXX").string();
    root_ = mkdtemp(pattern.data());
    folder = root_ + "/cache";
  }
  ~WorkCacheTest() override {
    std::error_code ignored;
    fs::remove_all(root_, ignored);
  }
  fs::path only_file() const { return fs::directory_iterator(folder)->path(); }
  std::string folder;

 private:
  std::string root_;
};

const std::vector<uint8_t> kValue = {1, 2, 3, 4, 5};

TEST_F(WorkCacheTest, KeepsValuesAcrossProcesses) {
  {
    WorkCache cache(folder);
    EXPECT_FALSE(cache.get("a"));
    EXPECT_TRUE(cache.put("a", kValue));
    EXPECT_TRUE(cache.put("empty", {}));
  }
  WorkCache cache(folder);
  EXPECT_EQ(cache.get("a"), kValue);
  EXPECT_EQ(cache.get("empty"), std::vector<uint8_t>());
  EXPECT_FALSE(cache.get("b"));
  EXPECT_GT(cache.bytes(), 0u);
  cache.clear();
  EXPECT_FALSE(cache.get("a"));
  EXPECT_FALSE(fs::exists(folder));
}

TEST_F(WorkCacheTest, ADamagedEntryIsNone) {
  WorkCache cache(folder);
  ASSERT_TRUE(cache.put("a", kValue));
  const std::vector<uint8_t> good = read_file(only_file());
  for (size_t i = 0; i < good.size(); ++i) {
    std::vector<uint8_t> bad = good;
    bad[i] ^= 0x40;
    std::ofstream(only_file(), std::ios::binary)
        .write(reinterpret_cast<const char*>(bad.data()), static_cast<long>(bad.size()));
    EXPECT_FALSE(cache.get("a")) << "byte " << i;
  }
  for (size_t n = 0; n < good.size(); ++n) {
    fs::resize_file(only_file(), n);
    EXPECT_FALSE(cache.get("a")) << n << " bytes";
    std::ofstream(only_file(), std::ios::binary)
        .write(reinterpret_cast<const char*>(good.data()), static_cast<long>(good.size()));
  }
  EXPECT_EQ(cache.get("a"), kValue);
}

TEST_F(WorkCacheTest, StopsAtItsLimitAndForgetsHalfWrittenFiles) {
  WorkCache cache(folder, 100);
  EXPECT_TRUE(cache.put("a", std::vector<uint8_t>(50)));
  EXPECT_FALSE(cache.put("b", std::vector<uint8_t>(50)));
  EXPECT_FALSE(cache.get("b"));
  std::ofstream(folder + "/x.work.part") << "half";
  WorkCache again(folder, 200);
  EXPECT_FALSE(fs::exists(folder + "/x.work.part"));
  EXPECT_TRUE(again.put("b", std::vector<uint8_t>(50)));
}

TEST_F(WorkCacheTest, AFolderThatCannotBeMadeIsNoError) {
  std::ofstream(folder) << "a file in its place";
  WorkCache cache(folder);
  EXPECT_FALSE(cache.put("a", kValue));
  EXPECT_FALSE(cache.get("a"));
}

}  // namespace
}  // namespace nimble::tuner
