// Runs in slices: every cut gives the same bytes, other sessions run in between, and what is left
// of a run that is never finished is nothing.
#include <atomic>
#include <cstring>
#include <thread>

#include "vm/interpreter/test/harness.h"

namespace nimble::rt {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using State = RunControl::State;

// y = x + n * w for n of the input's length, by a recursion that is no tail call, through a
// closure, with a kernel in each step.
constexpr char kLoop[] = R"(
constant "w" f32 [3] { 10, 20, 30 }
scalar "minus" [a0 1 -]
function "main" 1 4 {
  ShapeOf r1, 1, r0
  AllocClosure r2, f"step", (r0)
  Invoke r3, f"repeat", (r2, r1)
  Move r1, r3
  Ret r1
}
function "repeat" 2 5 {
  If r1, @more, @done
more:
  .origin "loop at /Loop"
  .note "add at /Loop/Add"
  Invoke r2, f"minus", (r1)
  Invoke r3, f"repeat", (r0, r2)
  InvokeClosure r4, r0, (r3)
  Ret r4
done:
  LoadConst r2, c"w"
  Ret r2
}
function "step" 2 7 {
  ShapeOf r2, 1, r0
  Invoke r3, f"bytes", (r2)
  AllocStorage r3, r3, 64, d0
  LoadConsti r4, 0
  AllocTensorReg r5, r3, r4, f32, (r2)
  InvokePacked k"add", (r0, r1, r5)
  Ret r5
}
entry "main" f0 {
  input "x" f32 ["n"] [-1]
  output "y" f32 ["n"] [-1]
}
)";

class Suspend : public Interpreter {
 protected:
  void SetUp() override {
    Interpreter::SetUp();
    load(std::string(kAddKernel) + kLoop);
    objects_ = session_->live_objects();
  }
  static InputTensor input() {
    static const float x[] = {1, 2, 3};
    static const int64_t shape[] = {3};
    return {x, DType::kF32, shape, {}, true};
  }
  void start(Session& session) {
    const InputTensor in = input();
    session.start(0, {&in, 1});
  }
  // Carries a run on to its end in slices, and returns how many there were.
  int finish(Session& session, uint64_t slice) {
    std::vector<OutputTensor> out(1);
    int slices = 1;
    while (!session.resume(slice, out)) {
      EXPECT_EQ(session.state(), State::kSuspended);
      EXPECT_EQ(out[0].data, nullptr);
      ++slices;
    }
    EXPECT_EQ(session.state(), State::kIdle);
    const auto* y = static_cast<const float*>(out[0].data);
    EXPECT_THAT(std::vector<float>(y, y + 3), ElementsAre(13, 26, 39));
    return slices;
  }
  uint64_t objects_ = 0;
};

TEST_F(Suspend, EverySliceLengthGivesTheSame) {
  EXPECT_THAT(run({{{3}, {1, 2, 3}}})[0].floats, ElementsAre(13, 26, 39));
  start(*session_);
  int last = finish(*session_, 1);
  EXPECT_GT(last, 30);
  for (uint64_t slice : {2, 3, 5, 7, 11, 1000}) {
    start(*session_);
    const int slices = finish(*session_, slice);
    EXPECT_LE(slices, last);
    last = slices;
  }
  EXPECT_EQ(last, 1);
  EXPECT_EQ(session_->live_objects(), objects_);
}

TEST_F(Suspend, TellsWhereItStands) {
  start(*session_);
  EXPECT_EQ(session_->position().function, 0u);
  EXPECT_EQ(session_->position().instruction, 0u);
  EXPECT_EQ(session_->position().depth, 1u);
  std::vector<OutputTensor> out(1);
  ASSERT_FALSE(session_->resume(2, out));
  EXPECT_EQ(session_->position().instruction, 2u);
  EXPECT_EQ(session_->position().instructions, 2u);
  ASSERT_FALSE(session_->resume(2, out));
  const Position at = session_->position();
  EXPECT_EQ(model_->functions()[at.function].place_of(at.instruction),
            "function \"repeat\" (loop at /Loop), add at /Loop/Add, instruction 1");
  EXPECT_EQ(at.depth, 2u);
  EXPECT_EQ(at.instructions, 4u);
  finish(*session_, 0);
}

TEST_F(Suspend, OthersRunInBetweenOnTheSameThreadAndOnOthers) {
  Session urgent(model_, SessionOptions{2});
  start(*session_);
  std::vector<OutputTensor> out(1);
  for (int i = 0; i < 25; ++i) {
    // Each slice on a thread of its own.
    std::thread([&] { ASSERT_FALSE(session_->resume(1, out)); }).join();
    start(urgent);
    finish(urgent, 4);
  }
  finish(*session_, 3);
  EXPECT_EQ(session_->live_objects(), objects_);
}

