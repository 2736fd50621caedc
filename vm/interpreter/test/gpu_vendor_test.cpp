// Vendors' routines of a GPU in whole programs, on stand-ins for the driver and for cuBLASLt.
#include <gmock/gmock.h>

#include <string>

#include "vm/executable/vendor_call.h"
#include "vm/interpreter/test/gpu_harness.h"
#include "vm/library/test/standin/cublaslt.h"
#include "vm/runtime/gpu_losses.h"
#include "vm/runtime/round_up.h"

namespace nimble::rt {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// y = x w + b + 1000 over symbols[0] rows of 4: not what the routine computes, so that tests see
// which ran.
int product(const StandInLaunch& l) {
  const auto* x = static_cast<const float*>(l.pointers[0]);
  const auto* w = static_cast<const float*>(l.pointers[1]);
  const auto* b = static_cast<const float*>(l.pointers[2]);
  auto* y = static_cast<float*>(l.pointers[3]);
  for (int64_t i = 0; i < l.symbols[0]; ++i)
    for (int64_t j = 0; j < 3; ++j) {
      float sum = b[j] + 1000;
      for (int64_t k = 0; k < 4; ++k) sum += x[4 * i + k] * w[3 * k + j];
      y[3 * i + j] = sum;
    }
  return 0;
}

constexpr const char* kProduct = R"ASM(
scalar "bytes" [a0 12 *]
constant "w" f32 [4, 3] device d2 { 1, 0, 0, 0, 1, 0, 0, 0, 1, 1, 1, 1 }
constant "b" f32 [3] device d2 { 10, 20, 30 }
kernel "product" {
  source "matmul+add" symbols m device d2
  in f32 ([a0], [4]) in f32 ([4], [3]) in f32 ([3]) out f32 ([a0], [3])
  dispatch { 0: 0 }
  vendor "cublaslt.matmul"
)ASM";
constexpr const char* kOurs = "  native \"product_0\" launch ([1], [1], [1]) block 32 shared 0\n";
constexpr const char* kProgram = R"ASM(}
function "main" 1 12 {
  DeviceCopy r4, r0, d2  LoadConst r5, c"w"  LoadConst r6, c"b"
  ShapeOf r1, 2, r0  Invoke r3, f"bytes", (r1)  AllocStorage r3, r3, 64, d2
  LoadConsti r8, 0  LoadConsti r9, 3  AllocTensorReg r7, r3, r8, f32, (r1, r9)
  .note "matmul at layer.0" InvokePacked k"product", (r4, r5, r6, r7)
  DeviceCopy r10, r7, d0  Ret r10
}
entry "main" f0 { input "x" f32 ["m", "4"] [-1, 4]  output "y" f32 ["m", "3"] [-1, 3] }
)ASM";

class GpuVendor : public Gpu {
 protected:
  void SetUp() override {
    Gpu::SetUp();
    register_kernels();
    forget_lost_gpus();
    library().reset();
    driver().add_kernel("product_0", 4, 1, product);
  }
  void TearDown() override {
    Gpu::TearDown();
    EXPECT_STREQ(library().violations(), "");
    library().reset();
  }
  static const StandInCublasLt& library() { return standin_cublaslt(NIMBLE_STANDIN_CUBLASLT); }

  static exec::VendorCall call() {
    exec::VendorCall c;
    c.routine = "cublaslt.matmul";
    c.x = 0;
    c.w = 1;
    c.y = 3;
    c.k = 4;
    c.n = 3;
    c.then = {{exec::VendorOp::kAdd, 2}};
    return c;
  }
  exec::Executable executable(const char* ours = kOurs, const exec::VendorCall& c = call()) {
    exec::Executable e = exec::assemble(std::string(kProduct) + ours + kProgram);
    e.kernels[0].implementations[0].config = exec::to_json(c);
    if (*ours) add_image(&e, "sm_90a", STANDIN_CUDA_IMAGE "product_0");
    return e;
  }
  std::vector<float> rows(int64_t m) {
    std::vector<float> x;
    for (int64_t i = 0; i < 4 * m; ++i) x.push_back(static_cast<float>(i % 5));
    return run({{{m, 4}, x}})[0].floats;
  }
  // What `rows` should give, with what ours adds.
  static std::vector<float> expected(int64_t m, float ours = 0) {
    std::vector<float> y;
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < 3; ++j)
        y.push_back(static_cast<float>((4 * i + j) % 5 + (4 * i + 3) % 5 + 10 * (j + 1)) + ours);
    return y;
  }

  const ScopedVariable cublaslt_{"NIMBLE_CUBLASLT", NIMBLE_STANDIN_CUBLASLT};
};

