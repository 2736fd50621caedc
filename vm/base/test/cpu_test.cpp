#include "vm/base/cpu.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>

#include <string>
#include <thread>
#include <vector>

#include "vm/base/error.h"
#include "vm/base/test/refuse_tiles.h"
#include "vm/base/test/scoped_variable.h"

namespace nimble {
namespace {

CpuInfo strong_cpu() {
  CpuInfo cpu;
  cpu.level = "x86-64-v4";
  cpu.features = {"amx_tile", "avx", "avx2", "avx512_vnni", "avx512f", "fma", "sse4_2"};
  cpu.physical_cores = 16;
  cpu.affinity_cores = 8;
  cpu.caches = {
      {1, "data", 32768, 64, 2}, {1, "instruction", 65536, 64, 2}, {2, "unified", 2 << 20}};
  return cpu;
}

TEST(CpuTest, FeatureSpellingsDoNotMatter) {
  const CpuInfo cpu = strong_cpu();
  for (const char* name :
       {"sse4.2", "sse4_2", "avx512vnni", "avx512-vnni", "amx-tile", "x86-64-v3"})
    EXPECT_TRUE(cpu.has(name)) << name;
  EXPECT_FALSE(cpu.has("avx512bf16"));
  const std::vector<std::string> wanted = {"avx2", "avx512_fp16", "magic"};
  EXPECT_EQ(cpu.missing(wanted), (std::vector<std::string>{"avx512_fp16", "magic"}));
}

TEST(CpuTest, LoweringALevelTakesItsFeatures) {
  const CpuInfo v3 = limited_to_level(strong_cpu(), "x86-64-v3");
  EXPECT_EQ(v3.level, "x86-64-v3");
  EXPECT_EQ(v3.features, (std::vector<std::string>{"avx", "avx2", "fma", "sse4_2"}));
  const CpuInfo v2 = limited_to_level(strong_cpu(), "x86-64-v2");
  EXPECT_EQ(v2.features, (std::vector<std::string>{"sse4_2"}));
  EXPECT_FALSE(v2.has("x86-64-v3"));
  EXPECT_EQ(limited_to_level(v2, "x86-64-v4").level, "x86-64-v2") << "a level is never raised";
  EXPECT_THROW(limited_to_level(strong_cpu(), "x86-64-v9"), Error);
}

TEST(CpuTest, LevelsAboveThePsabis) {
  CpuInfo cpu = strong_cpu();
  cpu.level = "x86-64-v4-amx-fp16";
  cpu.features.insert(cpu.features.begin() + 3, "avx512_bf16");
  cpu.features.insert(cpu.features.begin(), "amx_fp16");
  for (const std::string_view level : cpu_levels(CpuArchitecture::kX86_64))
    EXPECT_TRUE(cpu.has(level)) << level;
  EXPECT_FALSE(strong_cpu().has("x86-64-v4-vnni")) << "the level decides, not a feature";
  EXPECT_TRUE(cpu.has("amx-fp16"));
  const CpuInfo amx = limited_to_level(cpu, "x86-64-v4-amx");
  EXPECT_TRUE(amx.has("amx_tile"));
  EXPECT_FALSE(amx.has("amx-fp16") || amx.has("x86-64-v4-amx-fp16"));
  const CpuInfo bf16 = limited_to_level(cpu, "x86-64-v4-bf16");
  EXPECT_TRUE(bf16.has("avx512bf16"));
  EXPECT_FALSE(bf16.has("amx_tile") || bf16.has("amx_fp16") || bf16.has("x86-64-v4-amx"));
  const CpuInfo vnni = limited_to_level(cpu, "x86-64-v4-vnni");
  EXPECT_EQ(vnni.level, "x86-64-v4-vnni");
  EXPECT_TRUE(vnni.has("avx512vnni") && vnni.has("x86-64-v4"));
  EXPECT_FALSE(vnni.has("avx512bf16") || vnni.has("x86-64-v4-bf16"));
  const CpuInfo v4 = limited_to_level(cpu, "x86-64-v4");
  EXPECT_FALSE(v4.has("avx512vnni") || v4.has("amx_tile"));
  EXPECT_TRUE(v4.has("avx512f"));
  EXPECT_EQ(named_level("x86-64-v4-amx"), "x86-64-v4");
  EXPECT_EQ(named_level("x86-64-v4-bf16"), "x86-64-v4");
  EXPECT_EQ(named_level("x86-64-v3"), "x86-64-v3");
  EXPECT_EQ(named_level("generic"), "generic");
}

TEST(CpuTest, LevelsOfAArch64) {
  CpuInfo cpu;
  cpu.level = "aarch64-fp16fml";
  cpu.features = {"asimd", "asimddp", "asimdfhm", "asimdhp", "bf16", "fp", "i8mm"};
  for (const std::string_view level : cpu_levels(CpuArchitecture::kAArch64))
    EXPECT_TRUE(cpu.has(level)) << level;
  for (const std::string_view level : cpu_levels(CpuArchitecture::kX86_64)) {
    EXPECT_FALSE(cpu.has(level)) << level;
    EXPECT_EQ(architecture_of_level(level), CpuArchitecture::kX86_64);
  }
  EXPECT_EQ(architecture_of_level("aarch64-i8mm"), CpuArchitecture::kAArch64);
  EXPECT_EQ(architecture_of_level("generic"), std::nullopt);
  // LLVM's names, which images have.
  EXPECT_TRUE(cpu.has("fp-armv8") && cpu.has("neon") && cpu.has("dotprod") && cpu.has("fp16fml"));
  const CpuInfo bf16 = limited_to_level(cpu, "aarch64-bf16");
  EXPECT_TRUE(bf16.has("bf16"));
  EXPECT_FALSE(bf16.has("fp16fml") || bf16.has("aarch64-fp16fml"));
  const CpuInfo dotprod = limited_to_level(cpu, "aarch64-dotprod");
  EXPECT_TRUE(dotprod.has("dotprod") && dotprod.has("aarch64"));
  EXPECT_FALSE(dotprod.has("i8mm") || dotprod.has("bf16") || dotprod.has("aarch64-i8mm"));
  EXPECT_EQ(dotprod.features, (std::vector<std::string>{"asimd", "asimddp", "asimdhp", "fp"}));
  EXPECT_EQ(named_level("aarch64-bf16"), "aarch64");
  EXPECT_THROW(limited_to_level(cpu, "x86-64-v3"), Error) << "of another architecture";
}

TEST(CpuTest, WhatCodeMayUseInShort) {
  CpuInfo cpu;
  cpu.level = "x86-64-v4-amx";
  cpu.features = {"amx_bf16", "amx_int8", "amx_tile", "avx512_bf16", "avx512_vnni", "avx512f"};
  const std::string all = "x86-64-v4+amx_tile+avx512_bf16+avx512_vnni";
  EXPECT_EQ(isa_of(cpu), all) << "records of machines have it so";
  CpuInfo halves = cpu;
  halves.level = "x86-64-v4-amx-fp16";
  halves.features.insert(halves.features.begin(), "amx_fp16");
  EXPECT_EQ(isa_of(halves), "x86-64-v4+amx_fp16+amx_tile+avx512_bf16+avx512_vnni");
  EXPECT_EQ(isa_of(limited_to_level(cpu, "x86-64-v4-vnni")), "x86-64-v4+avx512_vnni");
  EXPECT_EQ(isa_of(limited_to_level(cpu, "x86-64-v3")), "x86-64-v3");
  std::erase(cpu.features, "amx_int8");
  EXPECT_EQ(isa_of(cpu), "x86-64-v4+avx512_bf16+avx512_vnni") << "all or none of a level's";
  CpuInfo arm;
  arm.level = "aarch64-dotprod";
  arm.features = {"asimd", "asimddp", "asimdfhm", "fp"};
  EXPECT_EQ(isa_of(arm), "aarch64+asimddp") << "nothing above a gap";
  arm.level = "aarch64-fp16fml";
  arm.features = {"asimd", "asimddp", "asimdfhm", "bf16", "fp", "i8mm"};
  EXPECT_EQ(isa_of(arm), "aarch64+asimdfhm+bf16+i8mm+asimddp");
  EXPECT_EQ(features_in_isa("amx_tile"),
            (std::vector<std::string>{"amx_tile", "amx_int8", "amx_bf16"}));
  EXPECT_EQ(features_in_isa("avx512_vnni"), std::vector<std::string>{"avx512_vnni"});
  EXPECT_EQ(features_in_isa("amx_int8"), std::vector<std::string>{"amx_int8"});
  EXPECT_EQ(features_in_isa("magic"), std::vector<std::string>{"magic"});
}

TEST(CpuTest, WhatNeedsTileRegisters) {
  for (const char* name :
       {"amx_tile", "amx-int8", "amx-bf16", "amx-fp16", "x86-64-v4-amx", "x86-64-v4-amx-fp16"})
    EXPECT_TRUE(needs_tile_registers(name)) << name;
  for (const char* name : {"avx512_bf16", "x86-64-v4-bf16", "x86-64", "generic", "magic", ""})
    EXPECT_FALSE(needs_tile_registers(name)) << name;
}

TEST(CpuTest, LimitsOfControlGroups) {
  EXPECT_EQ(parse_cpu_max("max 100000"), std::nullopt);
  EXPECT_EQ(parse_cpu_max(""), std::nullopt);
  EXPECT_DOUBLE_EQ(*parse_cpu_max("150000 100000"), 1.5);
  CpuInfo cpu = strong_cpu();
  EXPECT_EQ(cpu.usable_threads(), 8);
  cpu.cgroup_cpus = 1.5;
  EXPECT_EQ(cpu.usable_threads(), 2);
  cpu.cgroup_cpus = 2.0;
  EXPECT_EQ(cpu.usable_threads(), 2);
  cpu.cgroup_cpus = 0.2;
  EXPECT_EQ(cpu.usable_threads(), 1);
}

TEST(CpuTest, ListsAndCaches) {
  EXPECT_EQ(count_cpu_list("0-3,8"), 5);
  EXPECT_EQ(count_cpu_list("7"), 1);
  EXPECT_EQ(count_cpu_list(""), 0);
  EXPECT_EQ(strong_cpu().cache_bytes(1), 32768);
  EXPECT_EQ(strong_cpu().cache_bytes(2), 2 << 20);
  EXPECT_EQ(strong_cpu().cache_bytes(4), 0);
}

TEST(CpuTest, TheHostIsPlausible) {
  const CpuInfo& cpu = host_cpu();
  EXPECT_GE(cpu.usable_threads(), 1);
  EXPECT_LE(cpu.affinity_cores, cpu.affinity_cpus);
  EXPECT_LE(cpu.affinity_cores, cpu.physical_cores);
  EXPECT_LE(cpu.physical_cores, cpu.logical_cpus);
  EXPECT_LE(cpu.affinity_cpus, cpu.logical_cpus);
#if defined(__x86_64__)
  EXPECT_EQ(cpu.has("avx2"), __builtin_cpu_supports("avx2") != 0);
  EXPECT_EQ(cpu.has("avx512f"), __builtin_cpu_supports("avx512f") != 0);
  EXPECT_EQ(cpu.has("fma"), __builtin_cpu_supports("fma") != 0);
  EXPECT_TRUE(cpu.has("x86-64"));
  EXPECT_FALSE(cpu.vendor.empty());
#elif defined(__aarch64__)
  EXPECT_TRUE(cpu.has("aarch64") && cpu.has("neon"));
  EXPECT_FALSE(cpu.has("x86-64"));
#endif
}

// As under taskset: the machine stays what it is, what may be used of it shrinks.
TEST(CpuTest, AffinityIsNoPropertyOfTheMachine) {
  cpu_set_t before;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  const CpuInfo whole = detect_cpu();
  int last = -1;
  for (int i = 0; i < CPU_SETSIZE; ++i)
    if (CPU_ISSET(i, &before)) last = i;
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(last, &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  const CpuInfo pinned = detect_cpu();
  ASSERT_EQ(sched_setaffinity(0, sizeof before, &before), 0);
  EXPECT_EQ(pinned.physical_cores, whole.physical_cores);
  EXPECT_EQ(pinned.logical_cpus, whole.logical_cpus);
  ASSERT_EQ(pinned.caches.size(), whole.caches.size());
  for (size_t i = 0; i < whole.caches.size(); ++i)
    EXPECT_EQ(pinned.caches[i].bytes, whole.caches[i].bytes);
  EXPECT_EQ(pinned.affinity_cpus, 1);
  EXPECT_EQ(pinned.affinity_cores, 1);
  EXPECT_EQ(pinned.usable_threads(), 1);
}

// --- Tile registers, which a process has to ask for ----------------------------------------------

constexpr const char* kBelowTiles = "x86-64-v4-bf16";

TEST(TileRegisters, AreThereOrNot) {
  EXPECT_EQ(host_cpu().has("amx_tile"), tile_registers() == TileRegisters::kGranted &&
                                            std::getenv("NIMBLE_CPU_LEVEL") == nullptr);
  if (host_cpu().has("x86-64-v4-amx")) {
    EXPECT_TRUE(host_cpu().has("amx_tile"));
  }
}

TEST(TileRegisters, ThatAreRefusedAreNoPartOfTheCpu) {
  if (!host_cpu().has("amx_tile")) GTEST_SKIP() << "this machine lacks AMX, or refuses it anyway";
  const CpuInfo below = limited_to_level(host_cpu(), kBelowTiles);
  const int code = refused_exit_code([&] {
    const CpuInfo cpu = detect_cpu();
    if (tile_registers() != TileRegisters::kRefused) return 1;
    if (cpu.features != below.features) return 2;
    return cpu.level == below.level ? 0 : 3;
  });
  if (code == kNoRefusal) GTEST_SKIP() << "no seccomp here";
  EXPECT_EQ(code, 0);
}

#if defined(__x86_64__)

// What is granted stays so until another program begins: the test runs itself anew.
TEST(TileRegisters, AreAskedForOnlyWhereTheyMayBeUsed) {
  if (!host_cpu().has("amx_tile")) GTEST_SKIP() << "this machine lacks AMX, or refuses it anyway";
  EXPECT_EQ(exit_code_of_test("TileRegisters.DISABLED_InAFreshProcess"), 0);
}

TEST(TileRegisters, AreAskedForByWhatNeedsThem) {
  if (!host_cpu().has("amx_tile")) GTEST_SKIP() << "this machine lacks AMX, or refuses it anyway";
  EXPECT_EQ(exit_code_of_test("TileRegisters.DISABLED_WhoNeedsThemAsks"), 0);
}

TEST(TileRegisters, DISABLED_WhoNeedsThemAsks) {
  const std::vector<std::string> none = {"avx2", "x86-64-v3"}, tiles = {"avx2", "amx-int8"};
  const CpuInfo without = host_cpu_without_tiles();
  EXPECT_FALSE(without.has("amx_tile") || without.has("x86-64-v4-amx"));
  EXPECT_EQ(missing_here(none), std::vector<std::string>{});
  ASSERT_FALSE(has_tile_permission()) << "nobody has asked for what needs them";
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i)
    threads.emplace_back([&] { EXPECT_EQ(missing_here(tiles), std::vector<std::string>{}); });
  for (std::thread& t : threads) t.join();
  EXPECT_TRUE(has_tile_permission());
  EXPECT_EQ(host_cpu_without_tiles().features, without.features) << "as before";
  const CpuInfo below = limited_to_level(host_cpu(), kBelowTiles);
  EXPECT_EQ(below.features, without.features);
  EXPECT_EQ(below.level, without.level);
  EXPECT_EQ(host_cpu().affinity_cpus, without.affinity_cpus);
}

TEST(TileRegisters, DISABLED_InAFreshProcess) {
  ASSERT_FALSE(has_tile_permission());
  {
    const ScopedVariable level("NIMBLE_CPU_LEVEL", kBelowTiles);
    EXPECT_FALSE(detect_cpu().has("amx_tile"));
    EXPECT_FALSE(has_tile_permission()) << "nobody asks who does not mean to use them";
  }
  // Too small a stack for signals, and Linux refuses.
  std::vector<char> memory(4096);
  stack_t small{};
  small.ss_sp = memory.data();
  small.ss_size = memory.size();
  ASSERT_EQ(sigaltstack(&small, nullptr), 0);
  const CpuInfo refused = detect_cpu();
  EXPECT_EQ(tile_registers(), TileRegisters::kRefused);
  EXPECT_FALSE(refused.has("amx_tile") || refused.has("x86-64-v4-amx"));
  EXPECT_TRUE(refused.has("avx512f"));
  stack_t none{};
  none.ss_flags = SS_DISABLE;
  ASSERT_EQ(sigaltstack(&none, nullptr), 0);
  EXPECT_TRUE(detect_cpu().has("amx_tile"));
  EXPECT_TRUE(has_tile_permission());
}

#endif

}  // namespace
}  // namespace nimble
