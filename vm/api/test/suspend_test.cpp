// Limits and suspended runs through the C and C++ interface.
#include <gmock/gmock.h>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "vm/api/nimble.h"
#include "vm/api/nimble.hpp"
#include "vm/executable/assembler.h"
#include "vm/executable/writer.h"

namespace {

using ::testing::HasSubstr;

// steps(x (n), count (m)) copies x m times; deep(x (n)) nests n calls.
constexpr char kModel[] = R"ASM(
scalar "bytes" [a0 4 *]
scalar "minus" [a0 1 -]
kernel "copy" {
  source "copy"
  symbols n
  in f32 ([a0])
  out f32 ([a0])
  dispatch { 0: 0 }
  host "host.copy"
}
function "steps" 2 7 {
  ShapeOf r2, 1, r1
  ShapeOf r3, 1, r0
loop:
  If r2, @more, @done
more:
  .note "steps:%4 copy (/decoder/Copy)"
  Invoke r4, f"bytes", (r3)
  AllocStorage r4, r4, 64, d0
  LoadConsti r5, 0
  AllocTensorReg r6, r4, r5, f32, (r3)
  InvokePacked k"copy", (r0, r6)
  Move r0, r6
  Invoke r2, f"minus", (r2)
  Goto @loop
done:
  Ret r0
}
function "deep" 1 3 {
  ShapeOf r1, 1, r0
  Invoke r2, f"count", (r1)
  Move r1, r2
  Ret r1
}
function "count" 1 3 {
  If r0, @more, @done
more:
  Invoke r1, f"minus", (r0)
  Invoke r2, f"count", (r1)
  Move r0, r1
done:
  Ret r0
}
entry "steps" f0 {
  input "x" f32 ["n"] [-1]
  input "count" f32 ["m"] [-1]
  output "y" f32 ["n"] [-1]
}
entry "deep" f1 {
  input "x" f32 ["n"] [-1]
  output "y" i64 [] []
}
)ASM";

class SuspendApi : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto bytes = nimble::exec::serialize(nimble::exec::assemble(kModel));
    ASSERT_EQ(nimble_load_memory(bytes.data(), bytes.size(), nullptr, &model_), NIMBLE_OK);
    for (nimble_session** session : {&background_, &urgent_}) {
      nimble_session_options options = NIMBLE_SESSION_OPTIONS_INIT;
      options.threads = 2;
      ASSERT_EQ(nimble_session_create(model_, &options, session), NIMBLE_OK);
    }
    inputs_[0] = tensor(x_, &three_);
    inputs_[1] = tensor(zeros_.data(), &count_);
  }
  void TearDown() override {
    nimble_session_destroy(background_);
    nimble_session_destroy(urgent_);
    nimble_model_destroy(model_);
  }
  static nimble_tensor tensor(const float* data, const int64_t* extent) {
    nimble_tensor t = NIMBLE_TENSOR_INIT;
    t.data = const_cast<float*>(data);
    t.dtype = NIMBLE_F32;
    t.shape = extent;
    t.rank = 1;
    return t;
  }
  nimble_status start(nimble_session* session) {
    return nimble_session_start(session, nullptr, nullptr, inputs_, 2);
  }
  static nimble_status resume(nimble_session* session, uint64_t slice, nimble_tensor* output) {
    return nimble_session_resume(session, slice, output, 1);
  }
  static nimble_run_position position(nimble_session* session) {
    nimble_run_position p = NIMBLE_RUN_POSITION_INIT;
    EXPECT_EQ(nimble_session_position(session, &p), NIMBLE_OK);
    return p;
  }
  void expect_result(nimble_tensor* output) {
    ASSERT_NE(output->data, nullptr);
    EXPECT_EQ(std::memcmp(output->data, x_, sizeof x_), 0);
    nimble_tensor_release(output);
  }
  uint64_t in_use(nimble_session* session) {
    nimble_memory_stats stats = NIMBLE_MEMORY_STATS_INIT;
    EXPECT_EQ(nimble_session_memory(session, &stats), NIMBLE_OK);
    return stats.in_use;
  }

  nimble_model* model_ = nullptr;
  nimble_session *background_ = nullptr, *urgent_ = nullptr;
  const float x_[3] = {1.5f, -2.0f, 3.25f};
  const std::vector<float> zeros_ = std::vector<float>(1000);
  const int64_t three_ = 3, count_ = 1000;
  nimble_tensor inputs_[2];
};

TEST_F(SuspendApi, AnUrgentModelTakesOver) {
  nimble_tensor output = NIMBLE_TENSOR_INIT, other = NIMBLE_TENSOR_INIT;
  ASSERT_EQ(start(background_), NIMBLE_OK) << nimble_last_error();
  int slices = 0;
  nimble_status status;
  while ((status = resume(background_, 500, &output)) == NIMBLE_SUSPENDED) {
    ++slices;
    EXPECT_EQ(output.data, nullptr);
    // The urgent one runs from beginning to end.
    ASSERT_EQ(nimble_session_run(urgent_, nullptr, nullptr, inputs_, 2, &other, 1), NIMBLE_OK);
    expect_result(&other);
  }
  ASSERT_EQ(status, NIMBLE_OK) << nimble_last_error();
  EXPECT_GE(slices, 15);
  expect_result(&output);
}