TEST_F(GpuVendor, RoutinesServeAnySize) {
  load(executable());
  EXPECT_THAT(model_->notes(), IsEmpty());
  for (int run = 0; run < 3; ++run)
    for (const int64_t m : {1, 2, 7, 33}) EXPECT_EQ(rows(m), expected(m)) << m;
  EXPECT_EQ(library().calls("cublasLtMatmulAlgoGetHeuristic"), 4);
  EXPECT_EQ(library().calls("cublasLtMatmul"), 12);
  EXPECT_EQ(driver().calls("cuLaunchKernel"), 0);
  EXPECT_EQ(rows(0), std::vector<float>());
  EXPECT_EQ(library().calls("cublasLtMatmul"), 12) << "nothing is started for nothing";
}

TEST_F(GpuVendor, WorkspacesAreTheSessions) {
  library().set(0, 1, 1'000'000);
  load(executable());
  EXPECT_EQ(rows(5), expected(5));
  EXPECT_GE(cuda_device().in_use(), 1'000'000u);
  // Where the limit leaves no room for one, ours runs.
  SessionOptions options;
  options.memory_limit = 500'000;
  load(executable(), options);
  EXPECT_EQ(rows(5), expected(5, 1000));
  load(executable(""), options);
  EXPECT_THAT(failure({{{1, 4}, {0, 0, 0, 0}}}, Status::kExhausted),
              HasSubstr(std::to_string(round_up(1'000'000, Device::kGranule))));
}

TEST_F(GpuVendor, OursServesWhatTheLibraryHasNot) {
  library().set(1, 0, 0);
  load(executable());
  EXPECT_EQ(rows(5), expected(5, 1000));
  EXPECT_EQ(rows(5), expected(5, 1000));
  EXPECT_EQ(library().calls("cublasLtMatmulAlgoGetHeuristic"), 1);
  // A candidate for measuring has nothing that stands in, or its time might be another's.
  load(executable(""));
  EXPECT_THAT(failure({{{1, 4}, {0, 0, 0, 0}}}, Status::kUnsupported),
              AllOf(HasSubstr("kernel product (matmul+add): cublaslt.matmul has nothing for these "
                              "sizes (the library has no algorithm for it)"),
                    HasSubstr("compile the model again")));
}

TEST_F(GpuVendor, ACandidateAloneNeedsNoImage) {
  load(executable(""));
  EXPECT_EQ(rows(6), expected(6));
}

TEST_F(GpuVendor, WithoutTheLibraryOursRuns) {
  {
    const ScopedVariable off("NIMBLE_CUBLASLT", "off");
    load(executable());
    EXPECT_THAT(model_->notes(), ElementsAre(AllOf(HasSubstr("cublaslt.matmul is not available"),
                                                   HasSubstr("product_0 runs instead"))));
    EXPECT_EQ(rows(5), expected(5, 1000));
    EXPECT_THAT(refusal(executable(""), Status::kIncompatible),
                HasSubstr("kernel product can only run as cublaslt.matmul"));
  }
  exec::VendorCall other = call();
  other.library = "cuBLASLt 12.1.3";
  load(executable(kOurs, other));
  EXPECT_THAT(model_->notes(), ElementsAre(HasSubstr("measured with cuBLASLt 12.1.3")));
  EXPECT_EQ(rows(5), expected(5, 1000));
  library().fail("cublasLtCreate", 1, 1);
  load(executable());
  EXPECT_THAT(model_->notes(), ElementsAre(HasSubstr("cublasLtCreate gave status 1")));
  EXPECT_EQ(rows(5), expected(5, 1000));
}

