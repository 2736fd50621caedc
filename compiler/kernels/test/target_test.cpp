// The table of targets agrees with what the runtime knows of CPUs, and with records of hardware.
#include "compiler/kernels/target.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "compiler/kernels/kernel_ir.h"
#include "compiler/kernels/targets.h"
#include "vm/base/cpu.h"
#include "vm/base/error.h"

namespace nimble::kernels {
namespace {

TEST(Targets, AreLevelsOfCpusInTheSameOrder) {
  const auto ours = [](Architecture architecture) {
    std::vector<std::string_view> out;
    for (const TargetRow& row : all_targets())
      if (row.architecture == architecture) out.push_back(row.info.level);
    return out;
  };
  const auto known = [](CpuArchitecture architecture) {
    const auto levels = cpu_levels(architecture);
    return std::vector<std::string_view>(levels.begin(), levels.end());
  };
  std::vector<std::string_view> x86 = known(CpuArchitecture::kX86_64);
  x86.erase(x86.begin());  // there is no code for the first level
  EXPECT_EQ(ours(Architecture::kX86_64), x86);
  EXPECT_EQ(ours(Architecture::kAArch64), known(CpuArchitecture::kAArch64));
}

// Code that is tried on this machine's processor is none of a GPU's.
TEST(Targets, OfGpusAreLoadedAndNoLevelsOfMachines) {
  EXPECT_TRUE(loaded_target_by_name("sm_90a").is_gpu());
  for (const std::string& level : machine_levels()) EXPECT_FALSE(target_by_name(level).is_gpu());
  for (const TargetRow& row : all_targets()) {
    EXPECT_EQ(row.info.is_gpu(), row.architecture == Architecture::kNvidia) << row.info.level;
    EXPECT_EQ(row.info.is_gpu(), row.info.shared_bytes > 0) << row.info.level;
  }
}

TEST(Targets, OfOneFileLeaveWhatTheLeastHas) {
  const auto named = [](std::vector<const char*> levels) {
    std::vector<TargetInfo> out;
    for (const char* level : levels) out.push_back(target_by_name(level));
    return gpus_of_one_file(std::move(out));
  };
  const std::vector<TargetInfo> three = named({"compute_80", "sm_90a", "sm_80"});
  ASSERT_EQ(three.size(), 3u);
  EXPECT_EQ(three[0].level, "sm_80");  // machine code first: schedules are for it
  EXPECT_EQ(three[1].level, "sm_90a");
  EXPECT_EQ(three[2].level, "compute_80");
  // Blocks of 8.6, 8.9 and 12.0 have 99 KiB.
  for (const TargetInfo& t : three) EXPECT_EQ(t.shared_bytes, 99 << 10);
  EXPECT_EQ(named({"sm_90a"})[0].shared_bytes, target_by_name("sm_90a").shared_bytes);
  EXPECT_THROW(named({"sm_80", "compute_80", "sm_80"}), Error);
}

TEST(Targets, OfSeveralGpusHaveNoRecords) {
  const std::vector<TargetInfo> one = {target_by_name("sm_90a")};
  EXPECT_EQ(gpu_of_records(one), &one[0]);
  EXPECT_EQ(gpu_of_records({target_by_name("sm_80"), target_by_name("sm_90a")}), nullptr);
  EXPECT_EQ(gpu_of_records({}), nullptr);
}

// A CPU is of a level only if it has what code for it uses.
TEST(Targets, AskForNoFeatureBeyondTheirLevel) {
  for (const TargetRow& row : all_targets()) {
    if (!row.loaded || !host_cpu().has(row.info.level)) continue;
    EXPECT_EQ(host_cpu().missing(row.info.features), std::vector<std::string>()) << row.info.level;
  }
}

TEST(Targets, OfAnIsaAreTheHighestThatItRuns) {
  const auto level = [](const char* isa) { return target_of_isa(isa).level; };
  EXPECT_EQ(level("x86-64-v2"), "x86-64-v2");
  EXPECT_EQ(level("x86-64-v4"), "x86-64-v4");
  EXPECT_EQ(level("x86-64-v4+avx512_vnni"), "x86-64-v4-vnni");
  EXPECT_EQ(level("x86-64-v4+avx512_bf16+avx512_vnni"), "x86-64-v4-bf16");
  EXPECT_EQ(level("x86-64-v4+amx_tile+avx512_bf16+avx512_vnni"), "x86-64-v4-amx");
  EXPECT_EQ(level("x86-64-v4+amx_fp16+amx_tile+avx512_bf16+avx512_vnni"), "x86-64-v4-amx-fp16");
  EXPECT_EQ(level("x86-64-v4+amx_tile+avx512_vnni"), "x86-64-v4-vnni");
  EXPECT_EQ(level("x86-64-v4+avx512_bf16"), "x86-64-v4") << "a level includes those below";
  EXPECT_EQ(level("x86-64-v3+avx512_vnni"), "x86-64-v3");
  EXPECT_EQ(level("aarch64"), "aarch64");
  EXPECT_EQ(level("aarch64+asimddp"), "aarch64-dotprod");
  EXPECT_EQ(level("aarch64+asimddp+i8mm+bf16"), "aarch64-bf16");
  EXPECT_EQ(level("aarch64+asimdfhm+bf16+i8mm+asimddp"), "aarch64-fp16fml");
  EXPECT_EQ(level("aarch64+asimdfhm+asimddp"), "aarch64-dotprod");
  EXPECT_THROW(target_of_isa("x86-64-v9+avx512_vnni"), Error);
  EXPECT_THROW(target_of_isa(""), Error);
}

TEST(Targets, HaveTheLevelThatTheirFeaturesMake) {
  const auto level = [](const std::string& name, const std::vector<std::string>& features) {
    return target_with_features(name, features).level;
  };
  EXPECT_EQ(level("aarch64", {}), "aarch64");
  EXPECT_EQ(level("aarch64-linux", {}), "aarch64");
  EXPECT_EQ(level("aarch64-linux", {"dotprod"}), "aarch64-dotprod");
  EXPECT_EQ(level("aarch64-linux", {"bf16", "i8mm", "asimddp"}), "aarch64-bf16");
  EXPECT_EQ(level("aarch64-dotprod", {"i8mm"}), "aarch64-i8mm");
  EXPECT_EQ(level("aarch64-linux", {"dotprod", "i8mm", "bf16", "fp16fml"}), "aarch64-fp16fml");
  EXPECT_EQ(level("aarch64-bf16", {"asimdfhm"}), "aarch64-fp16fml");
  EXPECT_EQ(level("x86-64-v4", {"avx512_vnni"}), "x86-64-v4-vnni");
  EXPECT_EQ(level("x86-64-v4-amx", {"amx-fp16"}), "x86-64-v4-amx-fp16");
  const auto problem = [&](const std::string& name, const std::vector<std::string>& features) {
    try {
      return "it is " + level(name, features);
    } catch (const Error& e) {
      EXPECT_EQ(e.status(), Status::kInvalidArgument);
      return std::string(e.what());
    }
  };
  EXPECT_NE(problem("aarch64", {"bf16"}).find("needs dotprod, i8mm, too"), std::string::npos)
      << problem("aarch64", {"bf16"});
  EXPECT_NE(problem("aarch64-dotprod", {"fp16fml"}).find("needs i8mm, bf16, too"),
            std::string::npos)
      << problem("aarch64-dotprod", {"fp16fml"});
  EXPECT_NE(problem("aarch64", {"avx2"}).find("the features are dotprod, i8mm, bf16, fp16fml"),
            std::string::npos)
      << problem("aarch64", {"avx2"});
}

TEST(Targets, HaveTheInstructionsOfFragments) {
  const auto expect_all = [](const auto& rows) {
    for (const auto& row : rows)
      EXPECT_TRUE(row.feature.empty() || std::any_of(all_targets().begin(), all_targets().end(),
                                                     [&](const TargetRow& t) {
                                                       return t.info.has(std::string(row.feature));
                                                     }))
          << row.name;
  };
  expect_all(kir::all_fragments());
  expect_all(kir::all_tile_fragments());
  expect_all(kir::all_warp_fragments());
  expect_all(kir::all_group_fragments());
  for (const kir::FragmentOtherwise& o : kir::all_fragments_otherwise())
    EXPECT_TRUE(std::any_of(all_targets().begin(), all_targets().end(), [&](const TargetRow& t) {
      return t.info.has(std::string(o.feature));
    })) << o.feature;
}

}  // namespace
}  // namespace nimble::kernels
