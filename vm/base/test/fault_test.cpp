// Files while system calls and operator new fail, one request later at a time until none is left:
// what is read is whole or an error, and what is written over is the old file or the new one.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <new>
#include <numeric>
#include <string>

#include "vm/base/error.h"
#include "vm/base/fault/failing_calls.h"
#include "vm/base/fault/failing_new.h"
#include "vm/base/file.h"
#include "vm/base/npy.h"

namespace nimble {
namespace {

namespace fs = std::filesystem;

class FileFaults : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(::testing::TempDir()) /
              (std::string("nimble-faults-") + std::to_string(::getpid()) + "-" +
               ::testing::UnitTest::GetInstance()->current_test_info()->name());
    fs::create_directories(folder_);
    path_ = (folder_ / "file").string();
  }
  void TearDown() override { fs::remove_all(folder_); }

  // Runs `body` under each fault; `check` is told whether it succeeded. Returns how many there
  // were.
  int each_fault(const std::function<void()>& body, const std::function<void(bool)>& check) {
    int faults = 0;
    for (const bool all_later : {false, true}) {
      faults += loop("new", body, check, [&](uint64_t n, const std::function<void()>& guarded) {
        const FailNew fail(n, all_later);
        guarded();
        return fail.failed();
      });
      for (const SystemCall call : all_system_calls())
        faults += loop(std::string(name_of(call)), body, check,
                       [&](uint64_t n, const std::function<void()>& guarded) {
                         const FailCall fail(call, n, all_later);
                         guarded();
                         return fail.failed();
                       });
    }
    return faults;
  }

  size_t files() const {
    return static_cast<size_t>(
        std::distance(fs::directory_iterator(folder_), fs::directory_iterator()));
  }

  fs::path folder_;
  std::string path_;

 private:
  int loop(const std::string& what, const std::function<void()>& body,
           const std::function<void(bool)>& check,
           const std::function<bool(uint64_t, const std::function<void()>&)>& under_fault) {
    for (int n = 1;; ++n) {
      SCOPED_TRACE(what + " " + std::to_string(n));
      const SystemBalance balance = system_balance();
      const int64_t news = live_news();
      bool done = false;
      const bool failed = under_fault(static_cast<uint64_t>(n), [&] {
        try {
          body();
          done = true;
        } catch (const std::bad_alloc&) {
        } catch (const Error& e) {
          EXPECT_TRUE(e.status() == Status::kIo || e.status() == Status::kExhausted) << e.what();
          EXPECT_NE(e.place().find(path_), std::string::npos) << e.what();
        }
      });
      EXPECT_EQ(live_news(), news);
      EXPECT_EQ(system_balance(), balance);
      EXPECT_TRUE(done || failed);
      check(done);
      if (!failed || HasFailure()) return n - 1;
    }
  }
};

// Larger than one call of write takes of a stream's buffer, in several parts.
TEST_F(FileFaults, AFailedWriteLeavesTheOldFileWhole) {
  const std::string old_text(5000, 'o'), first(70'000, 'n'), second(3, 'e');
  const auto bytes = [](const std::string& s) {
    return std::span(reinterpret_cast<const uint8_t*>(s.data()), s.size());
  };
  const std::span<const uint8_t> parts[] = {bytes(first), bytes(second)};
  write_file_atomically(path_, old_text);
  const int faults = each_fault([&] { write_file_atomically(path_, parts); },
                                [&](bool done) {
                                  const std::string now = read_text_file(path_);
                                  const bool is_new = now == first + second;
                                  EXPECT_TRUE(is_new || (!done && now == old_text));
                                  EXPECT_EQ(files(), 1u) << "a temporary file was left";
                                  write_file_atomically(path_, old_text);
                                });
  EXPECT_GT(faults, 20);
}

TEST_F(FileFaults, AFailedReadReadsNothing) {
  std::vector<uint8_t> bytes(100'000);
  std::iota(bytes.begin(), bytes.end(), uint8_t{0});
  write_file_atomically(path_, bytes);
  const std::function<bool()> ways[] = {
      [&] { return read_file(path_) == bytes; },
      [&] { return std::ranges::equal(copy_file(path_, 1 << 20, "").bytes, bytes); },
      [&] { return std::ranges::equal(MappedFile::open(path_)->bytes(), bytes); },
  };
  for (const auto& reads_right : ways) {
    bool right = false;
    const int faults = each_fault(
        [&] {
          right = false;
          right = reads_right();
        },
        [&](bool done) { EXPECT_EQ(done, right); });
    EXPECT_GT(faults, 4);
  }
}

TEST_F(FileFaults, Archives) {
  NamedArrays arrays;
  for (const char* name : {"a", "the_second_of_two_arrays"})
    arrays.emplace_back(name, Array{DType::kF32, {2, 3}, std::vector<uint8_t>(24, 7)});
  write_npz(path_, arrays);
  NamedArrays other = arrays;
  other[1].second.bytes[0] = 8;
  EXPECT_GT(each_fault([&] { write_npz(path_, other); },
                       [&](bool done) {
                         const NamedArrays now = read_npz(path_);
                         EXPECT_TRUE(now == other || (!done && now == arrays));
                         EXPECT_EQ(files(), 1u);
                         write_npz(path_, arrays);
                       }),
            20);
  EXPECT_GT(each_fault([&] { NIMBLE_CHECK(read_npz(path_) == arrays); }, [](bool) {}), 10);
}

}  // namespace
}  // namespace nimble
