// Whole programs whose kernels are a GPU's.
#include <gmock/gmock.h>

#include "vm/interpreter/test/gpu_harness.h"

namespace nimble::rt {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST_F(Gpu, ProgramsRunOnIt) {
  load(executable(program()));
  EXPECT_EQ(model_->gpu_target(), "sm_90a");
  EXPECT_THAT(model_->info(), HasSubstr("\"gpu_target\":\"sm_90a\""));
  for (size_t n : {1, 3, 4, 5, 31, 32, 33, 1000}) {
    std::vector<float> x(n), y(n);
    for (size_t i = 0; i < n; ++i) {
      x[i] = static_cast<float>(i * i);
      y[i] = static_cast<float>(2 * i);
    }
    EXPECT_EQ(floats(x), y) << n;
  }
  // The host waits once in a run: where it copies out.
  const int waits = driver().calls("cuStreamSynchronize");
  floats({1, 4});
  EXPECT_EQ(driver().calls("cuStreamSynchronize"), waits + 1);
}

TEST_F(Gpu, KernelsOfAnImageMayBeModulesOfTheirOwn) {
  exec::Executable e = executable(program());
  e.images.clear();
  const std::string symbols[] = {"root_1", "add_0", "root_0"};
  std::string bytes;
  std::vector<exec::NativeImage::Module> modules;
  for (const std::string& symbol : symbols) {
    const std::string module = STANDIN_CUDA_IMAGE + symbol;
    modules.push_back({symbol, module.size()});
    bytes += module;
  }
  add_image(&e, "sm_90a", bytes);
  e.images[0].modules = modules;
  load(std::move(e));
  EXPECT_EQ(driver().calls("cuModuleLoadDataEx"), 3);
  EXPECT_EQ(floats({1, 4, 9, 16, 25}), (std::vector<float>{2, 4, 6, 8, 10}));
}

TEST_F(Gpu, NothingIsStartedForNothing) {
  load(executable(program()));
  const int launches = driver().calls("cuLaunchKernel");
  EXPECT_EQ(floats({}), std::vector<float>());
  EXPECT_EQ(driver().calls("cuLaunchKernel"), launches + 1);  // the root, whose grid is of ones
}

// y = x over n elements, of which a map describes whole rows of four.
int boxes(const StandInLaunch& l) {
  const int64_t n = l.symbols[0];
  const StandInMap& m = l.maps[0];
  const auto rows = static_cast<uint64_t>(n / 4);
  if (rows == 0 ? m.memory != nullptr
                : m.memory != l.pointers[0] || m.type != 7 || m.rank != 2 || m.extents[0] != 4 ||
                      m.extents[1] != rows || m.pitches[0] != 16 || m.box[0] != 8 ||
                      m.box[1] != 16 || m.swizzle != 1)
    return 700;
  const auto* x = static_cast<const float*>(l.pointers[0]);
  auto* y = static_cast<float*>(l.pointers[1]);
  for (int64_t i = 0; i < n; ++i) y[i] = x[i];
  return 0;
}

std::string boxes_kernel(const char* rows) {
  return fmt::format(
      "kernel \"boxes\" {{ source \"copy\" symbols n device d2 in f32 ([a0]) out f32 ([a0]) "
      "dispatch {{ 0: 0 }} native \"boxes_0\" launch ([a0 31 + 32 //], [1], [1]) block 32 shared 0 "
      "map 0 ([4] by 8, {} by 16) }}\n",
      rows);
}

class TensorMapsOfKernels : public Gpu {
 protected:
  void SetUp() override {
    Gpu::SetUp();
    driver().add_kernel("boxes_0", 2, 1, boxes);
    driver().expect_maps("boxes_0", 1);
  }
  // Six launches in a row.
  exec::Executable chain(const char* rows) {
    std::string body = "DeviceCopy r4, r0, d2\n" + allocate(5);
    for (int i = 0; i < 3; ++i)
      body += "InvokePacked k\"boxes\", (r4, r5)  InvokePacked k\"boxes\", (r5, r4)\n";
    exec::Executable e = executable(body + "DeviceCopy r7, r4, d0  Ret r7\n", boxes_kernel(rows));
    e.images.clear();
    add_image(&e, "sm_90a", STANDIN_CUDA_IMAGE "add_0 root_0 root_1 boxes_0");
    return e;
  }
  static int encoded() { return driver().calls("cuTensorMapEncodeTiled"); }
};

// Launched one by one, and as a graph from the third time on.
TEST_F(TensorMapsOfKernels, AreEncodedForWhatIsNewAndKept) {
  load(chain("[a0 4 //]"));
  for (const size_t n : {8, 9, 3, 64}) {
    std::vector<float> x(n);
    for (size_t i = 0; i < n; ++i) x[i] = static_cast<float>(i + 1);
    for (int i = 0; i < 3; ++i) EXPECT_EQ(floats(x), x) << n;
    const int before = encoded(), graphs = driver().calls("cuGraphLaunch");
    for (int i = 0; i < 3; ++i) EXPECT_EQ(floats(x), x) << n;
    EXPECT_EQ(encoded(), before) << n;
    EXPECT_GT(driver().calls("cuGraphLaunch"), graphs) << n;
  }
  EXPECT_GT(encoded(), 0);
}

TEST_F(TensorMapsOfKernels, DescribeNoMoreThanTheirTensorHas) {
  load(chain("[a0]"));
  EXPECT_EQ(floats({}), std::vector<float>());
  try {
    floats({1, 2, 3, 4, 5, 6, 7, 8});
    ADD_FAILURE() << "no error";
  } catch (const Error& e) {
    EXPECT_EQ(e.status(), Status::kFatal);
    EXPECT_THAT(e.what(), HasSubstr("the tensor map of its tensor 0 describes 4 x 8 elements"));
  }
}

TEST_F(Gpu, ConstantsLieThere) {
  load(executable("DeviceCopy r4, r0, d2  LoadConst r5, c\"w\"\n" + allocate(6) +
                  "InvokePacked k\"add\", (r4, r5, r6)  DeviceCopy r7, r6, d0  Ret r7\n"));
  EXPECT_EQ(floats({2}), std::vector<float>{3});
}

// Rows of an odd number of bytes: vectors of the hardware's lie at multiples of their size alone.
constexpr const char* kViews =
    "DeviceCopy r4, r0, d2  LoadConsti r1, 4  LoadConsti r2, 8  LoadConsti r3, 12\n"
    "LoadConsti r9, 2\n"
    "AllocTensorReg r5, r4, r2, f32, (r9)\n"  // x[2:4]
    "AllocTensorReg r6, r4, r1, f32, (r9)\n"  // x[1:3]
    "AllocTensorReg r7, r4, r3, f32, (r9)\n"  // x[3:5], written
    "InvokePacked k\"add\", (r5, r6, r7)  DeviceCopy r8, r4, d0  Ret r8\n";

TEST_F(Gpu, ViewsAtAnyOffsetAreServed) {
  load(executable(kViews));
  for (int run = 0; run < 4; ++run)  // the later ones where stretches could be known
    EXPECT_EQ(floats({1, 2, 3, 4, 5, 6}), (std::vector<float>{1, 2, 3, 5, 7, 6}));
}

// A row of 600 bytes lies at multiples of 8; one that begins behind an element at multiples of 4.
TEST_F(Gpu, ViewsAreCopiedOnlyWhereAccessesAreWiderThanTheyLie) {
  std::string kernels;
  for (const int bytes : {4, 8, 16})
    kernels += fmt::format(
        "kernel \"add_by_{0}\" {{ source \"add\" symbols n device d2\n"
        "in f32 ([a0]) in f32 ([a0]) out f32 ([a0]) dispatch {{ 0: 0 }}\n"
        "native \"add_by_{0}\" launch ([a0 31 + 32 //], [1], [1]) block 32 shared 0 aligned {0} "
        "}}\n",
        bytes);
  driver().add_kernel("add_by_4", 3, 1, add_by<4>);
  driver().add_kernel("add_by_8", 3, 1, add_by<8>);
  driver().add_kernel("add_by_16", 3, 1, add_by<16>);
  // The row at this byte of x plus itself, into the first one.
  const auto copies = [&](int bytes, int row) {
    exec::Executable e = executable(
        fmt::format("DeviceCopy r4, r0, d2  LoadConsti r1, {}  LoadConsti r2, 0\n"
                    "LoadConsti r9, 150\n"
                    "AllocTensorReg r5, r4, r1, f32, (r9)\n"
                    "AllocTensorReg r6, r4, r2, f32, (r9)\n"
                    "InvokePacked k\"add_by_{}\", (r5, r5, r6)  DeviceCopy r8, r4, d0  Ret r8\n",
                    row, bytes),
        kernels);
    e.images.clear();
    add_image(&e, "sm_90a", STANDIN_CUDA_IMAGE "add_0 root_0 root_1 add_by_4 add_by_8 add_by_16");
    load(std::move(e));
    std::vector<float> x(460);
    for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i);
    std::vector<float> y = x;
    for (size_t i = 0; i < 150; ++i) y[i] = 2 * x[static_cast<size_t>(row) / 4 + i];
    const int before = driver().calls("cuMemcpyDtoDAsync_v2");
    EXPECT_EQ(floats(x), y);
    return driver().calls("cuMemcpyDtoDAsync_v2") - before;
  };
  EXPECT_EQ(copies(4, 600), 0);
  EXPECT_EQ(copies(8, 600), 0);
  EXPECT_EQ(copies(16, 600), 2) << "for either operand";
  EXPECT_EQ(copies(16, 1200), 0);
  EXPECT_EQ(copies(8, 604), 2);
  EXPECT_EQ(copies(4, 604), 0);
}

