#include "vm/base/cache_folder.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "vm/base/error.h"
#include "vm/base/test/scoped_variable.h"

namespace nimble {
namespace {

namespace fs = std::filesystem;

class CacheFolder : public ::testing::Test {
 protected:
  ~CacheFolder() override { fs::remove_all(base_); }

  const std::string base_ =
      fs::path(::testing::TempDir()) / ("nimble-cache-folder-" + std::to_string(::getpid()));
};

TEST_F(CacheFolder, IsWhereTheEnvironmentSays) {
  const ScopedVariable home("HOME", base_ + "/home"), temporary("TMPDIR", base_);
  {
    const ScopedVariable cache("XDG_CACHE_HOME", base_ + "/cache");
    EXPECT_EQ(cache_folder(), base_ + "/cache/nimble");
    EXPECT_TRUE(fs::is_directory(base_ + "/cache/nimble"));
  }
  const ScopedVariable cache("XDG_CACHE_HOME", "relative");
  EXPECT_EQ(cache_folder(), base_ + "/home/.cache/nimble");
  const ScopedVariable nowhere("HOME", "");
  EXPECT_EQ(cache_folder(), base_ + "/nimble");
}

// Callers do without a cache then: it is an Error of ours, not the library's.
TEST_F(CacheFolder, MayBeNowhere) {
  const ScopedVariable cache("XDG_CACHE_HOME", ""), home("HOME", ""),
      temporary("TMPDIR", base_ + "/none");
  EXPECT_THROW(cache_folder(), Error);
}

}  // namespace
}  // namespace nimble
