// What may be asked of a session while it runs: by the run itself, in a kernel that calls back, and
// by other threads.
#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "vm/api/test/hook_model.h"

namespace nimble {
namespace {

using ::testing::HasSubstr;

class Lifecycle : public HookModel {};

TEST_F(Lifecycle, RunsAreNumbered) {
  EXPECT_EQ(nimble_session_next_run(session_), 1u);
  EXPECT_EQ(position(session_).run, 0u);
  hook = [&] {
    EXPECT_EQ(position(session_).state, NIMBLE_RUN_RUNNING);
    EXPECT_EQ(position(session_).run, 1u);
    EXPECT_EQ(nimble_session_next_run(session_), 2u);
    EXPECT_EQ(run(session_), NIMBLE_INVALID_ARGUMENT) << "busy: begins none";
    EXPECT_EQ(nimble_session_next_run(session_), 2u);
  };
  ASSERT_EQ(run(session_), NIMBLE_OK) << nimble_last_error();
  hook = nullptr;
  EXPECT_EQ(run(session_, "none"), NIMBLE_NOT_FOUND);
  EXPECT_EQ(nimble_session_next_run(session_), 3u) << "one that fails early counts";
  ASSERT_EQ(start(), NIMBLE_OK);
  EXPECT_EQ(position(session_).run, 3u);
  EXPECT_EQ(nimble_session_next_run(session_), 4u);
  EXPECT_EQ(resume(), NIMBLE_OK);
  EXPECT_EQ(position(session_).run, 0u);
  EXPECT_EQ(nimble_session_next_run(nullptr), 0u);
}

TEST_F(Lifecycle, ALateCancelHitsNoOtherRun) {
  const uint64_t first = nimble_session_next_run(session_);
  ASSERT_EQ(run(session_), NIMBLE_OK);
  nimble_cancel_run(session_, first);  // over
  ASSERT_EQ(run(session_), NIMBLE_OK) << nimble_last_error();
  // In the midst of another, too.
  hook = [&] { nimble_cancel_run(session_, first); };
  ASSERT_EQ(run(session_), NIMBLE_OK) << nimble_last_error();
  hook = nullptr;
  ASSERT_EQ(start(), NIMBLE_OK);
  nimble_cancel_run(session_, first);
  EXPECT_EQ(resume(), NIMBLE_OK) << nimble_last_error();
  // The run that is meant is hit.
  const uint64_t mine = nimble_session_next_run(session_);
  hook = [&] { nimble_cancel_run(session_, mine); };
  EXPECT_EQ(run(session_), NIMBLE_CANCELLED);
  hook = nullptr;
  ASSERT_EQ(start(), NIMBLE_OK);
  nimble_cancel_run(session_, mine + 1);
  EXPECT_EQ(resume(), NIMBLE_CANCELLED);
  nimble_cancel_run(nullptr, 1);
}

TEST_F(Lifecycle, AnEarlyCancelWaitsForItsRun) {
  const uint64_t next = nimble_session_next_run(session_);
  nimble_cancel_run(session_, next + 1);  // nobody can know of it yet
  nimble_cancel_run(session_, next);
  EXPECT_EQ(run(session_), NIMBLE_CANCELLED);
  EXPECT_EQ(run(session_), NIMBLE_OK);
  // Asked for while the one before is still in progress.
  hook = [&] { nimble_cancel_run(session_, nimble_session_next_run(session_)); };
  EXPECT_EQ(run(session_), NIMBLE_OK);
  hook = nullptr;
  ASSERT_EQ(start(), NIMBLE_OK);
  EXPECT_EQ(resume(), NIMBLE_CANCELLED);
  EXPECT_EQ(run(session_), NIMBLE_OK);
}

TEST_F(Lifecycle, ATrimDuringARunComesAtItsEnd) {
  // An output of 4000 bytes, given back, is kept; one of 12 bytes is a block of 64.
  const std::vector<float> thousand(1000);
  const int64_t extent = 1000;
  auto keep_a_block = [&] {
    nimble_tensor larger = input_, output = NIMBLE_TENSOR_INIT;
    larger.data = const_cast<float*>(thousand.data());
    larger.shape = &extent;
    ASSERT_EQ(nimble_session_run(session_, nullptr, nullptr, &larger, 1, &output, 1), NIMBLE_OK);
    nimble_tensor_release(&output);
  };
  auto kept = [&] { return memory(session_).reserved - memory(session_).in_use; };
  keep_a_block();
  ASSERT_GE(kept(), 4000u);
  hook = [&] {
    const uint64_t reserved = memory(session_).reserved;
    nimble_session_trim(session_);
    EXPECT_EQ(memory(session_).reserved, reserved);
  };
  ASSERT_EQ(run(session_), NIMBLE_OK);
  EXPECT_EQ(kept(), 64u) << "that run's output, given back after it";
  // It was one trim, not a habit.
  hook = nullptr;
  keep_a_block();
  ASSERT_EQ(run(session_), NIMBLE_OK);
  EXPECT_GE(kept(), 4000u);
  // Between two slices it comes at once.
  ASSERT_EQ(start(), NIMBLE_OK);
  ASSERT_EQ(resume(5), NIMBLE_SUSPENDED);
  nimble_session_trim(session_);
  EXPECT_EQ(kept(), 0u);
  EXPECT_EQ(resume(), NIMBLE_OK);
}

TEST_F(Lifecycle, AProfileIsOfWholeRuns) {
  auto runs = [&] {
    const std::string json = nimble_session_profile_json(session_);
    const size_t at = json.find("\"runs\":");
    return at == std::string::npos ? -1 : std::stoi(json.substr(at + 7));
  };
  hook = [&] { nimble_session_set_profiling(session_, 1); };
  ASSERT_EQ(run(session_), NIMBLE_OK);
  EXPECT_EQ(runs(), 0) << "it began before the profile";
  hook = [&] { EXPECT_EQ(runs(), 0); };
  ASSERT_EQ(run(session_), NIMBLE_OK);
  EXPECT_EQ(runs(), 1);
  hook = [&] { nimble_session_set_profiling(session_, 0); };
  ASSERT_EQ(run(session_), NIMBLE_OK);
  EXPECT_EQ(runs(), 2) << "the run in progress is not affected";
  ASSERT_EQ(run(session_), NIMBLE_OK);
  EXPECT_EQ(runs(), 2);
  EXPECT_THAT(nimble_session_profile_table(session_), HasSubstr("hook [n=3]"));
}

// A kernel seen in two runs is one row of the profile, seen on two shapes two.
TEST_F(Lifecycle, AProfileAddsUp) {
  nimble_session_set_profiling(session_, 1);
  ASSERT_EQ(run(session_), NIMBLE_OK);
  ASSERT_EQ(run(session_), NIMBLE_OK);
  const int64_t two = 2;
  nimble_tensor shorter = input_, output = NIMBLE_TENSOR_INIT;
  shorter.shape = &two;
  ASSERT_EQ(nimble_session_run(session_, nullptr, nullptr, &shorter, 1, &output, 1), NIMBLE_OK);
  nimble_tensor_release(&output);
  const std::string json = nimble_session_profile_json(session_);
  EXPECT_THAT(json, HasSubstr("\"runs\":3"));
  EXPECT_THAT(json, HasSubstr("{\"count\":3,\"name\":\"InvokePacked\""));
  EXPECT_THAT(json, HasSubstr("\"count\":2,\"implementation\":\"test.hook\""));
  EXPECT_THAT(json, HasSubstr("\"count\":1,\"implementation\":\"test.hook\""));
}

TEST_F(Lifecycle, DestroyedDuringARunItGoesAtItsEnd) {
  hook = [&] { nimble_session_destroy(session_); };
  EXPECT_EQ(run(session_), NIMBLE_CANCELLED);
  session_ = session();
  ASSERT_EQ(start(), NIMBLE_OK);
  EXPECT_EQ(resume(), NIMBLE_CANCELLED);
  session_ = session();
  // In a prepared call, which is then good for nothing but to be destroyed.
  nimble_call* call = nullptr;
  ASSERT_EQ(nimble_call_prepare(session_, nullptr, nullptr, 1, 1, &call), NIMBLE_OK);
  nimble_tensor output = NIMBLE_TENSOR_INIT;
  EXPECT_EQ(nimble_call_run(call, &input_, &output), NIMBLE_CANCELLED);
  nimble_call_destroy(call);
  session_ = nullptr;
}

TEST_F(Lifecycle, DestroyedByAnotherThreadDuringARun) {
  for (int i = 0; i < 20; ++i) {
    std::thread destroys([&] {
      // Once the run has begun, no more is asked of the session but to go.
      while (position(session_).state != NIMBLE_RUN_RUNNING) std::this_thread::yield();
      nimble_session_destroy(session_);
    });
    EXPECT_EQ(run(session_, "spin"), NIMBLE_CANCELLED);
    destroys.join();
    session_ = session();
  }
}

// Everything that may come from other threads, at once. The thread sanitizer's course.
TEST_F(Lifecycle, OthersAskForEverythingMeanwhile) {
  constexpr int kRuns = 300;
  std::atomic<bool> done{false};
  std::vector<std::thread> others;
  for (int t = 0; t < 3; ++t)
    others.emplace_back([&, t] {
      for (unsigned i = static_cast<unsigned>(t); !done; ++i) {
        switch (i % 11) {
          case 0:
            nimble_session_trim(session_);
            break;
          case 1:
            nimble_session_set_profiling(session_, static_cast<int32_t>(i / 11 % 2));
            break;
          case 2:
            EXPECT_THAT(nimble_session_profile_json(session_), HasSubstr("runs"));
            break;
          case 3:
            EXPECT_THAT(nimble_session_profile_table(session_), HasSubstr("run"));
            break;
          case 4:
            nimble_session_suspend(session_);
            break;
          case 5:
            EXPECT_GE(memory(session_).reserved, 0u);
            break;
          case 6:
            EXPECT_GE(position(session_).state, NIMBLE_RUN_NONE);
            break;
          case 7:
            nimble_cancel_run(session_, nimble_session_next_run(session_));
            break;
          case 8:
            EXPECT_GT(nimble_session_threads(session_), 0);
            break;
          case 9:
            nimble_session_abandon(session_);
            break;
          default:
            nimble_cancel(session_);
        }
        std::this_thread::yield();
      }
    });
  for (int i = 0; i < kRuns; ++i) {
    if (i % 2 == 0) {
      const nimble_status status = run(session_);
      EXPECT_TRUE(status == NIMBLE_OK || status == NIMBLE_CANCELLED) << nimble_last_error();
      continue;
    }
    ASSERT_EQ(start(), NIMBLE_OK) << nimble_last_error();
    nimble_status status;
    while ((status = resume(3)) == NIMBLE_SUSPENDED) {
    }
    // Abandoned in between: there is no run any more.
    EXPECT_TRUE(status == NIMBLE_OK || status == NIMBLE_CANCELLED ||
                status == NIMBLE_INVALID_ARGUMENT)
        << nimble_last_error();
  }
  done = true;
  for (std::thread& t : others) t.join();
  nimble_session_abandon(session_);
  EXPECT_NE(run(session_), NIMBLE_INVALID_ARGUMENT);  // it may be cancelled before it begins
  EXPECT_EQ(run(session_), NIMBLE_OK) << nimble_last_error();
}

}  // namespace
}  // namespace nimble
