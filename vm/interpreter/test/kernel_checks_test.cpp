// The checks of a run, one by one (checks_test.cpp): those of kernels and their arguments, of
// memory and of what takes long.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include "vm/interpreter/fuzz/portable_programs.h"
#include "vm/interpreter/test/checks_harness.h"

namespace nimble::rt {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// --- Kernels ------------------------------------------------------------------------------------

constexpr char kUse[] = R"(
function "main" 1 4 {
  InvokePacked k"k", (r0)
  LoadConsti r1, 1
  Ret r1
}
)";

TEST_F(Checks, RanksOfAContract) {
  load(
      "kernel \"k\" { symbols n m  in f32 ([a0], [a1])  scratch [0]  dispatch { 0: 0 }  "
      "host \"test.leaves_all\" }" +
      std::string(kUse) + R"(
entry "main" f0 { input "x" f32 ["a", "b"] [-1, -1]  output "y" i64 [] [] }
entry "more" f0 { input "x" f32 ["a", "b", "c"] [-1, -1, -1]  output "y" i64 [] [] }
entry "fewer" f0 { input "x" f32 ["a"] [-1]  output "y" i64 [] [] }
)");
  EXPECT_NO_THROW(run({{{1, 3}, {1, 2, 3}}}));
  for (const auto& [entry, shape] :
       {std::pair("more", std::vector<int64_t>{1, 1, 3}), {"fewer", {3}}})
    try {
      run({{shape, {1, 2, 3}}}, 1, entry);
      ADD_FAILURE() << entry;
    } catch (const Error& e) {
      EXPECT_EQ(e.status(), Status::kFatal);
      EXPECT_THAT(e.what(), HasSubstr("argument 0 must be f32"));
    }
}