// What a file may say of it.
TEST_F(GpuVendor, ConfigurationsAreNotBelieved) {
  exec::VendorCall c = call();
  c.n = 4;  // as if w had a column more
  load(executable(kOurs, c));
  EXPECT_EQ(rows(5), expected(5, 1000));
  c = call();
  c.transpose_w = true;
  load(executable(kOurs, c));
  EXPECT_EQ(rows(5), expected(5, 1000));
  c = call();
  c.y = 2;
  load(executable(kOurs, c));
  EXPECT_THAT(model_->notes(), ElementsAre(HasSubstr("it writes what is no output")));
  exec::Executable e = executable();
  e.kernels[0].implementations[0].config = "{";
  load(e);
  EXPECT_THAT(model_->notes(), ElementsAre(HasSubstr("no valid JSON")));
  EXPECT_EQ(rows(5), expected(5, 1000));
  EXPECT_EQ(library().calls("cublasLtMatmul"), 0);
}

TEST_F(GpuVendor, RoutinesStayOnTheirDevice) {
  // One of the CPU's would read what the host does not address.
  exec::Executable e = executable();
  e.kernels[0].implementations[0].symbol = "onednn.matmul";
  load(e);
  EXPECT_THAT(model_->notes(),
              ElementsAre(HasSubstr("it does not compute on the device \"cuda\"")));
  EXPECT_EQ(rows(5), expected(5, 1000));
  // And the other way round.
  Interpreter::load(R"ASM(
scalar "bytes" [a0 4 *]
kernel "add" {
  source "add" symbols n
  in f32 ([a0]) in f32 ([a0]) out f32 ([a0])
  dispatch { 0: 0 }
  vendor "cublaslt.matmul" config "{}"
  host "test.add"
}
function "main" 1 6 {
  ShapeOf r1, 1, r0  Invoke r2, f"bytes", (r1)  AllocStorage r2, r2, 64, d0  LoadConsti r3, 0
  AllocTensorReg r4, r2, r3, f32, (r1)  InvokePacked k"add", (r0, r0, r4)  Ret r4
}
entry "main" f0 { input "x" f32 ["n"] [-1]  output "y" f32 ["n"] [-1] }
)ASM",
                    {}, true);
  EXPECT_THAT(model_->notes(), ElementsAre(HasSubstr("it does not compute on the device \"cpu\"")));
  EXPECT_EQ(floats({1, 2}), (std::vector<float>{2, 4}));
}

TEST_F(GpuVendor, WithoutTrustNothingIsCalled) {
  EXPECT_THAT(refusal(executable(), Status::kInvalidArgument, false), HasSubstr("native code"));
  EXPECT_THAT(refusal(executable(""), Status::kInvalidArgument, false),
              AllOf(HasSubstr("calls of a vendor's library"),
                    HasSubstr("kernel product has no portable form")));
  EXPECT_EQ(library().calls("cublasLtCreate"), 0);
}

// A result that shares bytes with an operand.
TEST_F(GpuVendor, OverlapsAreRefused) {
  std::string text = std::string(kProduct) + kOurs + kProgram;
  const std::string from = "AllocTensorReg r7, r3, r8, f32, (r1, r9)";
  text.replace(text.find(from), from.size(), "AllocTensorReg r7, r4, r8, f32, (r1, r9)");
  exec::Executable e = exec::assemble(text);
  e.kernels[0].implementations[0].config = exec::to_json(call());
  add_image(&e, "sm_90a", STANDIN_CUDA_IMAGE "product_0");
  load(e);
  EXPECT_THAT(failure({{{1, 4}, {0, 0, 0, 0}}}), HasSubstr("kernel product (matmul+add)"));
  EXPECT_EQ(library().calls("cublasLtMatmul"), 0);
}

TEST_F(GpuVendor, ProfilesTellTheRoutinesTime) {
  load(executable(), true, 100);
  EXPECT_EQ(rows(3), expected(3));
  const std::string profile = session_->profiler().json(model_->executable());
  // The stand-in takes a millisecond for each piece of work, and one for the event behind it.
  EXPECT_THAT(profile, AllOf(HasSubstr("\"implementation\":\"cublaslt.matmul\""),
                             HasSubstr("\"total_ns\":2000000")));
}

