// What does not depend on how fast the machine is.
#include "vm/tools/machine_measure.h"

#include <gtest/gtest.h>

#include <set>

#include "vm/tools/ceiling_kernels.h"

namespace nimble {
namespace {

TEST(PairResolution, IsHowFarMediansOfTheSameLieApart) {
  EXPECT_EQ(pair_resolution(std::vector<double>(100, 5.0), 10), 0) << "a perfect machine";
  // Blocks of ten whose medians are 100 and 110 in turn.
  std::vector<double> samples;
  for (int block = 0; block < 10; ++block)
    samples.insert(samples.end(), 10, block % 2 == 0 ? 100 : 110);
  EXPECT_NEAR(pair_resolution(samples, 10), 0.1, 1e-12);
  // One outlier in a block moves no median.
  std::vector<double> outliers(100, 100.0);
  for (size_t i = 0; i < outliers.size(); i += 10) outliers[i] = 1e6;
  EXPECT_EQ(pair_resolution(outliers, 10), 0);
  EXPECT_EQ(pair_resolution({1, 2, 3}, 1), 0) << "too few to tell";
  EXPECT_EQ(pair_resolution({}, 0), 0);
}

TEST(NoiseVerdict, HasFourSteps) {
  EXPECT_EQ(noise_verdict(0.005), "good");
  EXPECT_EQ(noise_verdict(0.02), "fair");
  EXPECT_EQ(noise_verdict(0.05), "poor");
  EXPECT_EQ(noise_verdict(0.5), "bad");
}

TEST(CpusToUse, AreDistinctAndAtLeastOne) {
  for (int count : {0, 1, 2, 1000}) {
    const std::vector<int> cpus = cpus_to_use(count);
    EXPECT_EQ(std::set<int>(cpus.begin(), cpus.end()).size(), cpus.size());
    EXPECT_GE(cpus.size(), 1u);
    EXPECT_LE(cpus.size(), static_cast<size_t>(std::max(count, 1)));
  }
}

// Each loop runs with the instructions that the CPU has, at each level that it can be limited to.
TEST(Loops, RunAtEachLevelOfTheMachine) {
  for (const std::string_view level :
       cpu_levels(host_architecture().value_or(CpuArchitecture::kX86_64))) {
    const CpuInfo cpu = limited_to_level(host_cpu(), level);
    std::set<std::string> types;
    for (const ComputeLoop& loop : compute_loops(cpu)) {
      EXPECT_TRUE(types.insert(loop.dtype).second) << loop.dtype;
      EXPECT_GT(loop.operations, 0);
      loop.run(3);
    }
    EXPECT_TRUE(types.contains("f32") && types.contains("f64"));
    const MemoryLoop memory = memory_loop(cpu);
    alignas(64) double data[3 * 128];
    for (int i = 0; i < 128; ++i) data[i] = 0, data[128 + i] = i, data[256 + i] = 2;
    memory.triad(data, data + 128, data + 256, 128);
    for (int i = 0; i < 128; ++i) EXPECT_EQ(data[i], i + 6);
    memory.read(data, 3 * 1024);
  }
  dependent_additions(16);
}

TEST(Ceilings, AreOfEachKindAndNumberOfThreads) {
  MeasureOptions options;
  options.seconds = 0.001;
  options.threads = {1, 2};
  std::set<std::string> seen;
  for (const Ceiling& c : measure_ceilings(host_cpu(), options)) {
    EXPECT_TRUE(seen.insert(c.kind + c.dtype + std::to_string(c.threads)).second);
    EXPECT_GT(c.median, 0);
    EXPECT_GE(c.value, c.median);
    EXPECT_EQ(c.unit, c.kind == "compute" ? "op/s" : "byte/s");
  }
  for (const char* kind : {"computef32", "computef64", "read_l1any", "read_memoryany"})
    for (const char* threads : {"1", "2"}) EXPECT_TRUE(seen.contains(std::string(kind) + threads));
  options.stop = [] { return true; };
  EXPECT_TRUE(measure_ceilings(host_cpu(), options).empty());
}

}  // namespace
}  // namespace nimble
