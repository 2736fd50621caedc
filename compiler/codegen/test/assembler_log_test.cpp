// Logs as ptxas 13.0 writes them.
#include "compiler/codegen/cuda/assembler_log.h"

#include <gtest/gtest.h>

namespace nimble::codegen {
namespace {

constexpr const char* kEntry =
    "ptxas info    : 0 bytes gmem\n"
    "ptxas info    : Compiling entry function 'k' for 'sm_90a'\n"
    "ptxas info    : Function properties for k\n"
    "    64 bytes stack frame, 24 bytes spill stores, 40 bytes spill loads\n"
    "ptxas info    : Used 58 registers, used 1 barriers, 64 bytes cumulative stack size, "
    "400 bytes smem, 560 bytes cmem[0]\n";

TEST(AssemblerLog, HasAKernelsResources) {
  const auto all = resources_of(kEntry);
  ASSERT_EQ(all.size(), 1u);
  const CudaResources& r = all.at("k");
  EXPECT_EQ(r.registers, 58);
  EXPECT_EQ(r.spill_bytes, 24 + 40);
  EXPECT_EQ(r.shared_bytes, 400);
}

// Registers and spills are those of a thread, which is in one function at a time.
TEST(AssemblerLog, TakesTheMostOfAKernelsFunctions) {
  const std::string more =
      "ptxas info    : Function properties for helper\n"
      "    96 bytes stack frame, 90 bytes spill stores, 10 bytes spill loads\n"
      "ptxas info    : Used 40 registers, used 0 barriers\n"
      "ptxas info    : Function properties for __internal_trig_reduction_slowpathd\n"
      "    40 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n";
  const CudaResources r = resources_of(kEntry + more).at("k");
  EXPECT_EQ(r.registers, 58);
  EXPECT_EQ(r.spill_bytes, 90 + 10);
  EXPECT_EQ(r.shared_bytes, 400);
}

TEST(AssemblerLog, KeepsKernelsApart) {
  const std::string second =
      "ptxas info    : Compiling entry function 'l' for 'sm_90a'\n"
      "ptxas info    : Function properties for l\n"
      "    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n"
      "ptxas info    : Used 16 registers, used 0 barriers, 352 bytes cmem[0]\n";
  for (const std::string& log : {kEntry + second, second + kEntry}) {
    const auto all = resources_of(log);
    ASSERT_EQ(all.size(), 2u) << log;
    EXPECT_EQ(all.at("k").registers, 58);
    EXPECT_EQ(all.at("k").spill_bytes, 64);
    EXPECT_EQ(all.at("k").shared_bytes, 400);
    EXPECT_EQ(all.at("l").registers, 16);
    EXPECT_EQ(all.at("l").spill_bytes, 0);
    EXPECT_EQ(all.at("l").shared_bytes, 0);
  }
}

TEST(AssemblerLog, NeedNotHaveAKernel) {
  EXPECT_TRUE(resources_of("").empty());
  EXPECT_TRUE(resources_of("ptxas info    : 0 bytes gmem\n").empty());
}

}  // namespace
}  // namespace nimble::codegen
