// Many sessions of several models on many threads that share one thread pool, while others cancel
// and suspend them: no result may be wrong, no request hit another run. The thread sanitizer's
// main course (scripts/sanitize thread).
#include <atomic>
#include <random>
#include <thread>

#include "vm/interpreter/test/harness.h"

namespace nimble::rt {
namespace {

// y = x + n * w by a loop of kernels.
constexpr char kSteps[] = R"(
constant "w" f32 [3] { 1, 2, 3 }
scalar "minus" [a0 1 -]
function "main" 2 9 {
  ShapeOf r2, 1, r1
  ShapeOf r3, 1, r0
  LoadConst r4, c"w"
loop:
  If r2, @more, @done
more:
  Invoke r5, f"bytes", (r3)
  AllocStorage r5, r5, 64, d0
  LoadConsti r6, 0
  AllocTensorReg r7, r5, r6, f32, (r3)
  InvokePacked k"add", (r0, r4, r7)
  Move r0, r7
  Invoke r2, f"minus", (r2)
  Goto @loop
done:
  Ret r0
}
entry "main" f0 {
  input "x" f32 ["n"] [-1]
  input "count" f32 ["m"] [-1]
  output "y" f32 ["n"] [-1]
}
)";

class Stress : public Interpreter {};

TEST_F(Stress, ThreadsSessionsModelsAndCancels) {
  constexpr int kThreads = 8, kSessions = 4, kRounds = 6;
  std::string twice = std::string(kAddKernel) + kSteps;
  twice.replace(twice.find("{ 1, 2, 3 }"), 11, "{ 2, 4, 6 }");
  const std::shared_ptr<const Model> models[] = {
      Model::load(exec::assemble(std::string(kAddKernel) + kSteps), {}, "once"),
      Model::load(exec::assemble(twice), {}, "twice")};
  // Sessions belong to a thread; cancels come from all.
  std::vector<std::vector<std::unique_ptr<Session>>> sessions(kThreads);
  for (int t = 0; t < kThreads; ++t)
    for (int s = 0; s < kSessions; ++s)
      sessions[t].push_back(
          std::make_unique<Session>(models[(t + s) % 2], SessionOptions{1 + (t + s) % 3}));

  std::atomic<int> done{0}, cancelled{0}, finished{0};
  const std::vector<float> zeros(200);
  auto work = [&](int t) {
    std::mt19937 random(static_cast<uint32_t>(t));
    for (int round = 0; round < kRounds; ++round)
      for (int s = 0; s < kSessions; ++s) {
        Session& session = *sessions[t][s];
        const int64_t count = random() % 100;
        const float x[] = {static_cast<float>(t), static_cast<float>(s), 0};
        const int64_t shape[] = {3}, counts[] = {count};
        const InputTensor in[] = {{x, DType::kF32, shape, {}, true},
                                  {zeros.data(), DType::kF32, counts, {}, true}};
        std::vector<OutputTensor> out(1);
        try {
          if (random() % 2 == 0) {
            session.run(0, in, out);
          } else {
            session.start(0, in);
            while (!session.resume(random() % 50, out)) {
              if (random() % 64 == 0) {
                session.abandon();
                break;
              }
            }
          }
        } catch (const Error& e) {
          ASSERT_EQ(e.status(), Status::kCancelled) << e.what();
          ASSERT_EQ(out[0].data, nullptr);
          ++cancelled;
          continue;
        }
        if (!out[0].data) continue;
        const auto* y = static_cast<const float*>(out[0].data);
        const float scale = static_cast<float>(count) * ((t + s) % 2 == 0 ? 1.0f : 2.0f);
        ASSERT_EQ(y[0], x[0] + scale);
        ASSERT_EQ(y[1], x[1] + 2 * scale);
        ASSERT_EQ(y[2], 3 * scale);
        ++finished;
      }
    ++done;
  };
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) threads.emplace_back(work, t);
  std::thread nuisance([&] {
    std::mt19937 random(99);
    while (done < kThreads) {
      Session& session = *sessions[random() % kThreads][random() % kSessions];
      if (random() % 4 == 0)
        session.cancel();
      else
        session.suspend();
      (void)session.state();
      (void)session.memory();
      std::this_thread::yield();
    }
  });
  for (std::thread& t : threads) t.join();
  nuisance.join();
  EXPECT_GT(finished, 0);
  EXPECT_LE(finished + cancelled, kThreads * kSessions * kRounds);
  // All are as good as new.
  for (const auto& of_thread : sessions)
    for (const auto& session : of_thread) {
      EXPECT_EQ(session->state(), RunControl::State::kIdle);
      EXPECT_EQ(session->live_objects(), 2u) << "the constant and its storage";
    }
}

