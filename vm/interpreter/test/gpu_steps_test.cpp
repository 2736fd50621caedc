// Launches whose grid does steps: one for all of them where its blocks are on the GPU at once, else
// one for each, and the same results.
#include <gmock/gmock.h>

#include "vm/interpreter/test/gpu_harness.h"

namespace nimble::rt {
namespace {

// y[i] = x[i] + y[i - 1], a step an element.
int sums(const StandInLaunch& l) {
  const auto* x = static_cast<const float*>(l.pointers[0]);
  auto* y = static_cast<float*>(l.pointers[1]);
  for (int64_t i = l.first_step; i < l.end_step; ++i) y[i] = x[i] + (i > 0 ? y[i - 1] : 0);
  return 0;
}

class GpuSteps : public Gpu {
 protected:
  void SetUp() override {
    Gpu::SetUp();
    driver().add_stepped_kernel("sums_0", 2, 1, sums);
  }

  // With so many blocks.
  exec::Executable with_grid(int blocks) {
    exec::Executable e = exec::assemble(
        std::string(kKernels) +
        fmt::format(
            "kernel \"sums\" {{\n  source \"sums\" symbols n device d2\n"
            "  in f32 ([a0]) out f32 ([a0])\n  dispatch {{ 0: 0 }}\n"
            "  native \"sums_0\" launch ([{}], [1], [1]) block 32 shared 0 steps [a0]\n}}\n",
            blocks) +
        "function \"main\" 1 12 {\nDeviceCopy r4, r0, d2\n" + allocate(5) +
        "InvokePacked k\"sums\", (r4, r5)  DeviceCopy r7, r5, d0  Ret r7\n}\n" + kEntry);
    add_image(&e, "sm_90a", STANDIN_CUDA_IMAGE "add_0 root_0 root_1 sums_0");
    return e;
  }
  int together() { return driver().calls("cuLaunchCooperativeKernel"); }
  int launches() { return driver().calls("cuLaunchKernel"); }
  void check(size_t n, float first = 1) {
    std::vector<float> x(n), y(n);
    for (size_t i = 0; i < n; ++i) {
      x[i] = first + static_cast<float>(i);
      y[i] = x[i] + (i > 0 ? y[i - 1] : 0);
    }
    EXPECT_EQ(floats(x), y) << n;
  }
};

TEST_F(GpuSteps, AreOneLaunchWhereAllBlocksFit) {
  load(with_grid(132));
  check(7);
  EXPECT_EQ(together(), 1);
  EXPECT_EQ(launches(), 0);
  check(3);
  EXPECT_EQ(together(), 2);
  EXPECT_EQ(driver().calls("cuOccupancyMaxActiveBlocksPerMultiprocessor"), 1) << "at load alone";
}

TEST_F(GpuSteps, OneNeedsNobodyToWait) {
  load(with_grid(4));
  check(1);
  EXPECT_EQ(together(), 0);
  EXPECT_EQ(launches(), 1);
}

TEST_F(GpuSteps, NoneIsNothingToStart) {
  load(with_grid(4));
  check(0);
  EXPECT_EQ(together() + launches(), 0);
}

TEST_F(GpuSteps, AreLaunchedApartWhereTheyDoNotFit) {
  load(with_grid(133));
  check(3);
  EXPECT_EQ(together(), 0);
  EXPECT_EQ(launches(), 3);
  driver().hold_blocks(2);
  load(with_grid(133));
  check(3);
  EXPECT_EQ(together(), 1);
  EXPECT_EQ(launches(), 3);
}

// Somebody else got a part of the GPU for himself.
TEST_F(GpuSteps, AreLaunchedApartWhereTheDriverRefuses) {
  driver().hold_blocks(2);
  load(with_grid(200));
  check(2);
  EXPECT_EQ(together(), 1);
  driver().hold_blocks(1);
  check(5);
  EXPECT_EQ(together(), 2);
  EXPECT_EQ(launches(), 5);
}

TEST_F(GpuSteps, ApartTheyAreRowsLikeAnyOther) {
  load(with_grid(1000));
  for (int run = 0; run < 4; ++run) check(6, static_cast<float>(run));
  EXPECT_EQ(launches(), 2 * 6);
  EXPECT_EQ(driver().calls("cuGraphLaunch"), 2);
}

TEST_F(GpuSteps, TogetherTheyEndARow) {
  load(with_grid(8));
  for (int run = 0; run < 5; ++run) check(6, static_cast<float>(run));
  EXPECT_EQ(together(), 5);
  EXPECT_EQ(driver().calls("cuGraphLaunch"), 0);
}

TEST_F(GpuSteps, AreOneKernelOfTheProfile) {
  for (const int grid : {8, 1000}) {
    load(with_grid(grid), /*profile=*/true);
    check(5);
  }
  EXPECT_EQ(together(), 1);
  EXPECT_EQ(launches(), 5);
}

// As much of it, whether they are launched together or apart.
TEST_F(GpuSteps, AreCountedAgainstTheFuel) {
  for (const int grid : {8, 1000}) {
    SessionOptions options;
    options.fuel = 200;
    load(with_grid(grid), options);
    check(20);
    const int before = together() + launches();
    EXPECT_THAT(failure({{{400}, std::vector<float>(400, 1)}}, Status::kExhausted),
                ::testing::HasSubstr("more steps than the run has fuel left"));
    EXPECT_EQ(together() + launches(), before);
    check(20);
  }
}

TEST_F(GpuSteps, AFaultNamesTheKernel) {
  load(with_grid(8));
  driver().fail("cuLaunchCooperativeKernel", 1, 719);
  EXPECT_THAT(failure({{{2}, {1, 1}}}), ::testing::HasSubstr("kernel sums (sums)"));
}

}  // namespace
}  // namespace nimble::rt
