// Runs bytecode written by hand, instruction by instruction and limit by limit.
#include <gmock/gmock.h>

#include <thread>

#include "vm/interpreter/test/harness.h"

namespace nimble::rt {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST_F(Interpreter, RunsAKernel) {
  load(std::string(kAddKernel) + kAddModel);
  const auto y = run({{{3}, {1, 2, 3}}});
  EXPECT_THAT(y[0].floats, ElementsAre(11, 22, 33));
  EXPECT_EQ(y[0].shape, std::vector<int64_t>{3});
}

TEST_F(Interpreter, ContractFailuresNameEverything) {
  load(std::string(kAddKernel) + kAddModel);
  EXPECT_THAT(failure({{{4}, {1, 2, 3, 4}}}),
              AllOf(HasSubstr("test: function \"main\", add at /layer/Add, instruction 6: "),
                    HasSubstr("/layer/Add"), HasSubstr("kernel add"),
                    HasSubstr("argument 1 must be f32 (n = 4), it is f32 (3)")));
  // The session is as good as new.
  EXPECT_THAT(run({{{3}, {1, 2, 3}}})[0].floats, ElementsAre(11, 22, 33));
}

TEST_F(Interpreter, ConstantsAreNotWritten) {
  // The verifier sees constants; it cannot see that a parameter is borrowed from the user.
  load(std::string(kAddKernel) + R"(
function "main" 1 1 {
  InvokePacked k"add", (r0, r0, r0)
  Ret r0
}
entry "main" f0 {
  input "x" f32 ["n"] [-1]
  output "y" f32 ["n"] [-1]
}
)");
  EXPECT_THAT(failure({{{1}, {1}}}), HasSubstr("would be written"));
}

TEST_F(Interpreter, ScalarsControlFlowAndShapes) {
  load(R"(
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
)" + std::string(kScalarEntry));
  // The sum of 0 … n - 1.
  for (int64_t n : {0, 1, 2, 10, 100})
    EXPECT_THAT(run({{{n}, std::vector<float>(n)}})[0].integers, ElementsAre(n * (n - 1) / 2));
}

TEST_F(Interpreter, ClosuresTuplesAndFields) {
  load(R"(
scalar "sub" [a0 a1 -]
function "main" 1 8 {
  LoadConsti r1, 50
  LoadConsti r2, 8
  AllocClosure r3, f"minus", (r1)
  InvokeClosure r4, r3, (r2)
  AllocADT r5, 7, (r4, r3)
  GetTag r6, r5
  AllocADT r5, 0, (r6, r4)
  Ret r5
}
function "minus" 2 3 {
  Invoke r2, f"sub", (r0, r1)
  Ret r2
}
entry "main" f0 {
  input "x" f32 ["n"] [-1]
  output "tag" i64 [] []
  output "difference" i64 [] []
}
)");
  const auto results = run({{{1}, {0}}}, 2);
  EXPECT_THAT(results[0].integers, ElementsAre(7));
  EXPECT_THAT(results[1].integers, ElementsAre(42));
}

TEST_F(Interpreter, ReshapeSharesAndDeviceCopyCopies) {
  load(R"(
function "main" 1 5 {
  LoadConsti r1, 2
  LoadConsti r2, 3
  ReshapeTensor r3, r0, (r1, r2)
  DeviceCopy r4, r3, d0
  Ret r4
}
entry "main" f0 {
  input "x" f32 ["n"] [-1]
  output "y" f32 ["2", "3"] [2, 3]
}
)");
  const auto y = run({{{6}, {1, 2, 3, 4, 5, 6}}});
  EXPECT_THAT(y[0].shape, ElementsAre(2, 3));
  EXPECT_THAT(y[0].floats, ElementsAre(1, 2, 3, 4, 5, 6));
}

// The storage of a tensor outlives the name of it, and a longer tensor may be made there.
TEST_F(Interpreter, ATensorGrowsInItsStorage) {
  load(R"(
function "main" 1 8 {
  DeviceCopy r1, r0, d0
  GetStorage r2, r1
  FreeTensor r1
  GetCapacity r3, r2
  LoadConsti r4, 0
  LoadConsti r5, 16
  AllocTensorReg r6, r2, r4, f32, (r5)
  FreeTensor r2
  LoadConsti r5, 2
  AllocTensorReg r7, r6, r4, f32, (r5)
  FreeTensor r6
  AllocADT r4, 0, (r7, r3)
  Ret r4
}
entry "main" f0 {
  input "x" f32 ["n"] [-1]
  output "y" f32 ["2"] [2]
  output "bytes" i64 [] []
}
)");
  const auto y = run({{{2}, {3, 4}}}, 2);
  EXPECT_THAT(y[0].floats, ElementsAre(3, 4));
  EXPECT_THAT(y[1].integers, ElementsAre(64));
}

TEST_F(Interpreter, ViewsLieInsideTheirTensor) {
  load(R"(
constant "where" i64 [2] { 4, 8 }
function "main" 1 7 {
  LoadConst r1, c"where"
  GetElement r2, r1, 0
  AllocTensor r3, r0, r2, f32, [2]
  GetElement r4, r1, 1
  AllocTensor r5, r3, r4, f32, [0]
  DeviceCopy r6, r3, d0
  Ret r6
}
entry "main" f0 {
  input "x" f32 ["n"] [-1]
  output "y" f32 ["2"] [2]
}
)");
  EXPECT_THAT(run({{{4}, {1, 2, 3, 4}}})[0].floats, ElementsAre(2, 3));
  EXPECT_THAT(failure({{{2}, {1, 2}}}), AllOf(HasSubstr("\"main\", instruction 2: "),
                                              HasSubstr("lies outside of a tensor (2)")));
}

constexpr char kThreads[] = R"(
kernel "threads" {
  source "threads"
  symbols n
  scalar n
  out i64 ([1])
  dispatch { 0: n <= 10 ? 1 : 2  1: 0  2: 1 }
  host "test.threads" threads 1
  host "test.threads"
}
function "main" 1 5 {
  ShapeOf r1, 1, r0
  LoadConsti r2, 8
  AllocStorage r2, r2, 64, d0
  LoadConsti r3, 0
  AllocTensor r4, r2, r3, i64, [1]
  InvokePacked k"threads", (r1, r4)
  Ret r4
}
entry "main" f0 {
  input "x" f32 ["n"] [-1]
  output "y" i64 ["1"] [1]
}
)";

