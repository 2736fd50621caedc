// Fuel, depth and memory: where they bite, and that a session survives it.
#include <thread>

#include "vm/base/fault/failing_new.h"
#include "vm/interpreter/test/harness.h"

namespace nimble::rt {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Counts down from n by recursion that is not in tail position.
constexpr char kRecursion[] = R"(
scalar "minus" [a0 1 -]
scalar "plus" [a0 1 +]
function "main" 1 3 {
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
  Invoke r0, f"plus", (r2)
done:
  Ret r0
}
)";

TEST_F(Interpreter, RecursionIsBoundedByDepthOnly) {
  const std::string text = std::string(kRecursion) + kScalarEntry;
  SessionOptions options;
  options.depth = 50;
  load(text, options);
  const std::vector<float> data(90000);
  EXPECT_THAT(run({{{40}, data}})[0].integers, ElementsAre(40));
  EXPECT_THAT(failure({{{60}, data}}, Status::kExhausted), HasSubstr("more than 50 deep"));
  EXPECT_THAT(run({{{40}, data}})[0].integers, ElementsAre(40));
  load(text);
  EXPECT_THAT(run({{{90000}, data}})[0].integers, ElementsAre(90000));
}

TEST_F(Interpreter, TailCallsTakeNoSpace) {
  SessionOptions options;
  options.depth = 2;
  options.memory_limit = 1 << 20;
  load(R"(
scalar "minus" [a0 1 -]
scalar "plus" [a0 1 +]
function "main" 1 3 {
  ShapeOf r1, 1, r0
  LoadConsti r2, 0
  Invoke r1, f"loop", (r1, r2)
  Ret r1
}
function "loop" 2 5 {
  If r0, @more, @done
more:
  Invoke r2, f"minus", (r0)
  Invoke r3, f"plus", (r1)
  Invoke r4, f"loop", (r2, r3)
  Goto @return
return:
  Ret r4
done:
  Ret r1
}
)" + std::string(kScalarEntry),
       options);
  const std::vector<float> data(200000);
  EXPECT_THAT(run({{{200000}, data}})[0].integers, ElementsAre(200000));
}

TEST_F(Interpreter, FuelStopsEndlessLoops) {
  SessionOptions options;
  options.fuel = 1000;
  load(R"(
function "main" 1 1 {
  Goto @0
}
)" + std::string(kScalarEntry),
       options);
  EXPECT_THAT(failure({{{1}, {0}}}, Status::kExhausted), HasSubstr("more than 1000 instructions"));
}

TEST_F(Interpreter, MemoryLimitHolds) {
  SessionOptions options;
  options.memory_limit = 1 << 20;
  load(std::string(kAddKernel) + R"(
function "main" 1 6 {
  ShapeOf r1, 1, r0
  Invoke r2, f"bytes", (r1)
  AllocStorage r3, r2, 64, d0
  LoadConsti r4, 0
  AllocTensorReg r5, r3, r4, f32, (r1)
  InvokePacked k"add", (r0, r0, r5)
  Ret r5
}
entry "main" f0 {
  input "x" f32 ["n"] [-1]
  output "y" f32 ["n"] [-1]
}
)",
       options);
  const std::vector<float> data(1 << 20, 1.0f);
  for (int i = 0; i < 50; ++i) run({{{1000 + 500 * i}, data}});
  EXPECT_LE(session_->memory().reserved, 1u << 20);
  EXPECT_THAT(failure({{{1 << 20}, data}}, Status::kExhausted),
              AllOf(HasSubstr("memory limit"), HasSubstr("\"main\", instruction 2: ")));
  run({{{1000}, data}});
}

