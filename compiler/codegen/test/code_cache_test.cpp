// Entries by hand; cuda_compile_test.cpp has a compiler's.
#include "compiler/codegen/code_cache.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <chrono>
#include <filesystem>
#include <fstream>

#include "vm/base/file.h"

namespace nimble::codegen {
namespace {

namespace fs = std::filesystem;

class CodeCacheTest : public ::testing::Test {
 protected:
  CodeCacheTest() {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  ~CodeCacheTest() override { fs::remove_all(folder_); }
  static Hash128 key(uint64_t i) { return {7, i}; }
  static std::vector<uint8_t> code(size_t bytes, uint8_t fill) {
    return std::vector<uint8_t>(bytes, fill);
  }
  std::vector<fs::path> files() const {
    std::vector<fs::path> out;
    for (const auto& f : fs::directory_iterator(folder_)) out.push_back(f.path());
    return out;
  }
  fs::path file_of(uint64_t i) const { return folder_ / (hex(key(i)) + ".code"); }
  // As if it had been used so many minutes ago.
  void age(uint64_t i, int minutes) const {
    fs::last_write_time(file_of(i),
                        fs::file_time_type::clock::now() - std::chrono::minutes(minutes));
  }

  const fs::path folder_ = fs::path(testing::TempDir()) /
                           ::testing::UnitTest::GetInstance()->current_test_info()->name();
};

TEST_F(CodeCacheTest, KeepsWhatItIsGiven) {
  CodeCache cache(folder_.string());
  EXPECT_FALSE(cache.find(key(1)));
  for (size_t bytes : {0, 1, 15, 16, 17, 100'000}) {
    cache.keep(key(bytes), code(bytes, 5));
    EXPECT_EQ(cache.find(key(bytes)), code(bytes, 5)) << bytes;
    EXPECT_EQ(CodeCache(folder_.string()).find(key(bytes)), code(bytes, 5)) << "another process";
  }
  EXPECT_FALSE(cache.find(key(2)));
}

TEST_F(CodeCacheTest, ADamagedEntryIsNone) {
  CodeCache cache(folder_.string());
  for (size_t left : {0, 1, 15, 16, 115}) {
    cache.keep(key(1), code(100, 5));
    fs::resize_file(files().at(0), left);
    EXPECT_FALSE(cache.find(key(1))) << left;
    EXPECT_TRUE(files().empty()) << "it is compiled again, and then kept";
  }
  for (std::streamoff at : {0, 15, 16, 115}) {
    cache.keep(key(1), code(100, 5));
    std::fstream file(files().at(0), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(at).put('x');
    file.close();
    EXPECT_FALSE(cache.find(key(1))) << at;
  }
}

// A hole of terabytes takes no disk, and would take as much memory.
TEST_F(CodeCacheTest, AnEntryLargerThanTheCacheIsNone) {
  CodeCache cache(folder_.string(), 10'000);
  cache.keep(key(1), code(100, 5));
  for (const uint64_t bytes : {uint64_t{20'000}, uint64_t{1} << 42}) {
    std::error_code refused;
    fs::resize_file(file_of(1), bytes, refused);
    if (refused) continue;  // a file system of smaller files
    EXPECT_FALSE(cache.find(key(1)));
    EXPECT_FALSE(fs::exists(file_of(1)));
    cache.keep(key(1), code(100, 5));
  }
  EXPECT_TRUE(cache.find(key(1)));
}

// Under another name a whole entry would be run for another kernel.
TEST_F(CodeCacheTest, AnEntryOfAnotherKeyIsNone) {
  CodeCache cache(folder_.string());
  cache.keep(key(1), code(100, 5));
  fs::copy_file(file_of(1), file_of(2));
  EXPECT_FALSE(cache.find(key(2)));
  EXPECT_TRUE(cache.find(key(1)));
}

TEST_F(CodeCacheTest, WhatOthersMayHaveWrittenIsNone) {
  CodeCache cache(folder_.string());
  const mode_t before = ::umask(0);
  cache.keep(key(1), code(100, 5));
  ::umask(before);
  EXPECT_EQ(fs::status(file_of(1)).permissions(), fs::perms::owner_read | fs::perms::owner_write);
  EXPECT_TRUE(cache.find(key(1)));
  for (const fs::perms others : {fs::perms::group_write, fs::perms::others_write}) {
    fs::permissions(file_of(1), others, fs::perm_options::add);
    EXPECT_FALSE(cache.find(key(1)));
    cache.keep(key(1), code(100, 5));
    EXPECT_TRUE(cache.find(key(1))) << "it takes the other's place";
  }
  fs::rename(file_of(1), folder_ / "elsewhere");
  fs::create_symlink(folder_ / "elsewhere", file_of(1));
  EXPECT_FALSE(cache.find(key(1)));
  fs::remove(file_of(1));
  fs::create_hard_link(folder_ / "elsewhere", file_of(1));
  EXPECT_FALSE(cache.find(key(1)));
  fs::remove(file_of(1));
  ASSERT_EQ(::mkfifo(file_of(1).c_str(), 0600), 0);
  EXPECT_FALSE(cache.find(key(1))) << "nor is it waited for";
}

// Written by processes that were killed.
TEST_F(CodeCacheTest, WhatWasNeverFinishedGoes) {
  const auto unfinished = [&](uint64_t i) { return file_of(i).string() + ".99-0"; };
  for (uint64_t i : {1, 2}) write_file_atomically(unfinished(i), std::string_view("half"));
  fs::last_write_time(unfinished(1), fs::file_time_type::clock::now() - std::chrono::hours(2));
  CodeCache cache(folder_.string());
  cache.keep(key(3), code(100, 5));
  EXPECT_FALSE(fs::exists(unfinished(1)));
  EXPECT_TRUE(fs::exists(unfinished(2))) << "it may be being written";
  EXPECT_TRUE(cache.find(key(3)));
}

TEST_F(CodeCacheTest, WhatWasNotUsedForLongestGoes) {
  CodeCache cache(folder_.string(), 10'000);
  for (uint64_t i = 0; i < 9; ++i) {
    cache.keep(key(i), code(1000, 5));
    age(i, static_cast<int>(60 - i));
  }
  cache.find(key(0));  // used
  for (uint64_t i = 9; i < 11; ++i) cache.keep(key(i), code(1000, 5));
  EXPECT_TRUE(cache.find(key(0)));
  EXPECT_FALSE(cache.find(key(1)));
  EXPECT_TRUE(cache.find(key(10))) << "the newest stays";
  EXPECT_LE(files().size(), 9u);
  EXPECT_GE(files().size(), 6u);
}

TEST_F(CodeCacheTest, AnotherProgramsFilesStay) {
  for (const char* name : {"notes.txt", "notes.code", "abc.code"})
    write_file_atomically((folder_ / name).string(), std::string_view("mine"));
  CodeCache cache(folder_.string(), 100);
  for (uint64_t i = 0; i < 5; ++i) cache.keep(key(i), code(1000, 5));
  for (const char* name : {"notes.txt", "notes.code", "abc.code"})
    EXPECT_TRUE(fs::exists(folder_ / name)) << name;
}

TEST_F(CodeCacheTest, AFolderThatIsGoneIsNoFailure) {
  CodeCache cache((folder_ / "none").string());
  cache.keep(key(1), code(10, 5));
  EXPECT_FALSE(cache.find(key(1)));
}

}  // namespace
}  // namespace nimble::codegen