TEST_F(Interpreter, DispatchChoosesByShapeAndThreads) {
  load(kThreads);
  const std::vector<float> data(20);
  EXPECT_THAT(run({{{10}, data}})[0].integers, ElementsAre(1));
  EXPECT_THAT(run({{{11}, data}})[0].integers, ElementsAre(2));
}

TEST_F(Interpreter, KernelFailuresReachTheUser) {
  load(R"(
kernel "gather" {
  source "take"
  symbols n
  in f32 ([a0])
  dispatch { 0: 0 }
  host "test.fail"
}
function "main" 1 1 {
  InvokePacked k"gather", (r0)
  Ret r0
}
entry "main" f0 {
  input "x" f32 ["n"] [-1]
  output "y" f32 ["n"] [-1]
}
)");
  for (int i = 0; i < 20; ++i)
    EXPECT_THAT(failure({{{1}, {0}}}),
                AllOf(HasSubstr("index 9"), HasSubstr("\"main\", instruction 0: ")));
}

TEST_F(Interpreter, MissingVendorsAreReplacedAndReported) {
  std::string text = std::string(kAddKernel) + kAddModel;
  text.replace(text.find("dispatch { 0: 0 }"), 17, "dispatch { 0: 1 }");
  text.replace(text.find("host \"test.add\""), 15, "host \"test.add\"\n  vendor \"test.vendor\"");
  for (const bool trust : {true, false}) {
    load(text, {}, trust);
    EXPECT_THAT(model_->notes(), ElementsAre(HasSubstr(trust ? "libnothing.so is not installed"
                                                             : "a file that is trusted")));
    EXPECT_THAT(run({{{3}, {1, 2, 3}}})[0].floats, ElementsAre(11, 22, 33));
  }
  text.replace(text.find("host \"test.add\"\n"), 16, "");
  text.replace(text.find("dispatch { 0: 1 }"), 17, "dispatch { 0: 0 }");
  for (const bool trust : {true, false}) try {
      load(text, {}, trust);
      FAIL();
    } catch (const Error& e) {
      EXPECT_EQ(e.status(), Status::kIncompatible);
      EXPECT_THAT(e.what(), HasSubstr("can only run as test.vendor"));
      EXPECT_THAT(e.what(), HasSubstr(trust ? "install it" : "set `trust`"));
    }
}

// A vendor's routine checks nothing beyond the contract: without trust it runs in no disguise.
TEST_F(Interpreter, VendorsRunOnlyForFilesThatAreTrusted) {
  static int calls = 0;
  static const bool once = [] {
    add_library_kernel(
        {"test.present", exec::ImplementationKind::kVendor, "a, b -> y", "There.", accept, nullptr,
         [](const LibraryCall& call, int32_t thread, int32_t threads, nimble_barrier* barrier) {
           if (thread == 0) ++calls;
           run_add(call, thread, threads, barrier);
         }});
    return true;
  }();
  (void)once;
  std::string text = std::string(kAddKernel) + kAddModel;
  text.replace(text.find("host \"test.add\""), 15, "vendor \"test.present\"\n  host \"test.add\"");
  calls = 0;
  for (const bool trust : {true, false}) {
    load(text, {}, trust);
    EXPECT_THAT(run({{{3}, {1, 2, 3}}})[0].floats, ElementsAre(11, 22, 33));
    EXPECT_EQ(calls, 1);
  }
}