TEST_F(Stress, SessionsComeAndGoWhileOthersRun) {
  load(std::string(kAddKernel) + kAddModel);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 20; ++i) {
        // Differing numbers of threads: pools are made, shared and dropped.
        Session session(model_, SessionOptions{1 + (t + i) % 4});
        const float x[] = {1, 2, 3};
        const int64_t shape[] = {3};
        const InputTensor in{x, DType::kF32, shape, {}, true};
        std::vector<OutputTensor> out(1);
        session.run(0, {&in, 1}, out);
        ASSERT_EQ(static_cast<const float*>(out[0].data)[2], 33.0f);
      }
    });
  for (std::thread& t : threads) t.join();
}

TEST(RunControl, ChangesStateAsAskedAndKeepsRequestsToTheirRun) {
  using State = RunControl::State;
  RunControl control;
  control.cancel();
  control.suspend();
  EXPECT_FALSE(control.interrupted());
  EXPECT_FALSE(control.go_on());
  ASSERT_TRUE(control.begin());
  EXPECT_FALSE(control.begin());
  EXPECT_FALSE(control.go_on());
  EXPECT_EQ(control.state(), State::kRunning);
  EXPECT_FALSE(control.interrupted());
  control.suspend();
  EXPECT_TRUE(control.interrupted());
  EXPECT_FALSE(control.cancelled());
  control.stay();
  EXPECT_FALSE(control.interrupted());
  control.suspend();
  control.pause();
  EXPECT_EQ(control.state(), State::kSuspended);
  EXPECT_FALSE(control.interrupted()) << "the request was answered";
  EXPECT_FALSE(control.begin());
  control.suspend();
  EXPECT_FALSE(control.interrupted());
  control.cancel();
  ASSERT_TRUE(control.go_on());
  EXPECT_TRUE(control.cancelled()) << "kept for the resumed run";
  control.end();
  EXPECT_EQ(control.state(), State::kIdle);
  ASSERT_TRUE(control.begin());
  EXPECT_FALSE(control.interrupted()) << "not for the next one";
}

TEST(RunControl, KnowsRunsByNumber) {
  RunControl control;
  EXPECT_EQ(control.number(), 0u);
  control.cancel(2);  // too far ahead
  ASSERT_TRUE(control.begin());
  EXPECT_EQ(control.number(), 1u);
  EXPECT_FALSE(control.interrupted());
  control.cancel(2);
  EXPECT_FALSE(control.interrupted()) << "the next is meant";
  control.cancel(1);
  EXPECT_TRUE(control.cancelled());
  control.end();
  control.cancel(1);  // too late
  ASSERT_TRUE(control.begin());
  EXPECT_EQ(control.number(), 2u);
  EXPECT_TRUE(control.cancelled()) << "as asked for before";
  control.end();
  ASSERT_TRUE(control.begin());
  EXPECT_FALSE(control.interrupted()) << "once";
  control.pause();
  control.cancel(2);
  control.cancel(0);
  EXPECT_FALSE(control.cancelled());
  control.cancel(3);
  EXPECT_TRUE(control.cancelled());
}

}  // namespace
}  // namespace nimble::rt