// Surplus leading axes are collapsed, one or several; none is none.
TEST_F(Checks, RowsOfAContract) {
  exec::Executable e = exec::assemble(R"(
kernel "k" { symbols n m  in rows f32 ([a0], [a1])  scratch [0]  dispatch { 0: 0 }  portable "k" }
)" + std::string(kUse) + R"(
entry "two" f0 { input "x" f32 ["a", "b"] [-1, -1]  output "y" i64 [] [] }
entry "three" f0 { input "x" f32 ["a", "b", "c"] [-1, -1, -1]  output "y" i64 [] [] }
entry "four" f0 { input "x" f32 ["a", "b", "c", "d"] [-1, -1, -1, -1]  output "y" i64 [] [] }
entry "one" f0 { input "x" f32 ["a"] [-1]  output "y" i64 [] [] }
)");
  using Op = exec::PortableOp;
  exec::PortableKernel k;
  k.indices = 4;
  k.values = {{DType::kF32, 1}};
  // Only what has six rows of one passes.
  k.code = {{Op::kIndexConst, {2, 6}}, {Op::kIndexEq, {3, 0, 2}}, {Op::kCheck, {3, 77}}};
  e.kernels[0].portable = k;
  model_ = Model::load(std::move(e), LoadOptions{}, "test");
  session_ = std::make_unique<Session>(model_, SessionOptions{1});
  const std::vector<float> six(6, 1);
  EXPECT_NO_THROW(run({{{6, 1}, six}}, 1, "two"));
  EXPECT_NO_THROW(run({{{2, 3, 1}, six}}, 1, "three"));
  EXPECT_NO_THROW(run({{{3, 1, 2, 1}, six}}, 1, "four"));
  const auto failure = [&](std::vector<int64_t> shape, const char* entry) -> std::string {
    try {
      run({{std::move(shape), six}}, 1, entry);
    } catch (const Error& error) {
      EXPECT_EQ(error.status(), Status::kFatal);
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(failure({6}, "one"), HasSubstr("argument 0 must be f32"));
  // Only the product of an empty tensor's other extents may not fit.
  const int64_t much = int64_t{1} << 31;
  EXPECT_THAT(failure({2 * much, 2 * much, 1, 0}, "four"), HasSubstr("argument 0 must be f32"));
  EXPECT_THAT(failure({much, much, 1, 0}, "four"), HasSubstr("code 77"));
  // A check of the kernel itself.
  EXPECT_THAT(failure({5, 1}, "two"), AllOf(HasSubstr("code 77"), HasSubstr("n = 5")));
}

TEST_F(Checks, ScalarsAndDataOfAContract) {
  const auto call = [&](const std::string& contract, const std::string& code) {
    load("kernel \"k\" { " + contract +
         "  scratch [0]  dispatch { 0: 0 }  host \"test.data\" }\n"
         "function \"main\" 1 4 { " +
         code + "  LoadConsti r1, 1  Ret r1 }\n" + kScalarEntry);
    return failure_of({kThree});
  };
  const std::string n = "symbols n  in f32 ([a0])  scalar n";
  EXPECT_EQ(call(n, "LoadConsti r1, 3  InvokePacked k\"k\", (r0, r1)"), "");
  EXPECT_THAT(call(n, "LoadConsti r1, 4  InvokePacked k\"k\", (r0, r1)"),
              HasSubstr("must be n = 3, it is 4"));
  EXPECT_EQ(call("data", "AllocADT r1, 0, ()  InvokePacked k\"k\", (r1)"), "");
  EXPECT_THAT(call("data", "InvokePacked k\"k\", (r0)"),
              HasSubstr("must be a data-type value, it is a tensor"));
  EXPECT_THAT(call("data",
                   "LoadConsti r1, 5  AllocADT r1, 0, (r1)  GetField r1, r1, 0  "
                   "InvokePacked k\"k\", (r1)"),
              HasSubstr("must be a data-type value, it is a scalar"));
  EXPECT_THAT(call("symbols n  in f32 ([a0])  require [a0 3 !=]", "InvokePacked k\"k\", (r0)"),
              HasSubstr("break"));
}

TEST_F(Checks, ScratchIsNotNegative) {
  const auto call = [&](const std::string& scratch) {
    load("kernel \"k\" { symbols n  in f32 ([a0])  scratch " + scratch +
         "  dispatch { 0: 0 }  host \"test.leaves_all\" }" + std::string(kUse) + kScalarEntry);
    return failure_of({kThree});
  };
  EXPECT_EQ(call("[a0 3 -]"), "");
  EXPECT_EQ(call("[a0]"), "");
  EXPECT_THAT(call("[a0 4 -]"), HasSubstr("-1 bytes of scratch"));
}

TEST_F(Checks, RoutinesThatThisRuntimeDoesNotKnow) {
  const auto text = [](const std::string& implementations) {
    return "kernel \"k\" { symbols n  in f32 ([a0])  scratch [0]  dispatch { 0: 0 }  " +
           implementations + " }" + std::string(kUse) + kScalarEntry;
  };
  EXPECT_THAT(load_failure(text("vendor \"nobody.knows\""), Status::kIncompatible, true),
              HasSubstr("does not know it"));
  EXPECT_THAT(load_failure(text("host \"nobody.knows\""), Status::kUnsupported),
              HasSubstr("which this runtime lacks"));
  EXPECT_EQ(
      load_failure(text("vendor \"nobody.knows\" host \"test.leaves_all\""), Status::kOk, true),
      "");
  EXPECT_EQ(failure_of({kThree}), "");
  EXPECT_THAT(load_failure(text("native \"k\""), Status::kCorrupt, true),
              HasSubstr("native code is missing"));
}

// A kernel that needs no native code has none, in a file that another one needs it in.
TEST_F(Checks, HostKernelsBesideNativeOnes) {
  std::string text = fuzz::kPortableText;
  text.replace(text.find("portable \"portable\""), 19, "native \"portable\"");
  exec::Executable e = exec::assemble(
      text + "kernel \"h\" { out f32 ([1])  dispatch { 0: 0 }  host \"host.zero\" }");
  e.kernels[0].portable = fuzz::portable_program({}).kernels[0].portable;
  EXPECT_NO_THROW(Model::load(std::move(e), LoadOptions{}, "test"));
}

// Of one byte, too, among few arguments and among many.
TEST_F(Checks, OverlapsOfOneByte) {
  const auto call = [&](int64_t second, bool many) {
    std::string others, more;
    for (int i = 0; many && i < 16; ++i) others += "in u8 ([4])  ", more += "r3, ";
    load(fmt::format(R"(
kernel "k" {{ {}in u8 ([4])  out u8 ([4])  scratch [0] dispatch {{ 0: 0 }} host "test.leaves_all" }}
function "main" 1 6 {{
  LoadConsti r1, 64
  AllocStorage r1, r1, 64, d0
  LoadConsti r2, 0
  AllocTensor r3, r1, r2, u8, [4]
  LoadConsti r2, {}
  AllocTensor r4, r1, r2, u8, [4]
  InvokePacked k"k", ({}r3, r4)
  LoadConsti r5, 1
  Ret r5
}}
)",
                     others, second, more) +
         kScalarEntry);
    return failure_of({kThree});
  };
  for (const bool many : {false, true}) {
    EXPECT_THAT(call(3, many), HasSubstr("share memory"));
    EXPECT_EQ(call(4, many), "");
  }
}

// --- Memory -------------------------------------------------------------------------------------

// Of a view in the middle of a storage: what the tensor does not hold, the storage may.
// A tensor of `extent` floats at `offset` of what `code` leaves in r1, which is given a storage of
// so many bytes.
std::string placed(const std::string& code, int64_t bytes, int64_t offset, int64_t extent,
                   const char* dtype = "f32") {
  return fmt::format(R"(
function "main" 1 8 {{
  LoadConsti r1, {}
  AllocStorage r1, r1, 64, d0
{}  LoadConsti r2, {}
  LoadConsti r4, {}
  AllocTensorReg r5, r1, r2, {}, (r4)
  LoadConsti r5, 1
  Ret r5
}}
)",
                     bytes, code, offset, extent, dtype) +
         kScalarEntry;
}