TEST_F(Interpreter, FuelIsExact) {
  // ShapeOf, LoadConsti, LoadConsti; then (n + 1) times Invoke and If, n times Invoke and Goto;
  // Ret.
  const std::string text = R"(
scalar "less" [a0 a1 <]
scalar "next" [2->2: a0 1 + a1 a0 +]
function "main" 1 5 {
  ShapeOf r1, 1, r0
  LoadConsti r2, 0
  LoadConsti r3, 0
loop:
  Invoke r4, f"less", (r2, r1)
  If r4, @body, @done
body:
  Invoke r2, f"next", (r2, r3)
  Goto @loop
done:
  Ret r3
}
)" + std::string(kScalarEntry);
  const std::vector<float> data(50);
  for (int64_t n : {0, 1, 7, 50}) {
    SessionOptions options;
    options.fuel = static_cast<uint64_t>(3 + 2 * (n + 1) + 2 * n + 1);
    load(text, options);
    EXPECT_THAT(run({{{n}, data}})[0].integers, ElementsAre(n * (n - 1) / 2));
    EXPECT_THAT(run({{{n}, data}})[0].integers, ElementsAre(n * (n - 1) / 2)) << "of each run";
    options.fuel -= 1;
    load(text, options);
    EXPECT_THAT(failure({{{n}, data}}, Status::kExhausted),
                AllOf(HasSubstr(fmt::format("more than {} instructions", options.fuel)),
                      HasSubstr("\"main\", instruction 7: ")));
  }
}