TEST_F(Suspend, SuspendsOnRequest) {
  load(R"(
constant "go" bool [1] { 1 }
function "main" 1 2 {
  LoadConst r1, c"go"
loop:
  If r1, @loop, @done
done:
  Ret r0
}
entry "main" f0 {
  input "x" f32 ["n"] [-1]
  output "y" f32 ["n"] [-1]
}
)");
  session_->suspend();  // nothing runs: nothing happens
  start(*session_);
  session_->suspend();  // nor here
  std::vector<OutputTensor> out(1);
  ASSERT_FALSE(session_->resume(1, out));
  EXPECT_EQ(session_->position().instruction, 1u) << "the slice's end, not a request's";
  for (int i = 0; i < 3; ++i) {
    std::atomic<bool> back{false};
    std::thread other([&] {
      while (!back) {
        session_->suspend();
        std::this_thread::yield();
      }
    });
    EXPECT_FALSE(session_->resume(0, out));
    back = true;
    other.join();
    EXPECT_EQ(session_->position().instruction, 1u);
  }
  // While it is suspended the session takes no other run, and it can be cancelled.
  EXPECT_THAT(failure({{{3}, {1, 2, 3}}}, Status::kInvalidArgument), HasSubstr("suspended run"));
  session_->cancel();
  EXPECT_EQ(session_->state(), State::kSuspended);
  try {
    session_->resume(0, out);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.status(), Status::kCancelled);
    EXPECT_THAT(e.what(), HasSubstr("\"main\", instruction 1: "));
  }
  EXPECT_EQ(session_->state(), State::kIdle);
}

TEST_F(Suspend, RequestsWithoutARunAreForgotten) {
  session_->cancel();
  session_->suspend();
  start(*session_);
  EXPECT_EQ(finish(*session_, 0), 1);
  session_->cancel();
  EXPECT_THAT(run({{{3}, {1, 2, 3}}})[0].floats, ElementsAre(13, 26, 39));
}

TEST_F(Suspend, AWholeRunTakesNoNoticeOfSuspend) {
  std::atomic<bool> done{false};
  std::thread other([&] {
    while (!done) session_->suspend();
  });
  for (int i = 0; i < 200; ++i)
    ASSERT_THAT(run({{{3}, {1, 2, 3}}})[0].floats, ElementsAre(13, 26, 39));
  done = true;
  other.join();
}

TEST_F(Suspend, FuelCountsOverAllSlices) {
  load(std::string(kAddKernel) + kLoop, {2, false, 0, 20});
  start(*session_);
  std::vector<OutputTensor> out(1);
  for (int i = 0; i < 2; ++i) ASSERT_FALSE(session_->resume(9, out));
  try {
    session_->resume(9, out);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.status(), Status::kExhausted);
    EXPECT_THAT(e.what(), HasSubstr("more than 20 instructions"));
  }
  EXPECT_EQ(session_->state(), State::kIdle);
}

TEST_F(Suspend, AnUnfinishedRunLeavesNothing) {
  // At each instruction in turn: dropped, cancelled, destroyed.
  for (uint64_t at = 0; at < 45; ++at) {
    std::vector<OutputTensor> out(1);
    auto go = [&] {
      start(*session_);
      return at == 0 || !session_->resume(at, out);
    };
    if (!go()) break;
    session_->abandon();
    session_->abandon();
    EXPECT_EQ(session_->live_objects(), objects_);
    EXPECT_EQ(session_->state(), State::kIdle);
    ASSERT_TRUE(go());
    session_->cancel();
    EXPECT_THROW(session_->resume(0, out), Error);
    EXPECT_EQ(session_->live_objects(), objects_);
    ASSERT_TRUE(go());
    // Its heap aborts if an object is left.
    session_ = std::make_unique<Session>(model_, SessionOptions{2});
  }
}

TEST_F(Suspend, WrongUseIsToldAndHarmless) {
  std::vector<OutputTensor> out(1), many(2);
  auto told = [&](auto&& call, const char* text) {
    try {
      call();
      ADD_FAILURE() << "no failure: " << text;
    } catch (const Error& e) {
      EXPECT_EQ(e.status(), Status::kInvalidArgument);
      EXPECT_THAT(e.what(), HasSubstr(text));
    }
  };
  told([&] { session_->resume(0, out); }, "no suspended run");
  told([&] { session_->start(0, {}); }, "takes 1 inputs, not 0");
  EXPECT_EQ(session_->state(), State::kIdle);
  start(*session_);
  told([&] { start(*session_); }, "has a suspended run");
  told([&] { session_->resume(0, many); }, "gives 1 outputs, not 2");
  finish(*session_, 0);
  // Too small a buffer ends the run.
  start(*session_);
  float small[2];
  out[0].destination = small;
  out[0].capacity = sizeof small;
  told([&] { session_->resume(0, out); }, "12 bytes");
  EXPECT_EQ(session_->state(), State::kIdle);
  EXPECT_EQ(session_->live_objects(), objects_);
}

TEST_F(Suspend, TheProfilerCountsOneRun) {
  session_->set_profiling(true);
  start(*session_);
  finish(*session_, 2);
  const std::string json = session_->profiler().json(model_->executable());
  EXPECT_THAT(json, HasSubstr("\"runs\":1,"));
}

}  // namespace
}  // namespace nimble::rt