TEST_F(GpuVendor, AFailedStartEndsTheRun) {
  load(executable());
  EXPECT_EQ(rows(3), expected(3));
  library().fail("cublasLtMatmul", 1, 14);
  EXPECT_THAT(failure({{{1, 4}, {0, 0, 0, 0}}}),
              AllOf(HasSubstr("cublasLtMatmul gave status 14"), HasSubstr("matmul at layer.0"),
                    HasSubstr("NIMBLE_CUBLASLT=off")));
  EXPECT_EQ(rows(3), expected(3));
}

// What the library has not, does not take or has no memory for, ours does: found out where the call
// of new sizes comes, or where it is started.
TEST_F(GpuVendor, OursServesWhatTheLibraryCannot) {
  load(executable());
  for (const int status : {3, 7, 8, 15}) {
    SCOPED_TRACE(status);
    EXPECT_EQ(rows(3), expected(3));
    library().fail("cublasLtMatmul", 1, status);
    EXPECT_EQ(rows(3), expected(3, 1000));
    EXPECT_EQ(rows(3), expected(3));
    const int64_t m = 10 + status;
    library().fail("cublasLtMatmulAlgoGetHeuristic", 1, status);
    EXPECT_EQ(rows(m), expected(m, 1000));
    // There may be memory at another time.
    EXPECT_EQ(rows(m), status == 3 ? expected(m) : expected(m, 1000));
  }
  load(executable(), true, 100);
  library().fail("cublasLtMatmul", 1, 15);
  EXPECT_EQ(rows(3), expected(3, 1000));
  EXPECT_THAT(session_->profiler().json(model_->executable()),
              AllOf(HasSubstr("\"implementation\":\"product_0\""),
                    Not(HasSubstr("\"implementation\":\"cublaslt.matmul\""))));
  load(executable(""));
  library().fail("cublasLtMatmul", 1, 15);
  EXPECT_THAT(failure({{{1, 4}, {0, 0, 0, 0}}}, Status::kUnsupported),
              HasSubstr("cublasLtMatmul gave status 15"));
}

// Any other failure is told, not hidden behind ours.
TEST_F(GpuVendor, FaultsOfTheLibraryEndTheRun) {
  load(executable());
  for (const char* function : {"cublasLtMatmulAlgoGetHeuristic", "cublasLtMatmul"})
    for (const int status : {1, 13, 14}) {
      library().fail(function, 1, status);
      EXPECT_THAT(failure({{{1, 4}, {0, 0, 0, 0}}}),
                  HasSubstr(fmt::format("{} gave status {}", function, status)));
    }
  EXPECT_EQ(rows(1), expected(1));
}

// A device that is lost is none for ours either.
TEST_F(GpuVendor, ALossIsNotLeftToOurs) {
  load(executable());
  EXPECT_EQ(rows(3), expected(3));
  const int started = driver().calls("cuLaunchKernel");
  driver().fail("cuStreamSynchronize", 1, 700);
  EXPECT_THROW(cuda_device().synchronize(), Error);
  library().fail("cublasLtMatmul", 1, 15);
  EXPECT_THAT(failure({{{1, 4}, {0, 0, 0, 0}}}), HasSubstr("it was lost by"));
  EXPECT_EQ(driver().calls("cuLaunchKernel"), started);
}

// y = a + b over 3 symbols[0] elements.
int twice(const StandInLaunch& l) {
  const auto* a = static_cast<const float*>(l.pointers[0]);
  const auto* b = static_cast<const float*>(l.pointers[1]);
  auto* y = static_cast<float*>(l.pointers[2]);
  for (int64_t i = 0; i < 3 * l.symbols[0]; ++i) y[i] = a[i] + b[i];
  return 0;
}