TEST_F(Checks, PartsOfATensor) {
  const auto part = [&](int64_t offset, int64_t extent, const char* dtype = "f32") {
    load(placed("  LoadConsti r2, 64\n  AllocTensor r1, r1, r2, f32, [16]\n", 256, offset, extent,
                dtype));
    return failure_of({kThree});
  };
  EXPECT_EQ(part(63, 1, "u8"), "");
  EXPECT_THAT(part(63, 2, "u8"), HasSubstr("lies outside of a tensor"));
  EXPECT_THAT(part(65, 0, "u8"), HasSubstr("lies outside of a tensor"));
  EXPECT_EQ(part(0, 16), "");
  EXPECT_EQ(part(60, 1), "");
  EXPECT_EQ(part(64, 0), "");
  for (const auto& [offset, extent] : {std::pair<int64_t, int64_t>(0, 17),
                                       {4, 16},
                                       {64, 1},
                                       {68, 0},
                                       {-4, 1},
                                       {-4, 0},
                                       {0, -1},
                                       {0, INT64_MAX},
                                       {INT64_MAX - 3, 0},
                                       {INT64_MIN, 0}})
    EXPECT_THAT(part(offset, extent), HasSubstr("lies outside of a tensor")) << offset;
}

TEST_F(Checks, TensorsLieInTheirStorage) {
  const auto place = [&](int64_t offset, int64_t extent) {
    load(placed("", 64, offset, extent));
    return failure_of({kThree});
  };
  EXPECT_EQ(place(0, 16), "");
  EXPECT_EQ(place(64, 0), "");
  EXPECT_EQ(place(60, 1), "");
  for (const auto& [offset, extent] : {std::pair<int64_t, int64_t>(0, 17),
                                       {64, 1},
                                       {68, 0},
                                       {-4, 1},
                                       {-4, 0},
                                       {2, 1},
                                       {0, -1},
                                       {INT64_MAX - 3, 0}})
    EXPECT_NE(place(offset, extent), "") << offset << " " << extent;
}

TEST_F(Checks, OnlyAStorageOfItsOwnIsExtended) {
  const auto storage_of = [&](const std::string& code) {
    load("constant \"c\" f32 [4] { 1, 2, 3, 4 }\nfunction \"main\" 1 6 { " + code +
         "  GetStorage r4, r1  LoadConsti r5, 1  Ret r5 }\n" + kScalarEntry);
    return failure_of({kThree});
  };
  EXPECT_EQ(storage_of("DeviceCopy r1, r0, d0"), "");
  EXPECT_THAT(storage_of("Move r1, r0"), HasSubstr("no storage of its own"));
  EXPECT_THAT(storage_of("LoadConst r1, c0"), HasSubstr("no storage of its own"));
  EXPECT_THAT(storage_of("DeviceCopy r1, r0, d0  LoadConsti r2, 4  "
                         "AllocTensor r1, r1, r2, f32, [1]"),
              HasSubstr("no storage of its own"));
}

// --- Cancelling ---------------------------------------------------------------------------------