TEST_F(Gpu, ViewsThatCannotBeCopiedKeepNoMemory) {
  load(executable(kViews));
  const Input x{{6}, {1, 2, 3, 4, 5, 6}};
  // Two copies there and, behind the launch, one back.
  for (int nth = 1; nth <= 3; ++nth) {
    driver().fail("cuMemcpyDtoDAsync_v2", nth, 2);
    EXPECT_THAT(failure({x}, Status::kExhausted), HasSubstr("cuMemcpyDtoDAsync")) << nth;
    driver().fail("cuMemcpyDtoDAsync_v2", 0, 0);
    EXPECT_EQ(floats({1, 2, 3, 4, 5, 6}), (std::vector<float>{1, 2, 3, 5, 7, 6}));
  }
}

TEST_F(Gpu, AFailedCheckEndsTheRun) {
  load(executable(program()));
  const Input bad{{2}, {1, -1}};
  EXPECT_THAT(failure({bad}),
              AllOf(HasSubstr("\"main\""), HasSubstr("kernel root (sqrt): an element is negative"),
                    HasSubstr("n = 2")));
  EXPECT_EQ(floats({4}), std::vector<float>{4});
  // A run that copies nothing out looks at its end.
  load(executable("DeviceCopy r4, r0, d2\n" + allocate(5) +
                  "InvokePacked k\"root\", (r4, r5)  Ret r0\n"));
  EXPECT_THAT(failure({bad}), HasSubstr("kernel root (sqrt): an element is negative"));
  EXPECT_EQ(floats({4}), std::vector<float>{4});
}

