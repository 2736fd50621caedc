#include "vm/base/gpu_target.h"

#include <gtest/gtest.h>

namespace nimble {
namespace {

bool runs(const char* target, int capability) {
  return gpu_target(target)->runs_on(capability);
}

TEST(GpuTarget, SaysWhichGpusRunIt) {
  EXPECT_TRUE(runs("sm_80", 80));
  EXPECT_TRUE(runs("sm_80", 86));
  EXPECT_TRUE(runs("sm_80", 89));
  EXPECT_FALSE(runs("sm_86", 80));
  EXPECT_FALSE(runs("sm_80", 90));
  EXPECT_TRUE(runs("sm_90a", 90));
  EXPECT_FALSE(runs("sm_90a", 91));
  EXPECT_FALSE(runs("sm_90a", 100));
  EXPECT_TRUE(runs("sm_100", 103));
  EXPECT_TRUE(runs("sm_100f", 103));
  EXPECT_FALSE(runs("sm_100", 120));
  EXPECT_TRUE(runs("compute_80", 80));
  EXPECT_TRUE(runs("compute_80", 121));
  EXPECT_FALSE(runs("compute_80", 75));
  EXPECT_FALSE(runs("compute_90a", 100));
}

TEST(GpuTarget, TellsNamesFromOthers) {
  for (const char* name : {"", "sm_", "sm_9", "sm_a", "sm_9x", "sm_-90", "sm_1000", "compute_",
                           "sm_90b", "x86-64-v4", "90", "sm_90aa"})
    EXPECT_FALSE(gpu_target(name)) << name;
}

TEST(GpuTarget, TheClosestIsBest) {
  const auto better = [](const char* a, const char* b) {
    return gpu_target(a)->better_than(*gpu_target(b)) &&
           !gpu_target(b)->better_than(*gpu_target(a));
  };
  EXPECT_TRUE(better("sm_90a", "sm_90"));
  EXPECT_TRUE(better("sm_90", "compute_90"));
  EXPECT_TRUE(better("sm_86", "sm_80"));
  EXPECT_TRUE(better("compute_90", "compute_80"));
}

}  // namespace
}  // namespace nimble
