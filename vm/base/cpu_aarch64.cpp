// AArch64. Linux tells every process what its CPUs have, and itself saves, by two words of bits
// (getauxval); where CPUs of a machine differ, what all have. It takes no level of its own for
// granted: each feature may be there without another, but the CPUs that are made have them in the
// order of the levels. Names are those of /proc/cpuinfo.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>

#include "vm/base/cpu_architecture.h"

#if defined(__aarch64__)
#include <sys/auxv.h>
#endif

namespace nimble {
namespace {

struct FeatureBit {
  const char* name;
  int word;  // 1: AT_HWCAP, 2: AT_HWCAP2
  int bit;
  int level;  // that asks for it first, counted from 1 (kLevels); 0: none does
};

constexpr FeatureBit kFeatures[] = {
    {"fp", 1, 0, 1},        {"asimd", 1, 1, 1}, {"asimddp", 1, 20, 2}, {"i8mm", 2, 13, 3},
    {"bf16", 2, 14, 4},     {"fphp", 1, 9, 0},  {"asimdhp", 1, 10, 0}, {"atomics", 1, 8, 0},
    {"asimdrdm", 1, 12, 0}, {"sve", 1, 22, 0},  {"sve2", 2, 1, 0},     {"sme", 2, 23, 0},
    {"asimdfhm", 1, 23, 5},
};

constexpr std::string_view kLevels[] = {"aarch64", "aarch64-dotprod", "aarch64-i8mm",
                                        "aarch64-bf16", "aarch64-fp16fml"};
constexpr int kNamedLevels = 1;

#if defined(__aarch64__)
constexpr int kLevelCount = static_cast<int>(std::size(kLevels));

// What a core calls itself: bits 31-24 of MIDR_EL1 are who made it, 15-4 which one it is.
struct CoreName {
  unsigned maker, part;
  const char* name;
};
constexpr CoreName kCores[] = {
    {0x41, 0xd03, "Cortex-A53"},   {0x41, 0xd04, "Cortex-A35"},  {0x41, 0xd05, "Cortex-A55"},
    {0x41, 0xd07, "Cortex-A57"},   {0x41, 0xd08, "Cortex-A72"},  {0x41, 0xd09, "Cortex-A73"},
    {0x41, 0xd0a, "Cortex-A75"},   {0x41, 0xd0b, "Cortex-A76"},  {0x41, 0xd0c, "Neoverse-N1"},
    {0x41, 0xd0d, "Cortex-A77"},   {0x41, 0xd40, "Neoverse-V1"}, {0x41, 0xd41, "Cortex-A78"},
    {0x41, 0xd44, "Cortex-X1"},    {0x41, 0xd46, "Cortex-A510"}, {0x41, 0xd47, "Cortex-A710"},
    {0x41, 0xd48, "Cortex-X2"},    {0x41, 0xd49, "Neoverse-N2"}, {0x41, 0xd4d, "Cortex-A715"},
    {0x41, 0xd4e, "Cortex-X3"},    {0x41, 0xd4f, "Neoverse-V2"}, {0x41, 0xd80, "Cortex-A520"},
    {0x41, 0xd81, "Cortex-A720"},  {0x41, 0xd82, "Cortex-X4"},   {0x46, 0x001, "A64FX"},
    {0x48, 0xd01, "TaiShan-v110"}, {0xc0, 0xac3, "Ampere-1"},    {0xc0, 0xac4, "Ampere-1a"},
};
struct MakerName {
  unsigned maker;
  const char* name;
};
constexpr MakerName kMakers[] = {{0x41, "ARM"},      {0x42, "Broadcom"},  {0x43, "Cavium"},
                                 {0x46, "Fujitsu"},  {0x48, "HiSilicon"}, {0x4e, "NVIDIA"},
                                 {0x51, "Qualcomm"}, {0x61, "Apple"},     {0xc0, "Ampere"}};

// MIDR_EL1 of the first CPU, which sysfs shows: where CPUs differ, the same wherever this runs.
// Else what the system says of the CPU that this runs on, or what /proc/cpuinfo has of it; 0:
// nothing.
unsigned long main_id() {
  std::ifstream in("/sys/devices/system/cpu/cpu0/regs/identification/midr_el1");
  if (std::string text; in >> text) return std::strtoul(text.c_str(), nullptr, 16);
  if (constexpr int kReadable = 11; ::getauxval(AT_HWCAP) >> kReadable & 1) {
    unsigned long id;
    __asm__("mrs %0, MIDR_EL1" : "=r"(id));
    return id;
  }
  unsigned long maker = 0, part = 0;
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line) && !line.empty();) {
    const size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    const unsigned long value = std::strtoul(line.c_str() + colon + 1, nullptr, 0);
    if (line.starts_with("CPU implementer")) maker = value;
    if (line.starts_with("CPU part")) part = value;
  }
  return maker << 24 | part << 4;
}

void detect_instructions(CpuInfo* cpu, bool) {
  const unsigned long id = main_id();
  const unsigned maker = id >> 24 & 0xff, part = id >> 4 & 0xfff;
  char name[32];
  std::snprintf(name, sizeof name, "part 0x%03x of 0x%02x", part, maker);
  if (id) cpu->model = name;
  for (const MakerName& m : kMakers)
    if (m.maker == maker) cpu->vendor = m.name;
  for (const CoreName& c : kCores)
    if (c.maker == maker && c.part == part) cpu->model = c.name;

  const auto is_there = [](const FeatureBit& f) {
    return (::getauxval(f.word == 1 ? AT_HWCAP : AT_HWCAP2) >> f.bit & 1) != 0;
  };
  const int level = take_features(kFeatures, kLevelCount, is_there, cpu);
  if (level > 0) cpu->level = kLevels[level - 1];
}
#else
void detect_instructions(CpuInfo*, bool) {}
#endif

int level_of_feature(std::string_view name) {
  for (const FeatureBit& f : kFeatures)
    if (name == f.name) return f.level;
  return 0;
}

std::vector<std::string> features_of_level(int level) {
  return features_of(kFeatures, level);
}

}  // namespace

const CpuArchitectureTraits& aarch64_cpus() {
  static constexpr CpuArchitectureTraits kTraits = {
      CpuArchitecture::kAArch64, "aarch64",          kLevels, kNamedLevels, level_of_feature,
      features_of_level,         detect_instructions};
  return kTraits;
}

}  // namespace nimble