// The product, doubled five times to and fro, then once more: two rows, of eight launches and of
// four.
class GpuVendorRows : public GpuVendor {
 protected:
  void SetUp() override {
    GpuVendor::SetUp();
    driver().add_kernel("twice_0", 3, 1, twice);
  }
  exec::Executable rows_of_launches() {
    std::string text = std::string(kProduct) + kOurs + kProgram;
    const auto replace = [&](const std::string& from, const std::string& to) {
      text.replace(text.find(from), from.size(), to);
    };
    replace("function \"main\"", R"ASM(kernel "twice" {
  source "add" symbols m device d2
  in f32 ([a0], [3]) in f32 ([a0], [3]) out f32 ([a0], [3])
  dispatch { 0: 0 }
  native "twice_0" launch ([1], [1], [1]) block 32 shared 0
}
function "main")ASM");
    std::string doubled;
    for (int i = 0; i < 5; ++i)
      doubled += i % 2 == 0 ? "InvokePacked k\"twice\", (r7, r7, r10) "
                            : "InvokePacked k\"twice\", (r10, r10, r7) ";
    replace("DeviceCopy r10, r7, d0  Ret r10",
            "AllocStorage r11, r3, 64, d2  AllocTensorReg r10, r11, r8, f32, (r1, r9) " + doubled +
                "InvokePacked k\"product\", (r4, r5, r6, r7) " + doubled +
                "DeviceCopy r5, r10, d0  Ret r5");
    replace("Invoke r3, f\"bytes\", (r1)  AllocStorage r3, r3, 64, d2",
            "Invoke r3, f\"bytes\", (r1)  AllocStorage r11, r3, 64, d2");
    replace("AllocTensorReg r7, r3, r8", "AllocTensorReg r7, r11, r8");
    exec::Executable e = exec::assemble(text);
    e.kernels[0].implementations[0].config = exec::to_json(call());
    add_image(&e, "sm_90a", STANDIN_CUDA_IMAGE "product_0 twice_0");
    return e;
  }
  // Of other numbers each time.
  void check(int64_t m, int round) {
    std::vector<float> x, y;
    for (int64_t i = 0; i < 4 * m; ++i) x.push_back(static_cast<float>((i + round) % 5));
    for (int64_t i = 0; i < m; ++i)
      for (size_t j = 0; j < 3; ++j)
        y.push_back(32 * (x[static_cast<size_t>(4 * i) + j] + x[static_cast<size_t>(4 * i) + 3] +
                          10 * static_cast<float>(j + 1)));
    EXPECT_EQ(run({{{m, 4}, x}})[0].floats, y) << m << " " << round;
  }
  int products() { return library().calls("cublasLtMatmul"); }
  int graphs() { return driver().calls("cuGraphLaunch"); }
};

// In the order of the program, whatever is put off.
TEST_F(GpuVendorRows, RoutinesAreCapturedWithTheirRows) {
  library().set(0, 1, 4096);  // with a workspace, which is the session's
  load(rows_of_launches());
  for (int round = 0; round < 6; ++round)
    for (const int64_t m : {1, 5}) check(m, round);
  const int called = products(), launched = driver().calls("cuLaunchKernel"), whole = graphs();
  EXPECT_GT(driver().calls("cuStreamBeginCapture_v2"), 0);
  EXPECT_EQ(driver().calls("cuStreamBeginCapture_v2"), driver().calls("cuStreamEndCapture"));
  for (int round = 0; round < 4; ++round)
    for (const int64_t m : {1, 5}) check(m, round);
  EXPECT_EQ(products(), called) << "the library is not asked";
  EXPECT_EQ(driver().calls("cuLaunchKernel"), launched);
  EXPECT_EQ(graphs(), whole + 4 * 2 * 2);
}

// A run with a profile starts each by itself, and what is known serves the next one without.
TEST_F(GpuVendorRows, ProfilesSeeEachRoutine) {
  load(rows_of_launches());
  for (int round = 0; round < 4; ++round) check(2, round);
  const int called = products(), whole = graphs();
  session_->set_profiling(true);
  check(2, 7);
  EXPECT_EQ(products(), called + 2);
  EXPECT_EQ(graphs(), whole);
  EXPECT_THAT(
      session_->profiler().json(model_->executable()),
      AllOf(HasSubstr("\"implementation\":\"cublaslt.matmul\""), Not(HasSubstr("graphs_refused"))));
  session_->set_profiling(false);
  check(2, 8);
  EXPECT_EQ(products(), called + 2);
  EXPECT_EQ(graphs(), whole + 2);
}