TEST_F(Interpreter, DepthIsExact) {
  const std::vector<float> data(100'001);
  load(std::string(kRecursion) + kScalarEntry);
  // count(n) nests n + 1 calls in main: the default allows 100,000.
  EXPECT_THAT(run({{{99'999}, data}})[0].integers, ElementsAre(99'999));
  EXPECT_THAT(failure({{{100'000}, data}}, Status::kExhausted),
              AllOf(HasSubstr("more than 100000 deep"), HasSubstr("\"count\", instruction 2: ")));
}

// The same through closures, each of which holds the one before.
constexpr char kClosures[] = R"(
scalar "minus" [a0 1 -]
scalar "plus" [a0 1 +]
function "main" 1 4 {
  ShapeOf r1, 1, r0
  AllocClosure r2, f"zero", ()
  Invoke r3, f"wrap", (r1, r2)
  InvokeClosure r3, r3, (r0)
  Move r1, r3
  Ret r1
}
function "zero" 1 2 {
  LoadConsti r1, 0
  Ret r1
}
function "wrap" 2 4 {
  If r0, @more, @done
more:
  Invoke r2, f"minus", (r0)
  AllocClosure r1, f"one_more", (r1)
  Invoke r3, f"wrap", (r2, r1)
  Ret r3
done:
  Ret r1
}
function "one_more" 2 4 {
  InvokeClosure r2, r0, (r1)
  Invoke r3, f"plus", (r2)
  Ret r3
}
)";

TEST_F(Interpreter, ClosuresNestAsDeeplyAsCalls) {
  const std::vector<float> data(100'001);
  load(std::string(kClosures) + kScalarEntry);
  const uint64_t objects = session_->live_objects();
  EXPECT_THAT(run({{{99'999}, data}})[0].integers, ElementsAre(99'999));
  EXPECT_THAT(
      failure({{{100'000}, data}}, Status::kExhausted),
      AllOf(HasSubstr("more than 100000 deep"), HasSubstr("\"one_more\", instruction 0: ")));
  EXPECT_EQ(session_->live_objects(), objects);
}

TEST_F(Interpreter, TheStackCountsAgainstTheMemoryLimit) {
  const std::vector<float> data(100'000);
  SessionOptions options;
  options.memory_limit = 2 << 20;
  load(std::string(kRecursion) + kScalarEntry, options);
  EXPECT_THAT(run({{{5'000}, data}})[0].integers, ElementsAre(5'000));
  EXPECT_THAT(
      failure({{{90'000}, data}}, Status::kExhausted),
      AllOf(HasSubstr("memory limit of 2097152 bytes"), HasSubstr("\"count\", instruction 2: ")));
  EXPECT_THAT(run({{{5'000}, data}})[0].integers, ElementsAre(5'000));
}

TEST_F(Interpreter, RegistersAreBoundedWhateverTheDepth) {
  SessionOptions options;
  options.depth = UINT32_MAX - 1;
  options.memory_limit = uint64_t{1} << 26;
  load(R"(
function "main" 1 100000 {
  Invoke r99999, f"main", (r0)
  Move r1, r99999
  Ret r1
}
)" + std::string(kScalarEntry),
       options);
  EXPECT_THAT(failure({{{1}, {0}}}, Status::kExhausted), HasSubstr("memory limit"));
}

TEST_F(Interpreter, TheStackShrinksOnceRunsAreShallow) {
  const std::vector<float> data(50'000);
  SessionOptions options;
  options.memory_limit = 16 << 20;
  load(std::string(kRecursion) + kScalarEntry, options);
  run({{{50'000}, data}});
  // What the stack holds is not available to others.
  auto available = [&] {
    uint64_t low = 0, high = 16 << 20;
    while (high - low > 4096) {
      const uint64_t middle = (low + high) / 2;
      try {
        session_->storage()->charge(middle);
        session_->storage()->refund(middle);
        low = middle;
      } catch (const Error&) {
        high = middle;
      }
    }
    return low;
  };
  const uint64_t deep = available();
  run({{{50'000}, data}});
  EXPECT_EQ(available(), deep) << "kept for the next deep run";
  for (int i = 0; i < 60; ++i) run({{{3}, data}});
  const uint64_t shallow = available();
  EXPECT_GT(shallow, deep + (3 << 20));
  EXPECT_THAT(run({{{50'000}, data}})[0].integers, ElementsAre(50'000));
  EXPECT_LT(available(), shallow - (3 << 20));
  session_->trim();
  EXPECT_GE(available(), shallow);
  EXPECT_THAT(run({{{3}, data}})[0].integers, ElementsAre(3));
}

// tvm#4193: closures that come back to themselves leak. Here nothing can: values are made after
// what they hold. A list of closures and cells dies without recursion, however long.
TEST_F(Interpreter, LongListsDieWithoutAStack) {
  load(R"(
scalar "minus" [a0 1 -]
function "main" 1 6 {
  LoadConsti r1, 300000
  AllocADT r2, 0, ()
loop:
  AllocADT r2, 1, (r2, r0)
  AllocClosure r2, f"held", (r2)
  Invoke r1, f"minus", (r1)
  If r1, @loop, @done
done:
  LoadConsti r2, 1
  Ret r2
}
function "held" 1 1 { Ret r0 }
)" + std::string(kScalarEntry));
  const uint64_t objects = session_->live_objects();
  EXPECT_THAT(run({{{1}, {0}}})[0].integers, ElementsAre(1));
  EXPECT_EQ(session_->live_objects(), objects);
}

// The Relay VM allocates a tensor for each LoadConsti and GetTag, and for each scalar between.
TEST_F(Interpreter, ScalarsAndTagsAllocateNothing) {
  load(R"(
scalar "minus" [a0 1 -]
function "main" 1 6 {
  AllocADT r1, 3, (r0)
  LoadConsti r2, 10000
loop:
  GetTag r3, r1
  LoadConsti r4, 9223372036854775807
  ShapeOf r5, 1, r0
  Invoke r2, f"minus", (r2)
  If r2, @loop, @done
done:
  Ret r3
}
)" + std::string(kScalarEntry));
  const Input x{{2}, {1, 2}};
  run({x});
  const InputTensor in{x.values.data(), DType::kF32, x.shape, {}, true};
  session_->start(0, {&in, 1});
  std::vector<OutputTensor> out(1);
  ASSERT_FALSE(session_->resume(100, out));
  const MemoryStats before = session_->memory();
  const uint64_t objects = session_->live_objects();
  {
    const CountNew news;
    ASSERT_FALSE(session_->resume(40'000, out));
    EXPECT_EQ(news.count(), 0u);
  }
  EXPECT_EQ(session_->live_objects(), objects);
  EXPECT_EQ(session_->memory().allocations, before.allocations);
  ASSERT_TRUE(session_->resume(0, out));
  EXPECT_EQ(*static_cast<const int64_t*>(out[0].data), 3);
}

}  // namespace
}  // namespace nimble::rt
