// Programs on two devices, written by hand: copies move values, and an operand on the wrong
// device is a clean error that names function, instruction, operand and both devices.
#include <gmock/gmock.h>

#include "vm/base/error.h"
#include "vm/executable/assembler.h"
#include "vm/executable/reader.h"
#include "vm/executable/writer.h"
#include "vm/interpreter/session.h"
#include "vm/runtime/stand_in_device.h"

namespace nimble::rt {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr const char* kKernels = R"ASM(
constant "w" f32 [3] device d1 { 10, 20, 30 }
constant "i" i64 [] device d1 { 7 }
kernel "here" { source "copy" symbols n  in f32 ([a0])  out f32 ([a0])  scratch [0]
                dispatch { 0: 0 }  host "host.copy" }
kernel "there" { source "copy" symbols n  device d1  in f32 ([a0])  out f32 ([a0])  scratch [64]
                 dispatch { 0: 0 }  host "host.copy" }
)ASM";
constexpr const char* kEntry = R"ASM(
entry "main" f0 { input "x" f32 ["n"] [-1]  output "y" f32 ["n"] [-1] }
)ASM";

// Allocates r3, a tensor of the shape of r0, on a device; uses r1 to r4.
std::string allocate(int device) {
  return fmt::format(
      "ShapeOf r1, 1, r0  LoadConsti r2, 4096  AllocStorage r3, r2, 64, d{}  LoadConsti r4, 0  "
      "AllocTensorReg r3, r3, r4, f32, (r1)\n",
      device);
}

class Devices : public ::testing::Test {
 protected:
  void load(const std::string& body, bool profile = false) {
    session_.reset();
    exec::Executable e =
        exec::assemble(kKernels + ("function \"main\" 1 12 {\n" + body + "}\n") + kEntry);
    model_ = Model::load(exec::deserialize(exec::serialize(e)), {}, "test");
    SessionOptions options;
    options.threads = 2;
    options.profile = profile;
    session_ = std::make_unique<Session>(model_, options);
  }

  std::vector<float> run(const std::vector<float>& x) {
    const int64_t shape[1] = {static_cast<int64_t>(x.size())};
    InputTensor in{x.data(), DType::kF32, shape, {}, true};
    std::vector<OutputTensor> out(1);
    session_->run(0, {&in, 1}, out);
    const auto* data = static_cast<const float*>(out[0].data);
    return {data, data + out[0].extents[0]};
  }

  std::string error_of_run() {
    try {
      run({1, 2, 3});
    } catch (const Error& e) {
      EXPECT_EQ(e.status(), Status::kFatal);
      EXPECT_EQ(std::string(e.what()).find('\n'), std::string::npos);
      return e.what();
    }
    ADD_FAILURE() << "no error";
    return {};
  }

  std::shared_ptr<const Model> model_;
  std::unique_ptr<Session> session_;
};

std::string there_and_back() {
  return "DeviceCopy r5, r0, d1\n" + allocate(1) +
         "InvokePacked k\"there\", (r5, r3)  DeviceCopy r6, r3, d0  Ret r6\n";
}

TEST_F(Devices, AKernelRunsOnTheOther) {
  load(there_and_back(), true);
  for (size_t n : {0, 1, 3, 1000}) {
    const std::vector<float> x(n, 2.5f);
    EXPECT_EQ(run(x), x);
  }
  EXPECT_THAT(session_->profiler().table(model_->executable()),
              AllOf(HasSubstr("copied cpu -> stand-in: 4016 bytes in 4 copies"),
                    HasSubstr("copied stand-in -> cpu: 4016 bytes in 4 copies")));
  EXPECT_THAT(session_->profiler().json(model_->executable()), HasSubstr("\"copies\":[{"));
}

TEST_F(Devices, ConstantsLieThereOnce) {
  auto& stand_in = static_cast<StandInDevice&>(device(kStandInDevice));
  const size_t before = stand_in.in_use();
  load("LoadConst r5, c\"w\"\n" + allocate(1) +
       "InvokePacked k\"there\", (r5, r3)  DeviceCopy r6, r3, d0  Ret r6\n");
  EXPECT_EQ(stand_in.in_use(), before + 128);
  EXPECT_EQ(run({0, 0, 0}), (std::vector<float>{10, 20, 30}));
  EXPECT_EQ(run({0, 0, 0}), (std::vector<float>{10, 20, 30}));
  session_.reset();
  model_.reset();
  EXPECT_EQ(stand_in.in_use(), before);
}

TEST_F(Devices, CopiesWithinADeviceAreCopies) {
  load(
      "DeviceCopy r5, r0, d0  DeviceCopy r6, r5, d1  DeviceCopy r7, r6, d1  FreeTensor r6  "
      "DeviceCopy r8, r7, d0  Ret r8\n");
  EXPECT_EQ(run({1, 2, 3}), (std::vector<float>{1, 2, 3}));
}

TEST_F(Devices, AKernelRefusesTheOthersTensors) {
  load(allocate(1) +
       ".note \"copy at layer.0\" InvokePacked k\"there\", (r0, r3)  "
       "DeviceCopy r6, r3, d0  Ret r6\n");
  EXPECT_THAT(error_of_run(),
              AllOf(HasSubstr("function \"main\", copy at layer.0, instruction 5: "),
                    HasSubstr("kernel there (copy): argument 0 lies on device 0 (cpu), the kernel "
                              "runs on device 1 (stand-in)")));
  // By way of a tuple, so that the verifier does not see it.
  load(allocate(1) +
       "AllocADT r5, 0, (r3)  GetField r5, r5, 0  DeviceCopy r6, r0, d0  "
       "InvokePacked k\"here\", (r6, r5)  Ret r6\n");
  EXPECT_THAT(error_of_run(),
              HasSubstr("kernel here (copy): argument 1 lies on device 1 (stand-in), "
                        "the kernel runs on device 0 (cpu)"));
}