TEST_F(Gpu, WrongArgumentsAreFoundOnTheHost) {
  load(executable("DeviceCopy r4, r0, d2  LoadConst r5, c\"w\"\n" + allocate(6) +
                  "InvokePacked k\"add\", (r4, r5, r6)  DeviceCopy r7, r6, d0  Ret r7\n"));
  EXPECT_THAT(failure({{{2}, {1, 2}}}),
              HasSubstr("kernel add (add): argument 1 must be f32 (n = 2), it is f32 (1)"));
  load(executable(allocate(6) +
                  "AllocADT r5, 0, (r0)  GetField r5, r5, 0\n"
                  "InvokePacked k\"add\", (r5, r5, r6)  DeviceCopy r7, r6, d0  Ret r7\n"));
  EXPECT_THAT(failure({{{2}, {1, 2}}}),
              HasSubstr("argument 0 lies on device 0 (cpu), the kernel runs on device 2 (cuda)"));
}

TEST_F(Gpu, AGridThatIsTooLargeIsRefused) {
  load(executable(program()));
  const int64_t n = 65536;
  EXPECT_THAT(failure({{{n}, std::vector<float>(static_cast<size_t>(n), 1)}}, Status::kUnsupported),
              AllOf(HasSubstr("kernel root (sqrt): its grid would have 65536 blocks along y"),
                    HasSubstr("sqrt at layer.0")));
  EXPECT_EQ(floats({4}), std::vector<float>{4});
}

