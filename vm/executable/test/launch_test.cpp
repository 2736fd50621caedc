#include "vm/executable/launch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "vm/base/device_number.h"
#include "vm/base/error.h"
#include "vm/executable/assembler.h"
#include "vm/executable/disassembler.h"
#include "vm/executable/test/sample.h"
#include "vm/executable/verifier.h"

namespace nimble::exec {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Launch launch_of(const char* x, const char* y, const char* z) {
  Launch out;
  out.grid = {assemble_program(x), assemble_program(y), assemble_program(z)};
  return out;
}

Status status_of(const Launch& launch, std::vector<int64_t> symbols, const char* text) {
  try {
    grid_of(launch, symbols);
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), HasSubstr(text));
    EXPECT_FALSE(e.remedy().empty());
    return e.status();
  }
  return Status::kOk;
}

TEST(Launch, GridsFollowTheSymbols) {
  const Launch l = launch_of("[a0 63 + 64 //]", "[a1]", "[2]");
  EXPECT_THAT(grid_of(l, std::vector<int64_t>{1, 7}), ElementsAre(1, 7, 2));
  EXPECT_THAT(grid_of(l, std::vector<int64_t>{129, 0}), ElementsAre(3, 0, 2));
  EXPECT_THAT(grid_of(Launch{}, {}), ElementsAre(1, 1, 1));
}

TEST(Launch, GridsEndAtWhatAGpuTakes) {
  const Launch l = launch_of("[a0]", "[a1]", "[a2]");
  const std::vector<int64_t> most(kMaxGrid.begin(), kMaxGrid.end());
  EXPECT_THAT(grid_of(l, most), ElementsAre(2147483647, 65535, 65535));
  for (size_t axis = 0; axis < 3; ++axis) {
    std::vector<int64_t> symbols = most;
    ++symbols[axis];
    const std::string along = std::string("along ") + "xyz"[axis];
    EXPECT_EQ(status_of(l, symbols, along.c_str()), Status::kUnsupported);
    symbols[axis] = int64_t{1} << 32;
    EXPECT_EQ(status_of(l, symbols, "4294967296 blocks"), Status::kUnsupported);
    symbols[axis] = -1;
    EXPECT_EQ(status_of(l, symbols, "-1 blocks"), Status::kUnsupported);
  }
  const Launch grows = launch_of("[a0 a0 *]", "[1]", "[1 a0 //]");
  EXPECT_EQ(status_of(grows, {INT64_MAX}, "overflow"), Status::kFatal);
  EXPECT_EQ(status_of(grows, {0}, "division by zero"), Status::kFatal);
}

TEST(Launch, StepsFollowTheSymbols) {
  Launch l;
  EXPECT_EQ(steps_of(l, {}), 1);
  l.steps = assemble_program("[a0 1 +]");
  EXPECT_EQ(steps_of(l, std::vector<int64_t>{0}), 1);
  EXPECT_EQ(steps_of(l, std::vector<int64_t>{6}), 7);
  EXPECT_THROW(steps_of(l, std::vector<int64_t>{INT64_MAX}), Error);
  EXPECT_EQ(steps_of(l, std::vector<int64_t>{-1}), 0);
  EXPECT_EQ(steps_of(l, std::vector<int64_t>{kMaxSteps - 1}), kMaxSteps);
  for (const int64_t symbol : {int64_t{-2}, kMaxSteps, int64_t{1} << 60}) try {
      steps_of(l, std::vector<int64_t>{symbol});
      ADD_FAILURE() << symbol;
    } catch (const Error& e) {
      EXPECT_EQ(e.status(), Status::kUnsupported) << e.what();
    }
}

// A constant, a storage, a copy and a kernel of a GPU.
Executable on_gpu() {
  Executable e = assemble(R"ASM(
constant "w" f32 [2] device d2 { 1, 2 }
constant "there" f32 [2] device d1 { 1, 2 }
kernel "dense" {
  symbols m "b*n"
  device d2
  in f32 ([a0], [3])
  in f32 ([2], [3])
  scalar "b*n"
  out f32 ([a0], [2])
  scratch [0]
  dispatch { 0: m <= 16 ? 1 : 2  1: 0  2: 1 }
  native "small" launch ([a0], [1], [1]) block 32 shared 0
  native "large" launch ([a0 7 + 8 //], [1], [1]) block 256 shared 49152
}
kernel "here" { in f32 () out f32 () scratch [0] dispatch { 0: 0 } host "host.copy" }
function "main" 2 6 {
  DeviceCopy r1, r1, d2
  LoadConsti r2, 64
  AllocStorage r3, r2, 64, d2
  LoadConsti r2, 0
  AllocTensor r4, r3, r2, f32, [2, 2]
  LoadConst r5, c"w"
  DeviceCopy r0, r0, d2
  InvokePacked k"dense", (r0, r1, r2, r4)
  DeviceCopy r4, r4, d0
  Ret r4
}
)ASM");
  e.kernels[0].portable = sample_portable();
  return e;
}

TEST(Launch, ProgramsOfGpusMoveToTheCpu) {
  Executable e = on_gpu();
  ASSERT_TRUE(find_violations(e).empty()) << find_violations(e)[0].message;
  EXPECT_TRUE(uses_gpu(e));
  EXPECT_EQ(move_to_cpu(&e), nullptr);
  EXPECT_FALSE(uses_gpu(e));
  EXPECT_TRUE(find_violations(e).empty()) << find_violations(e)[0].message;
  EXPECT_EQ(e.constants[0].device, kCpuDevice);
  EXPECT_EQ(e.constants[1].device, kStandInDevice);
  EXPECT_EQ(e.kernels[1].implementations[0].kind, ImplementationKind::kHost);
  for (const Implementation& i : e.kernels[0].implementations) {
    EXPECT_EQ(i.kind, ImplementationKind::kPortable);
    EXPECT_FALSE(i.launch);
  }
  EXPECT_EQ(e.functions[0].code[2], (Instruction{Opcode::kAllocStorage, {3, 2, 64, 0}}));
  EXPECT_EQ(e.functions[0].code[6], (Instruction{Opcode::kDeviceCopy, {0, 0, 0}}));
  EXPECT_EQ(e.kernels[0].dispatch.nodes.size(), 3u) << "which one it would have been is still told";
}

TEST(Launch, WithoutAPortableFormTheyStay) {
  Executable e = on_gpu();
  e.kernels[0].portable.reset();
  const std::string before = disassemble(e);
  const Kernel* left = move_to_cpu(&e);
  ASSERT_TRUE(left);
  EXPECT_EQ(left->name, "dense");
  EXPECT_EQ(disassemble(e), before);
}

TEST(Launch, EachPlaceOnAGpuIsSeen) {
  EXPECT_FALSE(uses_gpu(assemble("constant \"c\" f32 [1] device d1 { 1 }")));
  EXPECT_TRUE(uses_gpu(assemble("constant \"c\" f32 [1] device d2 { 1 }")));
  EXPECT_TRUE(uses_gpu(assemble("kernel \"k\" { device d2 }")));
  EXPECT_FALSE(uses_gpu(assemble("function \"f\" 1 1 { DeviceCopy r0, r0, d1 }")));
  EXPECT_TRUE(uses_gpu(assemble("function \"f\" 1 1 { DeviceCopy r0, r0, d2 }")));
  EXPECT_TRUE(uses_gpu(assemble("function \"f\" 1 1 { AllocStorage r0, r0, 64, d2 }")));
  EXPECT_FALSE(uses_gpu(assemble("function \"f\" 3 3 { Move r2, r1 }")));
}

}  // namespace
}  // namespace nimble::exec