TEST_F(SuspendApi, AnotherThreadAsksForTheProcessor) {
  nimble_tensor output = NIMBLE_TENSOR_INIT, other = NIMBLE_TENSOR_INIT;
  ASSERT_EQ(start(background_), NIMBLE_OK);
  std::atomic<bool> suspended{false};
  std::thread asks([&] {
    while (!suspended) {
      nimble_session_suspend(background_);
      std::this_thread::yield();
    }
  });
  // The run may have been over before the first request came: then once more.
  nimble_status status;
  while ((status = resume(background_, 0, &output)) == NIMBLE_OK) {
    expect_result(&output);
    ASSERT_EQ(start(background_), NIMBLE_OK);
  }
  suspended = true;
  asks.join();
  ASSERT_EQ(status, NIMBLE_SUSPENDED);
  EXPECT_EQ(position(background_).state, NIMBLE_RUN_SUSPENDED);
  ASSERT_EQ(nimble_session_run(urgent_, nullptr, nullptr, inputs_, 2, &other, 1), NIMBLE_OK);
  expect_result(&other);
  ASSERT_EQ(resume(background_, 0, &output), NIMBLE_OK);
  expect_result(&output);
}

TEST_F(SuspendApi, ShowsWhereARunStands) {
  EXPECT_EQ(position(background_).state, NIMBLE_RUN_NONE);
  EXPECT_EQ(position(background_).function, nullptr);
  ASSERT_EQ(start(background_), NIMBLE_OK);
  nimble_run_position at = position(background_);
  EXPECT_STREQ(at.function, "steps");
  EXPECT_EQ(at.instruction, 0u);
  EXPECT_STREQ(at.source, "");
  nimble_tensor output = NIMBLE_TENSOR_INIT;
  ASSERT_EQ(resume(background_, 7, &output), NIMBLE_SUSPENDED);
  at = position(background_);
  EXPECT_EQ(at.instruction, 7u);
  EXPECT_EQ(at.instructions, 7u);
  EXPECT_EQ(at.depth, 0u);
  EXPECT_STREQ(at.source, "steps:%4 copy (/decoder/Copy)");
  EXPECT_STREQ(nimble_status_name(NIMBLE_SUSPENDED), "suspended");
  // An older caller's struct ends early.
  nimble_run_position old = NIMBLE_RUN_POSITION_INIT;
  old.struct_size = offsetof(nimble_run_position, function);
  ASSERT_EQ(nimble_session_position(background_, &old), NIMBLE_OK);
  EXPECT_EQ(old.instruction, 7u);
  EXPECT_EQ(old.function, nullptr);
}

TEST_F(SuspendApi, CancelAbandonAndDestroyFreeEverything) {
  nimble_tensor output = NIMBLE_TENSOR_INIT;
  ASSERT_EQ(nimble_session_run(background_, nullptr, nullptr, inputs_, 2, &output, 1), NIMBLE_OK);
  nimble_tensor_release(&output);
  const uint64_t before = in_use(background_);
  auto go = [&] {
    ASSERT_EQ(start(background_), NIMBLE_OK);
    ASSERT_EQ(resume(background_, 100, &output), NIMBLE_SUSPENDED);
    EXPECT_GT(in_use(background_), before);
  };
  go();
  nimble_session_abandon(background_);
  nimble_session_abandon(background_);
  EXPECT_EQ(in_use(background_), before);
  EXPECT_EQ(resume(background_, 0, &output), NIMBLE_INVALID_ARGUMENT);
  EXPECT_THAT(nimble_last_error(), HasSubstr("no suspended run"));
  go();
  EXPECT_EQ(start(background_), NIMBLE_INVALID_ARGUMENT);
  EXPECT_THAT(nimble_last_error(), HasSubstr("suspended run"));
  EXPECT_EQ(nimble_session_run(background_, nullptr, nullptr, inputs_, 2, &output, 1),
            NIMBLE_INVALID_ARGUMENT);
  nimble_cancel(background_);
  EXPECT_EQ(resume(background_, 0, &output), NIMBLE_CANCELLED);
  EXPECT_EQ(in_use(background_), before);
  go();
  nimble_session_destroy(background_);
  background_ = nullptr;
  EXPECT_EQ(nimble_session_start(nullptr, nullptr, nullptr, nullptr, 0), NIMBLE_INVALID_ARGUMENT);
  EXPECT_EQ(nimble_session_resume(nullptr, 0, nullptr, 0), NIMBLE_INVALID_ARGUMENT);
  EXPECT_EQ(nimble_session_position(nullptr, nullptr), NIMBLE_INVALID_ARGUMENT);
  nimble_session_suspend(nullptr);
  nimble_session_abandon(nullptr);
}