TEST_F(Gpu, ProfilesTellTheKernelsTime) {
  load(executable(program()), true, 100);
  floats({1, 4, 9});
  const std::string profile = session_->profiler().json(model_->executable());
  // The stand-in takes a millisecond for each kernel, and one for the event behind it.
  EXPECT_THAT(profile,
              AllOf(HasSubstr("\"implementation\":\"root_0\""), HasSubstr("\"total_ns\":2000000"),
                    HasSubstr("\"threads\":32"), HasSubstr("\"to\":\"cuda\"")));
  const std::string trace = session_->profiler().trace_json(model_->executable());
  EXPECT_THAT(trace, AllOf(HasSubstr("\"name\":\"cuda\""), HasSubstr("\"tid\":2")));
}

TEST_F(Gpu, ImagesFitTheGpu) {
  exec::Executable e = executable(program());
  e.images[0].target = "sm_100";
  EXPECT_THAT(refusal(e, Status::kIncompatible),
              AllOf(HasSubstr("GPU code is for sm_100"), HasSubstr("Stand-in GPU"),
                    HasSubstr("compute capability 9.0"), HasSubstr("--target compute_80")));
  add_image(&e, "compute_80", kAssembly);
  load(e);
  EXPECT_EQ(model_->gpu_target(), "compute_80");
  add_image(&e, "sm_90", STANDIN_CUDA_IMAGE "add_0 root_0 root_1");
  load(e);
  EXPECT_EQ(model_->gpu_target(), "sm_90");
  EXPECT_THAT(model_->notes(), ::testing::IsEmpty());
  e = executable(program());
  e.images[0].target = "sm_90";
  e.images[0].bytes = e.images[0].bytes.first(sizeof STANDIN_CUDA_IMAGE - 1);
  EXPECT_THAT(refusal(e, Status::kCorrupt), HasSubstr("kernel add: the GPU's code has no add_0"));
  e.images.clear();
  EXPECT_THAT(refusal(e, Status::kIncompatible), HasSubstr("GPU code is for none"));
}

// A file of yesterday's machine code and assembly beside runs on what came later, and nothing
// does on what was before.
TEST_F(Gpu, AssemblyIsForWhatHasNoMachineCode) {
  exec::Executable e = executable(program());
  e.images[0].target = "sm_80";
  add_image(&e, "compute_80", kAssembly);
  add_image(&e, "sm_90a", STANDIN_CUDA_IMAGE "add_0 root_0 root_1");
  for (const auto& [capability, target] :
       {std::pair(80, "sm_80"), std::pair(86, "sm_80"), std::pair(89, "sm_80"),
        std::pair(90, "sm_90a"), std::pair(100, "compute_80"), std::pair(120, "compute_80")}) {
    use_gpu_of(capability);
    load(e);
    EXPECT_EQ(model_->gpu_target(), target) << capability;
    EXPECT_EQ(model_->notes().size(), std::string_view(target) == "compute_80" ? 1u : 0u);
  }
  EXPECT_THAT(model_->notes()[0],
              AllOf(HasSubstr("compute capability 12.0"), HasSubstr("compute_80")));
  EXPECT_EQ(floats({1, 4, 9, 16, 25}), (std::vector<float>{2, 4, 6, 8, 10}));
  use_gpu_of(75);
  EXPECT_THAT(refusal(e, Status::kIncompatible),
              AllOf(HasSubstr("GPU code is for sm_80, compute_80, sm_90a"),
                    HasSubstr("compute capability 7.5"), HasSubstr("8.0 or newer")));
  use_gpu_of(90);
}

