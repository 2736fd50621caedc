#include "compiler/kernels/target.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <sstream>

#include "compiler/kernels/targets.h"
#include "vm/base/cpu.h"
#include "vm/base/error.h"

namespace nimble::kernels {
namespace {

enum Loaded { kUnloaded, kLoaded };

const TargetRow* find_target(const std::string& level) {
  for (const TargetRow& row : all_targets())
    if (row.info.level == level) return &row;
  return nullptr;
}

}  // namespace

const std::vector<TargetRow>& all_targets() {
  static const std::vector<TargetRow> all = [] {
    std::vector<TargetRow> out;
    const auto add = [&](const char* level, Architecture architecture, Loaded loaded,
                         const char* processor, int bits, int registers, const char* features) {
      TargetRow row{{level, {}, bits, registers, architecture == Architecture::kAArch64},
                    architecture,
                    loaded == kLoaded,
                    processor};
      if (!out.empty() && out.back().architecture == architecture)
        row.info.features = out.back().info.features;
      std::istringstream words(features);
      for (std::string word; words >> word;) row.info.features.push_back(word);
      out.push_back(std::move(row));
    };
    const auto add_gpu = [&](const char* level, int64_t shared, int multiprocessors,
                             const char* features) {
      add(level, Architecture::kNvidia, kLoaded, "", 128, 255, features);
      // Each row says all that its architecture has.
      TargetInfo& info = out.back().info;
      info.features.clear();
      std::istringstream words(features);
      for (std::string word; words >> word;) info.features.push_back(word);
      info.shared_bytes = shared;
      info.multiprocessors = multiprocessors;
    };
#define NIMBLE_TARGET(level, architecture, loaded, processor, bits, registers, features) \
  add(level, Architecture::architecture, loaded, processor, bits, registers, features);
#define NIMBLE_GPU_TARGET(level, shared, multiprocessors, features) \
  add_gpu(level, shared, multiprocessors, features);
#include "compiler/kernels/Targets.def"
#undef NIMBLE_TARGET
    return out;
  }();
  return all;
}

const TargetRow& target_row(const std::string& level) {
  const TargetRow* row = find_target(level);
  NIMBLE_CHECK(row, "target {}", level);
  return *row;
}

bool TargetInfo::has(const std::string& feature) const {
  return std::find(features.begin(), features.end(), feature) != features.end();
}

bool is_lower_level(const TargetInfo& lower, const TargetInfo& higher) {
  const TargetRow* low = find_target(lower.level);
  const TargetRow* high = find_target(higher.level);
  return low && high && low->architecture == high->architecture && !low->info.is_gpu() &&
         low < high;
}

TargetInfo detect_host() {
  const CpuInfo& cpu = host_cpu();
  for (auto row = all_targets().rbegin(); row != all_targets().rend(); ++row) {
    if (!cpu.has(row->info.level)) continue;
    TargetInfo t = row->info;
    if (const int64_t bytes = cpu.cache_bytes(1)) t.l1_bytes = bytes;
    if (const int64_t bytes = cpu.cache_bytes(2)) t.l2_bytes = bytes, t.knows_l2 = true;
    if (const int64_t bytes = cpu.cache_bytes(3)) t.l3_bytes = bytes;
    return t;
  }
  throw Error(Status::kUnsupported, "this machine", "its CPU is of level " + cpu.level,
              "nimble needs at least x86-64-v2 (SSE4.2) or AArch64 with Advanced SIMD; files for "
              "portable run on any CPU, without native code");
}

TargetInfo portable_target(int vector_bits) {
  TargetInfo t = target_row("portable").info;
  t.vector_bits = vector_bits;
  return t;
}

TargetInfo target_by_name(const std::string& name) {
  if (name == "native") return detect_host();
  constexpr std::string_view kSystem = "-linux";
  const size_t end = name.size() - (name.ends_with(kSystem) ? kSystem.size() : 0);
  if (const TargetRow* row = find_target(name.substr(0, end))) return row->info;
  throw Error(Status::kInvalidArgument, "target " + name, "there is no such target",
              fmt::format("the targets are {}", fmt::join(loaded_target_names(), ", ")));
}

TargetInfo target_with_features(const std::string& name, std::span<const std::string> features) {
  const TargetInfo base = target_by_name(name);
  CpuInfo cpu;
  cpu.features = base.features;
  cpu.features.insert(cpu.features.end(), features.begin(), features.end());
  TargetInfo best = base;
  std::vector<std::string> known;  // of higher levels
  for (const TargetRow& row : all_targets()) {
    if (!is_lower_level(base, row.info)) continue;
    for (const std::string& f : row.info.features)
      if (!base.has(f) && std::find(known.begin(), known.end(), f) == known.end())
        known.push_back(f);
    if (is_lower_level(best, row.info) && cpu.missing(row.info.features).empty()) best = row.info;
  }
  CpuInfo used;
  used.features = best.features;
  for (const std::string& f : used.missing(features)) {
    for (const TargetRow& row : all_targets()) {
      CpuInfo higher;
      higher.features = row.info.features;
      if (!is_lower_level(best, row.info) || !higher.has(f)) continue;
      throw Error(Status::kInvalidArgument, "--features",
                  fmt::format("{} is of level {}, which needs {}, too", f, row.info.level,
                              fmt::join(cpu.missing(row.info.features), ", ")),
                  "name those as well, or leave it out");
    }
    throw Error(Status::kInvalidArgument, "--features",
                fmt::format("{} has no instruction for {} that kernels use", name, f),
                known.empty() ? "leave it out"
                              : fmt::format("the features are {}", fmt::join(known, ", ")));
  }
  return best;
}

TargetInfo target_of_isa(std::string_view isa) {
  const size_t plus = std::min(isa.find('+'), isa.size());
  TargetInfo best = target_by_name(std::string(isa.substr(0, plus)));
  CpuInfo cpu;
  cpu.features = best.features;
  std::istringstream extras{std::string(isa.substr(plus))};
  for (std::string feature; std::getline(extras, feature, '+');) {
    const std::vector<std::string> all = features_in_isa(feature);
    cpu.features.insert(cpu.features.end(), all.begin(), all.end());
  }
  for (const TargetRow& row : all_targets())
    if (is_lower_level(best, row.info) && cpu.missing(row.info.features).empty()) best = row.info;
  return best;
}

bool same_architecture(const TargetInfo& a, const TargetInfo& b) {
  return target_row(a.level).architecture == target_row(b.level).architecture;
}

std::vector<std::string> machine_levels() {
  std::vector<std::string> out;
  for (const TargetRow& row : all_targets())
    if (row.loaded && row.architecture != Architecture::kPortable && !row.info.is_gpu())
      out.push_back(row.info.level);
  return out;
}

std::vector<std::string> loaded_target_names() {
  std::vector<std::string> out = {"native"};
  for (const TargetRow& row : all_targets())
    if (row.loaded) out.push_back(row.info.level);
  return out;
}

std::vector<TargetInfo> gpus_of_one_file(std::vector<TargetInfo> gpus) {
  const auto place = [](const TargetInfo& t) { return &target_row(t.level); };
  std::ranges::stable_sort(gpus, {}, place);
  for (size_t i = 1; i < gpus.size(); ++i)
    if (gpus[i].level == gpus[i - 1].level)
      throw Error(Status::kInvalidArgument, "target " + gpus[i].level, "it is named twice",
                  "name each architecture once: sm_80,sm_90a");
  int64_t least = INT64_MAX;
  for (const TargetInfo& t : gpus) least = std::min(least, t.shared_bytes);
  for (TargetInfo& t : gpus) t.shared_bytes = least;
  return gpus;
}

const TargetInfo* gpu_of_records(const std::vector<TargetInfo>& gpus) {
  return gpus.size() == 1 ? &gpus[0] : nullptr;
}

TargetInfo loaded_target_by_name(const std::string& name) {
  TargetInfo target = target_by_name(name);
  if (!target_row(target.level).loaded)
    throw Error(Status::kUnsupported, "target " + name, "no runtime loads its code yet",
                "compile for portable, whose files run wherever the runtime does");
  return target;
}

}  // namespace nimble::kernels
