#include "compiler/kernels/target.h"

#include <algorithm>

#include "vm/base/cpu.h"
#include "vm/base/error.h"

namespace nimble::kernels {
namespace {

// Feature names are LLVM's. Each level of the x86-64 psABI includes those before it.
TargetInfo named(const std::string& level) {
  TargetInfo t;
  t.level = level;
  if (level == "aarch64") {
    t.features = {"fp-armv8", "neon"};
    t.vector_registers = 32;
    return t;
  }
  t.features = {"cx16", "popcnt", "sse3", "sse4.1", "sse4.2", "ssse3"};
  if (level == "x86-64-v2") return t;
  t.features.insert(t.features.end(),
                    {"avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe"});
  t.vector_bits = 256;
  if (level == "x86-64-v3") return t;
  t.features.insert(t.features.end(), {"avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl"});
  t.vector_bits = 512;
  t.vector_registers = 32;
  return t;
}

constexpr const char* kPortable = "portable";
constexpr const char* kLevels[] = {"x86-64-v4", "x86-64-v3", "x86-64-v2"};

}  // namespace

bool TargetInfo::has(const std::string& feature) const {
  return std::find(features.begin(), features.end(), feature) != features.end();
}

bool is_lower_level(const TargetInfo& lower, const TargetInfo& higher) {
  const auto at = [](const TargetInfo& t) {
    return std::find(std::begin(kLevels), std::end(kLevels), t.level) - std::begin(kLevels);
  };
  return at(higher) < at(lower) && at(lower) < static_cast<long>(std::size(kLevels));
}

TargetInfo detect_host() {
  const CpuInfo& cpu = host_cpu();
  for (const char* level : kLevels) {
    if (!cpu.has(level)) continue;
    TargetInfo t = named(level);
    if (const int64_t bytes = cpu.cache_bytes(1)) t.l1_bytes = bytes;
    if (const int64_t bytes = cpu.cache_bytes(2)) t.l2_bytes = bytes;
    if (const int64_t bytes = cpu.cache_bytes(3)) t.l3_bytes = bytes;
    return t;
  }
  throw Error(Status::kUnsupported, "this machine", "its CPU is of level " + cpu.level,
              "nimble needs at least x86-64-v2 (SSE4.2)");
}

TargetInfo portable_target(int vector_bits) {
  TargetInfo t;
  t.level = kPortable;
  t.vector_bits = vector_bits;
  t.vector_registers = 32;
  return t;
}

TargetInfo target_by_name(const std::string& name) {
  if (name == "native") return detect_host();
  for (const char* level : kLevels)
    if (name == level) return named(name);
  if (name == "aarch64") return named(name);
  if (name == kPortable) return portable_target();
  throw Error(Status::kInvalidArgument, "target " + name, "there is no such target",
              "use native, x86-64-v2, x86-64-v3, x86-64-v4, aarch64 or portable");
}

}  // namespace nimble::kernels