TEST_F(SuspendApi, ABadOutputLeavesTheRunSuspended) {
  ASSERT_EQ(start(background_), NIMBLE_OK);
  nimble_tensor outputs[2] = {NIMBLE_TENSOR_INIT, NIMBLE_TENSOR_INIT};
  EXPECT_EQ(nimble_session_resume(background_, 0, outputs, 2), NIMBLE_INVALID_ARGUMENT);
  EXPECT_THAT(nimble_last_error(), HasSubstr("1 outputs, not 2"));
  EXPECT_EQ(nimble_session_resume(background_, 0, nullptr, 1), NIMBLE_INVALID_ARGUMENT);
  EXPECT_EQ(position(background_).state, NIMBLE_RUN_SUSPENDED);
  ASSERT_EQ(resume(background_, 0, outputs), NIMBLE_OK);
  expect_result(outputs);
}

TEST_F(SuspendApi, LimitsAreSetFromC) {
  const std::vector<float> x(100'000);
  const int64_t many = 100'000, few = 100;
  const nimble_tensor much = tensor(x.data(), &many), little = tensor(x.data(), &few);
  auto fails = [&](nimble_session_options options, const char* text) {
    options.threads = 1;
    nimble_session* session = nullptr;
    ASSERT_EQ(nimble_session_create(model_, &options, &session), NIMBLE_OK);
    nimble_tensor output = NIMBLE_TENSOR_INIT;
    for (int i = 0; i < 2; ++i) {
      EXPECT_EQ(nimble_session_run(session, "deep", nullptr, &much, 1, &output, 1),
                NIMBLE_EXHAUSTED);
      EXPECT_THAT(nimble_last_error(), HasSubstr(text));
      EXPECT_THAT(nimble_last_error(), HasSubstr("function \"count\", instruction "));
      EXPECT_EQ(output.data, nullptr);
      ASSERT_EQ(nimble_session_run(session, "deep", nullptr, &little, 1, &output, 1), NIMBLE_OK)
          << nimble_last_error();
      nimble_tensor_release(&output);
    }
    nimble_session_destroy(session);
  };
  nimble_session_options options = NIMBLE_SESSION_OPTIONS_INIT;
  fails(options, "nested more than 100000 deep");
  options.depth = 200;
  fails(options, "nested more than 200 deep");
  options.depth = 0;
  options.fuel = 1000;
  fails(options, "more than 1000 instructions");
  options.fuel = 0;
  options.memory_limit = 1 << 20;
  fails(options, "memory limit of 1048576 bytes");
}

TEST(SuspendCpp, LimitsSlicesAndPositions) {
  const std::string path = ::testing::TempDir() + "suspend_test.nimble";
  nimble::exec::write(nimble::exec::assemble(kModel), path);
  const nimble::api::Model model(path);
  std::remove(path.c_str());
  const std::vector<float> x = {1, 2, 3}, count(100);
  const std::vector<nimble::api::NamedView> inputs = {
      {"x", nimble::api::view(x.data(), {3})}, {"count", nimble::api::view(count.data(), {100})}};
  nimble::api::SessionOptions options;
  options.threads = 1;
  nimble::api::Session session(model, options);
  session.start(inputs);
  int slices = 0;
  std::optional<std::vector<nimble::api::Tensor>> outputs;
  while (!(outputs = session.resume(50))) {
    EXPECT_STREQ(session.position().function, "steps");
    ++slices;
  }
  EXPECT_GE(slices, 15);
  EXPECT_EQ((*outputs)[0].data<float>()[2], 3.0f);
  session.start(inputs);
  ASSERT_FALSE(session.resume(50));
  session.suspend();  // it is suspended already
  session.abandon();
  EXPECT_EQ(session.position().state, NIMBLE_RUN_NONE);
  EXPECT_EQ(session.run(inputs)[0].data<float>()[1], 2.0f);

  auto status = [&](nimble::api::SessionOptions limited) {
    limited.threads = 1;
    nimble::api::Session s(model, limited);
    try {
      s.run({{"x", nimble::api::view(count.data(), {100})}}, "deep");
    } catch (const nimble::api::Error& e) {
      return e.status();
    }
    return nimble_status{NIMBLE_OK};
  };
  EXPECT_EQ(status({}), NIMBLE_OK);
  EXPECT_EQ(status({.fuel = 100}), NIMBLE_EXHAUSTED);
  EXPECT_EQ(status({.depth = 50}), NIMBLE_EXHAUSTED);
  EXPECT_EQ(status({.memory_limit = 1000}), NIMBLE_EXHAUSTED);
}

}  // namespace
