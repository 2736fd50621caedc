// Sessions across fork(), as Python's multiprocessing uses it: the child goes on with what it
// finds.
#include <atomic>
#include <thread>

#include "vm/api/test/hook_model.h"
#include "vm/base/fault/child.h"

namespace nimble {
namespace {

class ForkApi : public HookModel {};

TEST_F(ForkApi, AChildGoesOnWithAllThatItFinds) {
  if (!kThreadsStartAfterFork) GTEST_SKIP() << "ThreadSanitizer numbers a child's threads anew";
  ASSERT_EQ(run(session_), NIMBLE_OK);
  nimble_tensor kept = NIMBLE_TENSOR_INIT;
  ASSERT_EQ(nimble_session_run(session_, nullptr, nullptr, &input_, 1, &kept, 1), NIMBLE_OK);
  ASSERT_EQ(start(), NIMBLE_OK);  // suspended: no thread runs it
  for (int i = 0; i < 3; ++i)
    EXPECT_EQ(in_child([&] {
                bool well = resume() == NIMBLE_OK;
                for (int k = 0; k < 5; ++k) well = well && run(session_) == NIMBLE_OK;
                nimble_session* another = session();
                well = well && run(another) == NIMBLE_OK && nimble_session_threads(another) == 2;
                nimble_session_destroy(another);
                nimble_session_destroy(session_);
                well = well && static_cast<float*>(kept.data)[2] == 3;
                nimble_tensor_release(&kept);
                nimble_model_destroy(model_);
                nimble_model* fresh = load_hook_model();
                nimble_model_destroy(fresh);
                return well && fresh != nullptr;
              }),
              "");
  EXPECT_EQ(resume(), NIMBLE_OK);
  EXPECT_EQ(run(session_), NIMBLE_OK);
  nimble_tensor_release(&kept);
}

TEST_F(ForkApi, WhatAnotherThreadWasRunningIsLost) {
  if (!kAllocatorSurvivesFork) GTEST_SKIP() << kWhyNot;  // that thread may be in it
  nimble_session* busy = session();
  std::thread other([&] { EXPECT_EQ(run(busy, "spin"), NIMBLE_CANCELLED); });
  while (position(busy).state != NIMBLE_RUN_RUNNING) std::this_thread::yield();
  EXPECT_EQ(in_child([&] {
              bool well = run(session_) == NIMBLE_OK;
              well = well && run(busy) == NIMBLE_INVALID_ARGUMENT;
              (void)memory(busy);
              nimble_session_trim(busy);
              nimble_session_set_profiling(busy, 1);
              well = well && nimble_session_profile_json(busy)[0] == '{';
              nimble_session_destroy(busy);
              nimble_session_destroy(session_);
              return well;
            }),
            "");
  nimble_cancel(busy);
  other.join();
  nimble_session_destroy(busy);
}

// Others run, trim and release at the time of the fork.
TEST_F(ForkApi, OthersAreBusyMeanwhile) {
  if (!kAllocatorSurvivesFork) GTEST_SKIP() << kWhyNot;
  nimble_session* theirs = session();
  std::atomic<bool> stop{false};
  std::thread runs([&] {
    while (!stop) EXPECT_EQ(run(theirs), NIMBLE_OK);
  });
  std::thread asks([&] {
    while (!stop) {
      nimble_session_trim(session_);
      (void)nimble_session_profile_json(session_);
    }
  });
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(in_child([&] { return run(session_) == NIMBLE_OK && run(session_) == NIMBLE_OK; }),
              "");
    EXPECT_EQ(run(session_), NIMBLE_OK);
  }
  stop = true;
  runs.join();
  asks.join();
  nimble_session_destroy(theirs);
}

}  // namespace
}  // namespace nimble