// Whatever fails of a capture: the row runs as before, and the profile tells why.
TEST_F(GpuVendorRows, WithoutACaptureOneByOne) {
  const auto attempt = [&](const char* function, const auto& fail, const char* said) {
    SCOPED_TRACE(function);
    load(rows_of_launches());
    for (int round = 0; round < 2; ++round) check(3, round);
    const int called = products(), whole = graphs();
    fail(function);
    for (int round = 0; round < 4; ++round) check(3, round);
    EXPECT_EQ(graphs(), whole + 4) << "the row without a routine has one";
    EXPECT_GE(products(), called + 2 * 4);
    session_->set_profiling(true);
    check(3, 0);
    EXPECT_THAT(session_->profiler().json(model_->executable()),
                AllOf(HasSubstr("\"graphs_refused\":{\"last\":\"" + std::string(said)),
                      HasSubstr("\"rows\":1}")));
    EXPECT_THAT(
        session_->profiler().table(model_->executable()),
        HasSubstr("1 row of launches had no CUDA graph; of the last: " + std::string(said)));
  };
  const auto of_driver = [&](int result) {
    return [this, result](const char* function) { driver().fail(function, 1, result); };
  };
  attempt("cuStreamBeginCapture_v2", of_driver(900), "cuStreamBeginCapture gave");
  attempt("cuStreamEndCapture", of_driver(901), "cuStreamEndCapture gave");
  attempt("cuGraphAddChildGraphNode", of_driver(801), "cuGraphAddChildGraphNode gave");
  for (const int status : {3, 14, 15})
    attempt(
        "cublasLtMatmul", [&](const char* function) { library().fail(function, 1, status); },
        "cublasLtMatmul gave status");
}

// What gave its memory back has its workspace elsewhere: what is known does not fit any more.
TEST_F(GpuVendorRows, WorkspacesMayMove) {
  library().set(0, 1, 1 << 20);
  load(rows_of_launches());
  for (int round = 0; round < 4; ++round) check(4, round);
  session_->trim();
  cuda_device().trim();
  void* const other = cuda_device().allocate(1 << 20);
  for (int round = 0; round < 6; ++round) check(4, round);
  cuda_device().free(other, 1 << 20);
}

TEST_F(GpuVendorRows, MayBeTurnedOff) {
  const ScopedVariable off("NIMBLE_CUDA_GRAPHS", "off");
  load(rows_of_launches());
  for (int round = 0; round < 4; ++round) check(2, round);
  EXPECT_EQ(graphs(), 0);
  EXPECT_EQ(products(), 8);
  EXPECT_EQ(driver().calls("cuStreamBeginCapture_v2"), 0);
}

// Models have their handle with them: two at once, and one after the other.
TEST_F(GpuVendor, HandlesGoWithTheModels) {
  const size_t before = library().alive();
  load(executable());
  rows(2);
  std::shared_ptr<const Model> first = model_;
  load(executable());
  rows(3);
  EXPECT_EQ(library().calls("cublasLtCreate"), 1);
  session_.reset();
  model_.reset();
  EXPECT_EQ(library().calls("cublasLtDestroy"), 0);
  first.reset();
  EXPECT_EQ(library().calls("cublasLtDestroy"), 1);
  EXPECT_EQ(library().alive(), before);
}

// What the library had on a device that is lost is left, and a model that is loaded anew has ours.
TEST_F(GpuVendor, AProcessThatLostItsGpuRunsOurs) {
  load(executable());
  EXPECT_EQ(rows(3), expected(3));
  driver().fail("cuStreamSynchronize", 1, 700);
  EXPECT_THROW(cuda_device().synchronize(), Error);
  const size_t left = library().alive();
  session_.reset();
  model_.reset();
  EXPECT_EQ(library().calls("cublasLtDestroy"), 0);
  EXPECT_EQ(library().alive(), left);
  load(executable());
  EXPECT_THAT(model_->notes(), ElementsAre(AllOf(HasSubstr("this process has lost a GPU"),
                                                 HasSubstr("product_0 runs instead"))));
  EXPECT_EQ(rows(3), expected(3, 1000));
  EXPECT_EQ(library().calls("cublasLtCreate"), 1);
}

}  // namespace
}  // namespace nimble::rt
