#include "tuner/search/occupancy.h"

#include <gmock/gmock.h>

namespace nimble::tuner {
namespace {

using ::testing::HasSubstr;

// Of a GPU whose blocks may have 227 KiB of shared memory.
kernels::TargetInfo card() {
  kernels::TargetInfo out;
  out.level = "sm_90a";
  out.shared_bytes = 227 << 10;
  out.multiprocessors = 132;
  return out;
}

std::string refusal_of(const GpuCode& code, const GpuCode& usual) {
  return why_not_measured(code, usual, card()).value_or("");
}

TEST(Occupancy, BlocksAreBoundedByTheirNumberThreadsSharedMemoryAndRegisters) {
  const auto blocks = [](int64_t threads, int64_t shared, int64_t registers) {
    return blocks_at_once({threads, shared, registers}, card());
  };
  EXPECT_EQ(blocks(32, 0, 0), 32);
  EXPECT_EQ(blocks(256, 0, 0), 8);
  EXPECT_EQ(blocks(1024, 0, 0), 2);
  EXPECT_EQ(blocks(128, 100'000, 0), 2);
  EXPECT_EQ(blocks(128, 227 << 10, 0), 1);
  EXPECT_EQ(blocks(128, (227 << 10) + 1, 0), 0);
  EXPECT_EQ(blocks(128, 0, 32), 16);
  EXPECT_EQ(blocks(128, 0, 255), 2);
  // A warp's registers come in portions of 256: 129 of a thread are 136.
  EXPECT_EQ(blocks(256, 0, 128), 2);
  EXPECT_EQ(blocks(256, 0, 129), 1);
  EXPECT_EQ(blocks(1024, 0, 64), 1);
  EXPECT_EQ(blocks(1024, 0, 65), 0);
}

TEST(Occupancy, WhatFitsNoMultiprocessorIsNotMeasured) {
  const GpuCode usual{128, 0, 64};
  EXPECT_EQ(refusal_of(usual, usual), "");
  EXPECT_THAT(refusal_of({1024, 0, 65}, usual), HasSubstr("1024 threads, each with 65 registers"));
  EXPECT_THAT(refusal_of({128, 1 << 20, 64}, usual), HasSubstr("1048576 bytes of shared memory"));
}

TEST(Occupancy, AFewSpilledRegistersAreMeasuredAndMoreOnlyBesideADefaultThatSpills) {
  const auto spilling = [](int64_t bytes) { return GpuCode{128, 0, 255, bytes}; };
  EXPECT_EQ(refusal_of(spilling(64), spilling(0)), "");
  EXPECT_THAT(
      refusal_of(spilling(68), spilling(0)),
      ::testing::AllOf(HasSubstr("spills 68 bytes"), HasSubstr("the default schedule's 0")));
  EXPECT_EQ(refusal_of(spilling(400), spilling(400)), "");
  EXPECT_NE(refusal_of(spilling(404), spilling(400)), "");
}

TEST(Occupancy, FewerWarpsThanSchedulersAreMeasuredOnlyIfTheDefaultHasNoMore) {
  const GpuCode usual{256, 0, 64};
  const auto of_shared = [](int64_t threads, int64_t shared) {
    return GpuCode{threads, shared, 40};
  };
  EXPECT_THAT(refusal_of(of_shared(32, 120'000), usual),
              ::testing::AllOf(HasSubstr("holds 1: 1 warps"), HasSubstr("4 schedulers")));
  EXPECT_NE(refusal_of(of_shared(64, 120'000), usual), "");
  EXPECT_EQ(refusal_of(of_shared(128, 120'000), usual), "");
  EXPECT_EQ(refusal_of(of_shared(64, 110'000), usual), "") << "two blocks";
  EXPECT_EQ(refusal_of(of_shared(64, 120'000), of_shared(64, 200'000)), "");
  EXPECT_NE(refusal_of(of_shared(32, 120'000), of_shared(64, 200'000)), "");
}

// Assembly that a driver compiles, a library's routine.
TEST(Occupancy, OfWhichNothingIsKnownIsMeasured) {
  const GpuCode usual{128, 0, 64}, spilling{128, 0, 255, 4000}, unknown{32, 120'000};
  EXPECT_NE(refusal_of(spilling, usual), "");
  EXPECT_EQ(refusal_of(unknown, usual), "");
  EXPECT_EQ(refusal_of(spilling, unknown), "");
}

}  // namespace
}  // namespace nimble::tuner