TEST_F(Interpreter, ScratchIsSizedByShapeAndThreads) {
  std::string text = std::string(kAddKernel) + kAddModel;
  text.replace(text.find("dispatch {"), 0, "scratch [a1 4 * a0 +]\n  ");
  load(text);
  for (int i = 0; i < 3; ++i)
    EXPECT_THAT(run({{{3}, {1, 2, 3}}})[0].floats, ElementsAre(11, 22, 33));
}

TEST_F(Interpreter, NativeCodeNeedsTrust) {
  std::string text = std::string(kAddKernel) + kAddModel;
  text.replace(text.find("host \"test.add\""), 15, "native \"add\"");
  exec::Executable e = exec::assemble(text);
  const uint8_t junk[] = {1, 2, 3};
  e.images.push_back({"x86-64-v9", {"avx9", "sse2"}, junk, nullptr});
  auto fails = [&](bool trust) {
    try {
      Model::load(e, {trust}, "m.nimble");
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_THAT(fails(false), HasSubstr("trust"));
  EXPECT_THAT(fails(true), AllOf(HasSubstr("lacks avx9"), HasSubstr("--target")));
  e.images[0].features.clear();
  EXPECT_THAT(fails(true), AllOf(HasSubstr("m.nimble"), HasSubstr("ends early")));
}

TEST_F(Interpreter, HotConstantsMoveOutOfTheFile) {
  exec::Executable e = exec::assemble(std::string(kAddKernel) + kAddModel);
  e.constants[0].hot = true;
  const uint8_t* in_file = e.constants[0].bytes.data();
  model_ = Model::load(std::move(e), {}, "test");
  EXPECT_NE(model_->constant_data(0), in_file);
  EXPECT_GT(model_->hot_bytes(), 0u);
  session_ = std::make_unique<Session>(model_, SessionOptions{1});
  EXPECT_THAT(run({{{3}, {1, 2, 3}}})[0].floats, ElementsAre(11, 22, 33));
}

TEST_F(Interpreter, SteadyStateReusesAllMemory) {
  load(std::string(kAddKernel) + kAddModel);
  for (int i = 0; i < 3; ++i) run({{{3}, {1, 2, 3}}});
  const MemoryStats before = session_->memory();
  for (int i = 0; i < 100; ++i) run({{{3}, {1, 2, 3}}});
  const MemoryStats after = session_->memory();
  EXPECT_EQ(after.reserved, before.reserved);
  EXPECT_EQ(after.allocations - before.allocations, after.reuses - before.reuses);
}

TEST_F(Interpreter, SessionsOfAModelRunAtOnce) {
  load(std::string(kAddKernel) + kAddModel);
  std::vector<std::thread> users;
  for (int u = 0; u < 4; ++u)
    users.emplace_back([this, u] {
      Session session(model_, SessionOptions{1 + u % 3});
      for (int i = 0; i < 100; ++i) {
        const float x[] = {static_cast<float>(u), static_cast<float>(i), 0};
        const int64_t shape[] = {3};
        const InputTensor in{x, DType::kF32, shape, {}, true};
        std::vector<OutputTensor> out(1);
        session.run(0, {&in, 1}, out);
        const float* y = static_cast<const float*>(out[0].data);
        ASSERT_EQ(y[0], 10.0f + x[0]);
        ASSERT_EQ(y[1], 20.0f + x[1]);
      }
    });
  for (auto& t : users) t.join();
}

TEST_F(Interpreter, DefaultsNeedKnownDims) {
  load(R"(
function "main" 2 3 {
  AllocADT r2, 0, (r0, r1)
  Ret r2
}
entry "main" f0 {
  input "x" f32 ["n"] [-1] default "zeros"
  input "mask" i64 ["n", "2"] [-1, 2] default "ones"
  output "x" f32 ["n"] [-1]
  output "mask" i64 ["n", "2"] [-1, 2]
}
)");
  const float x[] = {5, 6};
  const int64_t shape[] = {2};
  InputTensor in[2];
  in[0] = {x, DType::kF32, shape, {}, true};
  std::vector<OutputTensor> out(2);
  session_->run(0, in, out);
  // An input that is returned comes back in memory of its own.
  EXPECT_NE(out[0].data, x);
  EXPECT_EQ(static_cast<const float*>(out[0].data)[1], 6.0f);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(static_cast<const int64_t*>(out[1].data)[i], 1);
  in[0].given = false;
  EXPECT_THROW(session_->run(0, in, out), Error);
  EXPECT_EQ(out[0].data, nullptr);
}

}  // namespace
}  // namespace nimble::rt