// Every instruction that other code may run behind, and every charge of much work, looks for a
// cancel: what comes next would fail otherwise.
TEST_F(Checks, WhatMayTakeLongIsCancelled) {
  const auto cancelled = [&](const std::string& code) {
    load(
        "text \"too late\"\nscalar \"twice\" [a0 2 *]\n"
        "kernel \"k\" { symbols n  in f32 ([a0])  scratch [0]  dispatch { 0: 0 }  "
        "host \"test.leaves_all\" }\n"
        "function \"main\" 1 4 { " +
        code + "  late: Fatal t0, () }\nfunction \"late\" 0 1 { Fatal t0, () }\n" + kScalarEntry);
    session_->cancel(session_->next_run());
    try {
      run({kThree});
      return false;
    } catch (const Error& e) {
      return e.status() == Status::kCancelled;
    }
  };
  for (const char* code :
       {"LoadConsti r1, 1  Ret r1", "LoadConsti r1, 1  If r1, @late, @late", "Goto @late",
        "LoadConsti r1, 1  Invoke r1, f\"twice\", (r1)",
        "AllocClosure r1, f\"late\", ()  InvokeClosure r1, r1, ()", "InvokePacked k\"k\", (r0)"})
    EXPECT_TRUE(cancelled(code)) << code;
  const auto clear = [&](uint64_t steps) {
    return cancelled(fmt::format("LoadConsti r1, {}  AllocStorage r1, r1, 64, d0",
                                 steps * WorkMeter::kBytesPerStep));
  };
  EXPECT_FALSE(clear(WorkMeter::kPollSteps - 1));
  EXPECT_TRUE(clear(WorkMeter::kPollSteps));
}

// As soon as it is asked to: before the next kernel.
TEST_F(Checks, ARunIsSuspendedBetweenTwoKernels) {
  using Kind = exec::ImplementationKind;
  static Session* asked = nullptr;
  static int calls = 0;
  static const bool once = [] {
    add_library_kernel({"test.suspends", Kind::kHost, "", "Suspends its own run.", accept, nullptr,
                        [](const LibraryCall&, int32_t thread, int32_t, nimble_barrier*) {
                          if (thread != 0) return;
                          ++calls;
                          asked->suspend();
                        }});
    return true;
  }();
  (void)once;
  load(
      "kernel \"k\" { symbols n  in f32 ([a0])  scratch [0]  dispatch { 0: 0 }  "
      "host \"test.suspends\" }\n"
      "function \"main\" 1 4 { InvokePacked k\"k\", (r0)  InvokePacked k\"k\", (r0)  "
      "LoadConsti r1, 1  Ret r1 }\n" +
      std::string(kScalarEntry));
  asked = session_.get();
  calls = 0;
  const InputTensor in{kThree.values.data(), DType::kF32, kThree.shape, {}, true};
  session_->start(0, {&in, 1});
  OutputTensor out;
  EXPECT_FALSE(session_->resume(0, {&out, 1}));
  EXPECT_EQ(calls, 1);
  EXPECT_FALSE(session_->resume(0, {&out, 1}));
  EXPECT_EQ(calls, 2);
  EXPECT_TRUE(session_->resume(0, {&out, 1}));
}

// --- Portable code ------------------------------------------------------------------------------

TEST_F(Checks, PortableAccessesEndAtTheFirstAndTheLastElement) {
  using Op = exec::PortableOp;
  const auto access = [&](Op op, int64_t first, int64_t stride) {
    exec::Executable e = exec::assemble(fuzz::kPortableText);
    exec::PortableKernel k;
    k.indices = 4;
    k.values = {{DType::kF32, 4}};
    k.code = {
        {Op::kIndexConst, {1, first}}, {Op::kIndexConst, {2, 0}}, {Op::kIndexConst, {3, stride}}};
    if (op == Op::kLoad) k.code.push_back({op, {0, 0, 1, 2, 0}});
    if (op == Op::kLoadStrided) k.code.push_back({op, {0, 0, 1, 2, 0, 3}});
    e.kernels[0].portable = k;
    model_ = Model::load(std::move(e), LoadOptions{}, "test");
    session_ = std::make_unique<Session>(model_, SessionOptions{1});
    return failure_of({{{10}, std::vector<float>(10, 1)}});
  };
  for (const int64_t first : {0, 3, 6}) EXPECT_EQ(access(Op::kLoad, first, 1), "") << first;
  for (const int64_t first : {int64_t{-1}, int64_t{7}, int64_t{10}, INT64_MIN, INT64_MAX})
    EXPECT_THAT(access(Op::kLoad, first, 1), HasSubstr("accesses element")) << first;
  for (const auto& [first, stride] :
       {std::pair<int64_t, int64_t>(0, 3), {9, -3}, {9, 0}, {0, 0}, {6, 1}})
    EXPECT_EQ(access(Op::kLoadStrided, first, stride), "") << first;
  for (const auto& [first, stride] :
       {std::pair<int64_t, int64_t>(1, 3), {8, -3}, {10, 0}, {-1, 0}, {7, 1}, {0, INT64_MIN}})
    EXPECT_THAT(access(Op::kLoadStrided, first, stride), HasSubstr("accesses element")) << first;
}

}  // namespace
}  // namespace nimble::rt
