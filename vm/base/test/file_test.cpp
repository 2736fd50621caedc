#include "vm/base/file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <functional>

#include "vm/base/error.h"

namespace nimble {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class FileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    dir_ = fs::path(::testing::TempDir()) /
           (std::string("nimble-file-") + std::to_string(::getpid()) + "-" +
            ::testing::UnitTest::GetInstance()->current_test_info()->name());
    fs::create_directories(dir_);
  }
  void TearDown() override { fs::remove_all(dir_); }
  std::string at(const std::string& name) const { return (dir_ / name).string(); }
  size_t entries() const {
    return static_cast<size_t>(
        std::distance(fs::directory_iterator(dir_), fs::directory_iterator()));
  }
  fs::path dir_;
};

Error error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& e) {
    return e;
  }
  return Error(Status::kOk, "", "no error");
}

TEST_F(FileTest, WritesReadsAndMaps) {
  write_file_atomically(at("a"), "first");
  write_file_atomically(at("a"), "second");
  EXPECT_EQ(read_text_file(at("a")), "second");
  const auto mapped = MappedFile::open(at("a"));
  EXPECT_EQ(std::string(mapped->bytes().begin(), mapped->bytes().end()), "second");
  EXPECT_EQ(read_file(at("a")).size(), 6u);
  EXPECT_EQ(entries(), 1u) << "a temporary file was left";
}

TEST_F(FileTest, OneFileByTwoNames) {
  write_file_atomically(at("a"), "same");
  write_file_atomically(at("b"), "same");
  fs::create_symlink(at("a"), at("symbolic"));
  fs::create_hard_link(at("a"), at("hard"));
  EXPECT_TRUE(is_same_file(at("a"), at("a")));
  EXPECT_TRUE(is_same_file(at("symbolic"), at("hard")));
  EXPECT_FALSE(is_same_file(at("a"), at("b")));
  EXPECT_FALSE(is_same_file(at("missing"), at("missing")));
  EXPECT_FALSE(is_same_file("", ""));
}

TEST_F(FileTest, EmptyFiles) {
  write_file_atomically(at("empty"), "");
  EXPECT_TRUE(read_file(at("empty")).empty());
  EXPECT_TRUE(MappedFile::open(at("empty"))->bytes().empty());
}

TEST_F(FileTest, AMappingOutlivesReplacement) {
  write_file_atomically(at("a"), "old");
  const auto mapped = MappedFile::open(at("a"));
  write_file_atomically(at("a"), "newer");
  EXPECT_EQ(std::string(mapped->bytes().begin(), mapped->bytes().end()), "old");
}

TEST_F(FileTest, FollowsSymbolicLinks) {
  write_file_atomically(at("real"), "old");
  fs::create_symlink(at("real"), at("link"));
  write_file_atomically(at("link"), "new");
  EXPECT_TRUE(fs::is_symlink(at("link")));
  EXPECT_EQ(read_text_file(at("real")), "new");
}

TEST_F(FileTest, ErrorsNameThePathInOneLine) {
  const Error missing = error_of([&] { read_file(at("none")); });
  EXPECT_EQ(missing.status(), Status::kNotFound);
  EXPECT_EQ(missing.place(), at("none"));
  EXPECT_THAT(missing.what(), HasSubstr("No such file"));
  EXPECT_EQ(std::string(missing.what()).find('\n'), std::string::npos);

  EXPECT_EQ(error_of([&] { read_file(dir_.string()); }).status(), Status::kIo);
  EXPECT_EQ(error_of([&] { write_file_atomically(dir_.string(), "x"); }).status(), Status::kIo);
  EXPECT_EQ(error_of([&] { write_file_atomically(at("no/where"), "x"); }).status(),
            Status::kNotFound);
  EXPECT_EQ(error_of([&] { write_file_atomically("/dev/null", "x"); }).status(), Status::kIo);
}

TEST_F(FileTest, WhetherAPathCanBeWrittenIsAskedWithoutWriting) {
  require_writable(at("new"));
  EXPECT_EQ(entries(), 0u);
  write_file_atomically(at("a"), "kept");
  require_writable(at("a"));
  EXPECT_EQ(read_text_file(at("a")), "kept");
  for (const std::string& path :
       {dir_.string(), at("no/where"), at("a/b"), std::string("/dev/null")}) {
    const Error asked = error_of([&] { require_writable(path); });
    EXPECT_EQ(asked.what(),
              std::string(error_of([&] { write_file_atomically(path, "x"); }).what()));
    EXPECT_NE(asked.status(), Status::kOk) << path;
  }
  EXPECT_EQ(entries(), 1u);
}

// Runs in a child process, whose limits and rights may be cut. True if it exits with 0.
bool in_child(const std::function<bool()>& body) {
  const pid_t pid = ::fork();
  if (pid == 0) ::_exit(body() ? 0 : 1);
  int status = 0;
  ::waitpid(pid, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

// Opened like a file it would wait for somebody who writes to it.
TEST_F(FileTest, AFifoIsRefusedAtOnce) {
  ASSERT_EQ(::mkfifo(at("fifo").c_str(), 0600), 0);
  ::alarm(20);  // ends a test that waits
  EXPECT_THAT(error_of([&] { read_file(at("fifo")); }).what(), HasSubstr("is not a regular file"));
  EXPECT_THAT(error_of([&] { MappedFile::open(at("fifo")); }).what(),
              HasSubstr("is not a regular file"));
  ::alarm(0);
}

TEST_F(FileTest, AFailedWriteLeavesTheOldFile) {
  write_file_atomically(at("a"), "precious");
  EXPECT_TRUE(in_child([&] {
    // Writes beyond the limit fail as on a full disk, with another errno.
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{1000, 1000};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    const Error e = error_of([&] { write_file_atomically(at("a"), std::string(100000, 'x')); });
    return e.status() == Status::kIo;
  }));
  EXPECT_EQ(read_text_file(at("a")), "precious");
  EXPECT_EQ(entries(), 1u) << "a temporary file was left";
}

TEST_F(FileTest, AReadOnlyFolderIsRefused) {
  write_file_atomically(at("a"), "precious");
  fs::permissions(dir_, fs::perms::owner_read | fs::perms::owner_exec | fs::perms::others_read |
                            fs::perms::others_exec);
  const bool refused = in_child([&] {
    if (::geteuid() == 0 && ::setuid(65534) != 0) return false;  // root may write anywhere
    const Error e = error_of([&] { write_file_atomically(at("a"), "new"); });
    return e.status() == Status::kIo &&
           std::string(e.what()).find("permission") != std::string::npos;
  });
  fs::permissions(dir_, fs::perms::owner_all);
  EXPECT_TRUE(refused);
  EXPECT_EQ(read_text_file(at("a")), "precious");
}

}  // namespace
}  // namespace nimble