TEST_F(Devices, ElementsAndOutputsAreReadOnTheCpuOnly) {
  load(
      "LoadConst r5, c\"i\"  AllocADT r5, 0, (r5)  GetField r5, r5, 0  GetElement r5, r5, 0  Ret "
      "r0\n");
  EXPECT_THAT(error_of_run(), AllOf(HasSubstr("\"main\", instruction 3: "),
                                    HasSubstr("device 0 (cpu)"), HasSubstr("device 1 (stand-in)")));
  load(
      "LoadConst r5, c\"i\"  AllocADT r5, 0, (r5)  GetField r5, r5, 0  If r5, @4, @4  4: Ret r0\n");
  EXPECT_THAT(error_of_run(), HasSubstr("\"main\", instruction 3: "));
  load("DeviceCopy r5, r0, d1  Ret r5\n");
  EXPECT_THAT(error_of_run(),
              AllOf(HasSubstr("output y"), HasSubstr("it lies on device 1 (stand-in)")));
  // Shapes are the host's, wherever the data is.
  load(
      "DeviceCopy r5, r0, d1  ShapeOf r6, 1, r5  ReshapeTensor r5, r5, (r6)  DeviceCopy r5, r5, d0 "
      " "
      "Ret r5\n");
  EXPECT_EQ(run({4, 5}), (std::vector<float>{4, 5}));
}

// A data type's value may hold a tensor of any device; only the host's is copied out.
TEST_F(Devices, ValuesOfTheOtherAreNotReadOnTheHost) {
  const auto load_pair = [&](const std::string& body) {
    session_.reset();
    exec::Executable e = exec::assemble(kKernels + ("function \"main\" 1 12 {\n" + body + "}\n") +
                                        R"ASM(
type "Pair" tuple (1, 1)
type "Tensor[(n), f32]" tensor f32 ["n"] [-1]
entry "main" f0 { input "x" f32 ["n"] [-1]  output "y" type 0 }
)ASM");
    model_ = Model::load(std::move(e), {}, "test");
    session_ = std::make_unique<Session>(model_, SessionOptions{});
  };
  const std::vector<float> x{1, 2, 3};
  const int64_t shape[] = {3};
  const InputTensor in{x.data(), DType::kF32, shape, {}, true};
  std::vector<OutputTensor> out(1);
  load_pair(allocate(0) + "AllocADT r5, 0, (r0, r3)  Ret r5\n");
  session_->run(0, {&in, 1}, out);
  EXPECT_EQ(out[0].value->fields()[0]->shape()[0], 3);
  load_pair(allocate(1) + "AllocADT r5, 0, (r0, r3)  Ret r5\n");
  try {
    session_->run(0, {&in, 1}, out);
    ADD_FAILURE() << "no error";
  } catch (const Error& e) {
    EXPECT_EQ(e.status(), Status::kFatal);
    EXPECT_THAT(e.what(), AllOf(HasSubstr("output y"), HasSubstr("device 1 (stand-in)")));
  }
  EXPECT_DEATH(
      {
        set_device_checks(false);
        session_->run(0, {&in, 1}, out);
      },
      "");
}

// The check is not all there is: without it, the memory itself refuses.
using DevicesDeathTest = Devices;
TEST_F(DevicesDeathTest, WithoutTheCheckTheHostFaults) {
  load("DeviceCopy r5, r0, d1  Ret r5\n");
  EXPECT_DEATH(
      {
        set_device_checks(false);
        run({1, 2, 3});
      },
      "");
  // By way of a tuple, so that the verifier does not see it: an element, and a kernel's operand.
  for (const std::string& use :
       {std::string("GetElement r5, r5, 0  Ret r0\n"), std::string("If r5, @5, @5  5: Ret r0\n")}) {
    load("LoadConst r5, c\"i\"  AllocADT r5, 0, (r5)  GetField r5, r5, 0  Goto @4\n" + use);
    EXPECT_DEATH(
        {
          set_device_checks(false);
          run({1, 2, 3});
        },
        "");
  }
  load("DeviceCopy r5, r0, d1  AllocADT r5, 0, (r5)  GetField r5, r5, 0\n" + allocate(0) +
       "InvokePacked k\"here\", (r5, r3)  Ret r3\n");
  EXPECT_DEATH(
      {
        set_device_checks(false);
        run({1, 2, 3});
      },
      "");
}

TEST_F(Devices, UnknownDevicesAreRefused) {
  load("DeviceCopy r5, r0, d9  Ret r5\n");
  try {
    run({1});
    ADD_FAILURE();
  } catch (const Error& e) {
    EXPECT_EQ(e.status(), Status::kUnsupported) << e.what();
    EXPECT_THAT(e.what(), HasSubstr("\"main\", instruction 0: "));
  }
  exec::Executable e =
      exec::assemble(std::string(kKernels) + "function \"main\" 1 1 { Ret r0 }\n" + kEntry);
  e.kernels[1].device = 9;
  EXPECT_THROW(Model::load(std::move(e), {}, "test"), Error);
}

}  // namespace
}  // namespace nimble::rt