TEST_F(Gpu, WhatTheDriverDoesNotCompileIsTold) {
  exec::Executable e = executable(program());
  const auto refused = [&](std::string_view assembly) {
    e.images.clear();
    add_image(&e, "compute_80", assembly);
    return refusal(e, Status::kIncompatible);
  };
  EXPECT_THAT(refused(".version 9.0\n.target sm_80\nnothing that it knows\n"),
              AllOf(HasSubstr("CUDA_ERROR_INVALID_PTX"), HasSubstr("ptxas application ptx input"),
                    HasSubstr("line 3")));
  driver().set(12040, 1, 90);
  EXPECT_THAT(refused(kAssembly),
              AllOf(HasSubstr("CUDA_ERROR_UNSUPPORTED_PTX_VERSION"),
                    HasSubstr("Unsupported .version 9.0"), HasSubstr("update the driver")));
}

TEST_F(Gpu, CodeFitsItsContract) {
  driver().add_kernel("add_0", 3, 2, add);
  EXPECT_THAT(refusal(executable(program()), Status::kCorrupt),
              HasSubstr("add_0 has other parameters than the kernel's contract says"));
}

TEST_F(Gpu, NothingRunsThereWithoutTrust) {
  EXPECT_THAT(refusal(executable(program()), Status::kInvalidArgument, false),
              HasSubstr("kernel add has no portable form"));
}

// A program that only moves values needs no kernel's portable form.
TEST_F(Gpu, WithoutTrustTheHostStandsIn) {
  exec::Executable e = exec::assemble(
      std::string("function \"main\" 1 12 { DeviceCopy r4, r0, d2  DeviceCopy r5, r4, d0  Ret r5 "
                  "}\n") +
      kEntry);
  const int copies = driver().calls("cuMemcpyHtoDAsync_v2");
  session_.reset();
  model_ = Model::load(std::move(e), {}, "test");
  session_ = std::make_unique<Session>(model_, SessionOptions{});
  EXPECT_EQ(floats({1, 2}), (std::vector<float>{1, 2}));
  EXPECT_EQ(driver().calls("cuMemcpyHtoDAsync_v2"), copies);
}

TEST_F(Gpu, NoMemoryIsAnErrorOfTheRun) {
  load(executable(program()));
  floats({1});  // what is made once is there
  cuda_device().trim();
  for (int nth = 1; nth < 3; ++nth) {
    driver().fail("cuMemcpyHtoDAsync_v2", nth, 2);
    driver().fail("cuLaunchKernel", 1, 701);
    EXPECT_THAT(failure({{{2}, {1, 4}}}, nth == 1 ? Status::kExhausted : Status::kUnsupported),
                AllOf(HasSubstr("\"main\""), HasSubstr("CUDA_ERROR_")));
    driver().reset();
    EXPECT_EQ(floats({4}), std::vector<float>{4});
  }
}

// A kernel that faults ends its run by name and loses the device; a model that is loaded anew runs.
TEST_F(Gpu, AFaultLosesTheDevice) {
  load(executable(program()));
  EXPECT_EQ(floats({4}), std::vector<float>{4});
  EXPECT_THAT(failure({{{1}, {INFINITY}}}),
              AllOf(HasSubstr("CUDA_ERROR_ILLEGAL_ADDRESS"),
                    HasSubstr("started since the last wait: kernel root (sqrt), kernel add (add)"),
                    HasSubstr("load the model anew")));
  EXPECT_THAT(failure({{{1}, {4}}}), AllOf(HasSubstr("NVIDIA GPU: it was lost by CUDA_ERROR_"),
                                           Not(HasSubstr("started since"))));
  load(executable(program()));
  EXPECT_EQ(floats({4}), std::vector<float>{4});
}

TEST_F(Gpu, SessionsShareIt) {
  load(executable(program()));
  Session other(model_, {1});
  const float x[] = {16}, bad[] = {-16};
  const int64_t shape[] = {1};
  std::vector<OutputTensor> out(1);
  for (int i = 0; i < 3; ++i) {
    const InputTensor wrong{bad, DType::kF32, shape, {}, true};
    EXPECT_THROW(other.run(0, {&wrong, 1}, out), Error);
    EXPECT_EQ(floats({4}), std::vector<float>{4});
    const InputTensor right{x, DType::kF32, shape, {}, true};
    other.run(0, {&right, 1}, out);
    EXPECT_EQ(static_cast<const float*>(out[0].data)[0], 8);
  }
}

}  // namespace
}  // namespace nimble::rt
