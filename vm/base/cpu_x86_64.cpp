// x86-64. Detection by cpuid, with xgetbv telling which register files the operating system saves:
// AVX counts only with XCR0 bits 1-2, AVX-512 with 5-7 too, AMX with 17-18. A process must also ask
// Linux for AMX's registers and may be refused. The levels are those of the x86-64 psABI and four
// above them, for which it has no names.
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

#include "vm/base/cpu_architecture.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace nimble {
namespace {

struct FeatureBit {
  const char* name;
  unsigned leaf, subleaf;
  char reg;  // 'a' … 'd'
  int bit;
  int level;      // that asks for it first, counted from 1 (kLevels); 0: none does
  uint64_t xcr0;  // register files that the system must save
};

constexpr uint64_t kAvx = 0x6, kAvx512 = 0xe6, kAmx = 0x60000;

constexpr FeatureBit kFeatures[] = {
    {"cx16", 1, 0, 'c', 13, 2, 0},
    {"lahf_lm", 0x80000001u, 0, 'c', 0, 2, 0},
    {"popcnt", 1, 0, 'c', 23, 2, 0},
    {"sse3", 1, 0, 'c', 0, 2, 0},
    {"ssse3", 1, 0, 'c', 9, 2, 0},
    {"sse4_1", 1, 0, 'c', 19, 2, 0},
    {"sse4_2", 1, 0, 'c', 20, 2, 0},
    {"avx", 1, 0, 'c', 28, 3, kAvx},
    {"avx2", 7, 0, 'b', 5, 3, kAvx},
    {"bmi1", 7, 0, 'b', 3, 3, 0},
    {"bmi2", 7, 0, 'b', 8, 3, 0},
    {"f16c", 1, 0, 'c', 29, 3, kAvx},
    {"fma", 1, 0, 'c', 12, 3, kAvx},
    {"lzcnt", 0x80000001u, 0, 'c', 5, 3, 0},
    {"movbe", 1, 0, 'c', 22, 3, 0},
    {"avx512f", 7, 0, 'b', 16, 4, kAvx512},
    {"avx512bw", 7, 0, 'b', 30, 4, kAvx512},
    {"avx512cd", 7, 0, 'b', 28, 4, kAvx512},
    {"avx512dq", 7, 0, 'b', 17, 4, kAvx512},
    {"avx512vl", 7, 0, 'b', 31, 4, kAvx512},
    {"avx512_vnni", 7, 0, 'c', 11, 5, kAvx512},
    {"avx512_bf16", 7, 1, 'a', 5, 6, kAvx512},
    {"avx512_fp16", 7, 0, 'd', 23, 0, kAvx512},
    {"avx512_vbmi", 7, 0, 'c', 1, 0, kAvx512},
    {"avx_vnni", 7, 1, 'a', 4, 0, kAvx},
    {"amx_tile", 7, 0, 'd', 24, 7, kAmx},
    {"amx_int8", 7, 0, 'd', 25, 7, kAmx},
    {"amx_bf16", 7, 0, 'd', 22, 7, kAmx},
    {"amx_fp16", 7, 1, 'a', 21, 8, kAmx},
};

constexpr std::string_view kLevels[] = {"x86-64",        "x86-64-v2",         "x86-64-v3",
                                        "x86-64-v4",     "x86-64-v4-vnni",    "x86-64-v4-bf16",
                                        "x86-64-v4-amx", "x86-64-v4-amx-fp16"};
constexpr int kLevelCount = static_cast<int>(std::size(kLevels)), kPsabiLevels = 4;

#if defined(__x86_64__)
struct Registers {
  unsigned a = 0, b = 0, c = 0, d = 0;
  unsigned of(char r) const { return r == 'a' ? a : r == 'b' ? b : r == 'c' ? c : d; }
};

Registers cpuid(unsigned leaf, unsigned subleaf) {
  Registers r;
  const unsigned highest = __get_cpuid_max(leaf & 0x80000000u, nullptr);
  if (highest < leaf) return {};
  __cpuid_count(leaf, subleaf, r.a, r.b, r.c, r.d);
  return r;
}

uint64_t saved_register_files() {
  if (!(cpuid(1, 0).c >> 27 & 1)) return 0;  // osxsave
  uint32_t low, high;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return uint64_t{high} << 32 | low;
}

TileRegisters ask_for_tiles() {
  const FeatureBit& tile = *std::ranges::find(kFeatures, std::string_view("amx_tile"),
                                              [](const FeatureBit& f) { return f.name; });
  if (!(cpuid(tile.leaf, tile.subleaf).of(tile.reg) >> tile.bit & 1) ||
      (saved_register_files() & kAmx) != kAmx)
    return TileRegisters::kNone;
#if defined(SYS_arch_prctl)
  constexpr int kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XTILEDATA
  if (::syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0) return TileRegisters::kGranted;
#endif
  return TileRegisters::kRefused;
}

void detect_instructions(CpuInfo* cpu, bool tiles) {
  const Registers vendor = cpuid(0, 0);
  cpu->vendor.clear();
  cpu->model.clear();
  for (unsigned word : {vendor.b, vendor.d, vendor.c})
    for (int i = 0; i < 4; ++i) cpu->vendor += static_cast<char>(word >> (8 * i));
  for (unsigned leaf = 0x80000002u; leaf <= 0x80000004u; ++leaf) {
    const Registers r = cpuid(leaf, 0);
    for (unsigned word : {r.a, r.b, r.c, r.d})
      for (int i = 0; i < 4; ++i)
        if (const char c = static_cast<char>(word >> (8 * i))) cpu->model += c;
  }
  cpu->model.erase(0, cpu->model.find_first_not_of(' '));
  while (!cpu->model.empty() && cpu->model.back() == ' ') cpu->model.pop_back();

  uint64_t saved = saved_register_files();
  if (!tiles) saved &= ~kAmx;
  const auto is_there = [&](const FeatureBit& f) {
    return (cpuid(f.leaf, f.subleaf).of(f.reg) >> f.bit & 1) && (saved & f.xcr0) == f.xcr0;
  };
  cpu->level = kLevels[take_features(kFeatures, kLevelCount, is_there, cpu) - 1];
}
#else
TileRegisters ask_for_tiles() {
  return TileRegisters::kNone;
}
void detect_instructions(CpuInfo*, bool) {}
#endif

// What belongs to no level, but needs registers, goes with the level that brings those.
int level_of_feature(std::string_view name) {
  for (const FeatureBit& f : kFeatures)
    if (name == f.name) return f.level ? f.level : f.xcr0 == kAvx ? 3 : 4;
  return 0;
}

std::vector<std::string> features_of_level(int level) {
  return features_of(kFeatures, level);
}

}  // namespace

const CpuArchitectureTraits& x86_64_cpus() {
  static constexpr CpuArchitectureTraits kTraits = {
      CpuArchitecture::kX86_64, "x86-64",           kLevels, kPsabiLevels, level_of_feature,
      features_of_level,        detect_instructions};
  return kTraits;
}

TileRegisters tile_registers() {
  return ask_for_tiles();
}

bool needs_tile_registers(std::string_view feature) {
  const std::string wanted = plain_feature(feature);
  const auto* const level = std::ranges::find(kLevels, feature);
  const int number = level == std::end(kLevels) ? 0 : static_cast<int>(level - kLevels) + 1;
  return std::ranges::any_of(kFeatures, [&](const FeatureBit& f) {
    return f.xcr0 == kAmx &&
           (plain_feature(f.name) == wanted || (f.level > 0 && f.level <= number));
  });
}

}  // namespace nimble
