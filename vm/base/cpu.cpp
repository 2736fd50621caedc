// Levels, features and the names of the CPU are its architecture's (cpu_x86_64.cpp,
// cpu_aarch64.cpp); nobody asks the system for tile registers before it matters. Caches and cores
// come from sysfs, limits from the affinity mask and from the control groups (v2, then v1).
#include "vm/base/cpu.h"

#include <fmt/ranges.h>
#include <sched.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>
#include <utility>

#include "vm/base/cpu_architecture.h"
#include "vm/base/error.h"

namespace nimble {
namespace {

const CpuArchitectureTraits& traits_of(CpuArchitecture a) {
  return a == CpuArchitecture::kAArch64 ? aarch64_cpus() : x86_64_cpus();
}

// A level's architecture and its number there, from 1; 0: there is no such level.
struct LevelPlace {
  const CpuArchitectureTraits* architecture = nullptr;
  int number = 0;
};
LevelPlace place_of(std::string_view level) {
  for (const CpuArchitectureTraits* a : {&x86_64_cpus(), &aarch64_cpus()})
    for (size_t i = 0; i < a->levels.size(); ++i)
      if (level == a->levels[i]) return {a, static_cast<int>(i) + 1};
  return {};
}

std::string read_line(const std::string& path) {
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  return line;
}

void detect_caches(CpuInfo* cpu, int first_cpu) {
  const std::string root = fmt::format("/sys/devices/system/cpu/cpu{}/cache/index", first_cpu);
  for (int i = 0; i < 16; ++i) {
    const std::string at = root + std::to_string(i) + "/";
    const std::string level = read_line(at + "level"), size = read_line(at + "size");
    if (level.empty() || size.empty()) break;
    CpuCache cache;
    cache.level = std::atoi(level.c_str());
    cache.type = read_line(at + "type");
    std::transform(cache.type.begin(), cache.type.end(), cache.type.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    cache.bytes = std::atoll(size.c_str());
    if (size.back() == 'K') cache.bytes <<= 10;
    if (size.back() == 'M') cache.bytes <<= 20;
    if (const int line = std::atoi(read_line(at + "coherency_line_size").c_str()))
      cache.line_bytes = line;
    cache.shared_by = std::max(1, count_cpu_list(read_line(at + "shared_cpu_list")));
    cpu->caches.push_back(cache);
  }
}

// The tightest limit on the way from the process's own group up to the root: each ancestor's
// limit binds too.
template <typename Parse>
auto tightest(const std::string& root, std::string group, const char* file, Parse parse) {
  decltype(parse(std::string())) best;
  while (true) {
    if (auto value = parse(read_line(root + group + "/" + file));
        value && (!best || *value < *best))
      best = value;
    if (group.empty() || group == "/") return best;
    group.erase(group.rfind('/'));
  }
}

std::optional<int64_t> parse_bytes(const std::string& text) {
  if (text.empty() || text[0] < '0' || text[0] > '9') return std::nullopt;
  const long long v = std::strtoll(text.c_str(), nullptr, 10);
  if (v >= INT64_MAX / 2) return std::nullopt;  // v1 writes "no limit" as a huge number
  return v;
}

void detect_control_groups(CpuInfo* cpu) {
  std::ifstream in("/proc/self/cgroup");
  for (std::string line; std::getline(in, line);) {
    // "0::/user.slice/…" (v2) or "4:cpu,cpuacct:/docker/…" (v1)
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = fmt::format(",{},", line.substr(first + 1, second - first - 1));
    const std::string group = line.substr(second + 1);
    if (controllers == ",,") {
      const std::string root = "/sys/fs/cgroup";
      cpu->cgroup_cpus =
          tightest(root, group, "cpu.max", [](const std::string& s) { return parse_cpu_max(s); });
      cpu->cgroup_memory_bytes = tightest(root, group, "memory.max", parse_bytes);
    } else if (controllers.find(",cpu,") != std::string::npos) {
      const std::string root = "/sys/fs/cgroup/cpu";
      const auto quota = tightest(root, group, "cpu.cfs_quota_us", parse_bytes);
      const auto period = parse_bytes(read_line(root + "/cpu.cfs_period_us"));
      if (quota && *quota > 0)
        cpu->cgroup_cpus =
            static_cast<double>(*quota) / static_cast<double>(period.value_or(100000));
    } else if (controllers.find(",memory,") != std::string::npos) {
      cpu->cgroup_memory_bytes =
          tightest("/sys/fs/cgroup/memory", group, "memory.limit_in_bytes", parse_bytes);
    }
  }
}

// The numbers in a list as in sysfs ("0-3,8").
std::vector<int> cpus_of_list(std::string_view text) {
  std::vector<int> cpus;
  std::istringstream in{std::string(text)};
  for (std::string range; std::getline(in, range, ',');) {
    int first = 0, last = 0;
    const int n = std::sscanf(range.c_str(), "%d-%d", &first, &last);
    if (n == 1) last = first;
    for (int i = first; n >= 1 && i <= last; ++i) cpus.push_back(i);
  }
  return cpus;
}

int count_cores(const std::vector<int>& cpus) {
  std::set<std::string> cores;
  for (int i : cpus) {
    const std::string at = fmt::format("/sys/devices/system/cpu/cpu{}/topology/", i);
    const std::string core = read_line(at + "core_id");
    cores.insert(core.empty() ? fmt::format("cpu{}", i)
                              : read_line(at + "physical_package_id") + ":" + core);
  }
  return static_cast<int>(cores.size());
}

// The CPUs of this process's affinity mask; at least one.
std::vector<int> allowed_cpus() {
  std::vector<int> allowed;
  // The mask may need more room than the fixed cpu_set_t on large machines.
  for (size_t capacity = 1024; capacity <= (size_t{1} << 17); capacity *= 4) {
    cpu_set_t* set = CPU_ALLOC(capacity);
    const size_t bytes = CPU_ALLOC_SIZE(capacity);
    CPU_ZERO_S(bytes, set);
    const bool ok = sched_getaffinity(0, bytes, set) == 0;
    for (size_t i = 0; ok && i < capacity; ++i)
      if (CPU_ISSET_S(i, bytes, set)) allowed.push_back(static_cast<int>(i));
    CPU_FREE(set);
    if (ok) break;
  }
  if (allowed.empty()) allowed.push_back(0);
  return allowed;
}

// The machine's own numbers must not depend on where this process may run: records of the tuning
// database are kept under them.
void detect_cores(CpuInfo* cpu) {
  const std::vector<int> allowed = allowed_cpus();
  std::vector<int> online = cpus_of_list(read_line("/sys/devices/system/cpu/online"));
  if (online.empty()) online = allowed;
  cpu->logical_cpus = static_cast<int>(online.size());
  cpu->physical_cores = count_cores(online);
  cpu->affinity_cpus = static_cast<int>(allowed.size());
  cpu->affinity_cores = count_cores(allowed);
  detect_caches(cpu, online.front());
}

// Names, level and features, as NIMBLE_CPU_LEVEL lowers them. With `ask` Linux is asked for tile
// registers where they count.
void set_instructions(CpuInfo* cpu, bool ask) {
  const char* level = std::getenv("NIMBLE_CPU_LEVEL");
  const bool lowered = level && *level;
  const bool tiles = ask && (!lowered || needs_tile_registers(level)) &&
                     tile_registers() == TileRegisters::kGranted;
  cpu->vendor = cpu->model = "unknown";
  cpu->level = "generic";
  cpu->features.clear();
  if (const auto here = host_architecture()) traits_of(*here).detect(cpu, tiles);
  std::sort(cpu->features.begin(), cpu->features.end());
  if (lowered) *cpu = limited_to_level(std::move(*cpu), level);
}

CpuInfo detected(bool ask) {
  CpuInfo cpu;
  detect_cores(&cpu);
  detect_control_groups(&cpu);
  set_instructions(&cpu, ask);
  return cpu;
}

}  // namespace

std::optional<CpuArchitecture> host_architecture() {
#if defined(__x86_64__)
  return CpuArchitecture::kX86_64;
#elif defined(__aarch64__)
  return CpuArchitecture::kAArch64;
#else
  return std::nullopt;
#endif
}

std::string_view name_of(CpuArchitecture a) {
  return traits_of(a).name;
}

std::span<const std::string_view> cpu_levels(CpuArchitecture a) {
  return traits_of(a).levels;
}

std::optional<CpuArchitecture> architecture_of_level(std::string_view level) {
  const LevelPlace place = place_of(level);
  return place.architecture ? std::optional(place.architecture->id) : std::nullopt;
}

std::string_view named_level(std::string_view level) {
  const LevelPlace place = place_of(level);
  if (!place.architecture || place.number <= place.architecture->named_levels) return level;
  return place.architecture->levels[place.architecture->named_levels - 1];
}

std::string plain_feature(std::string_view name) {
  std::string out;
  for (char c : name)
    if (c != '.' && c != '-' && c != '_') out += c;
  static constexpr std::pair<std::string_view, std::string_view> kOfLlvm[] = {
      {"bmi", "bmi1"},
      {"fparmv8", "fp"},
      {"neon", "asimd"},
      {"dotprod", "asimddp"},
      {"fp16fml", "asimdfhm"}};
  for (const auto& [theirs, ours] : kOfLlvm)
    if (out == theirs) return std::string(ours);
  return out;
}

std::string isa_of(const CpuInfo& cpu) {
  std::string extras;
  const CpuArchitectureTraits* a = place_of(cpu.level).architecture;
  // What lies above a gap makes no code another: it is of no level that is there.
  const int levels = a ? static_cast<int>(a->levels.size()) : 0;
  for (int level = a ? a->named_levels + 1 : 1; level <= levels; ++level) {
    const auto all = a->features_of_level(level);
    if (!cpu.missing(all).empty()) break;
    extras.insert(0, "+" + all[0]);
  }
  return std::string(named_level(cpu.level)) + extras;
}

std::vector<std::string> features_in_isa(std::string_view extra) {
  for (const CpuArchitectureTraits* a : {&x86_64_cpus(), &aarch64_cpus()})
    for (int level = static_cast<int>(a->levels.size()); level > a->named_levels; --level)
      if (auto all = a->features_of_level(level); extra == all[0]) return all;
  return {std::string(extra)};
}

CpuInfo detect_cpu() {
  return detected(true);
}

int CpuInfo::usable_threads() const {
  int n = affinity_cores;
  if (cgroup_cpus) n = std::min(n, static_cast<int>(std::ceil(*cgroup_cpus - 0.01)));
  return std::max(1, n);
}

bool CpuInfo::has(std::string_view feature) const {
  if (const LevelPlace asked = place_of(feature); asked.architecture) {
    const LevelPlace own = place_of(level);
    return own.architecture == asked.architecture && own.number >= asked.number;
  }
  const std::string wanted = plain_feature(feature);
  return std::any_of(features.begin(), features.end(),
                     [&](const std::string& f) { return plain_feature(f) == wanted; });
}

std::vector<std::string> CpuInfo::missing(std::span<const std::string> wanted) const {
  std::vector<std::string> out;
  for (const std::string& f : wanted)
    if (!has(f)) out.push_back(f);
  return out;
}

int64_t CpuInfo::cache_bytes(int level_wanted) const {
  for (const CpuCache& c : caches)
    if (c.level == level_wanted && c.type != "instruction") return c.bytes;
  return 0;
}

std::optional<double> parse_cpu_max(std::string_view text) {
  std::istringstream in{std::string(text)};
  double quota = 0, period = 0;
  if (!(in >> quota >> period) || quota <= 0 || period <= 0) return std::nullopt;
  return quota / period;
}

int count_cpu_list(std::string_view text) {
  return static_cast<int>(cpus_of_list(text).size());
}

CpuInfo limited_to_level(CpuInfo cpu, std::string_view level) {
  const LevelPlace own = place_of(cpu.level), asked = place_of(level);
  const auto refuse = [&](std::string_view problem) {
    const auto levels = own.architecture
                            ? own.architecture->levels
                            : cpu_levels(host_architecture().value_or(CpuArchitecture::kX86_64));
    throw Error(Status::kInvalidArgument, "NIMBLE_CPU_LEVEL",
                fmt::format("\"{}\" is {}", level, problem),
                fmt::format("the levels are {}", fmt::join(levels, ", ")));
  };
  if (!asked.architecture) refuse("not a CPU level");
  if (!own.architecture) return cpu;
  if (own.architecture != asked.architecture) refuse("no level of this CPU's architecture");
  if (asked.number >= own.number) return cpu;
  cpu.level = std::string(level);
  // What belongs to a higher level, or to none but needs its registers, goes.
  std::erase_if(cpu.features, [&](const std::string& name) {
    return asked.architecture->level_of_feature(name) > asked.number;
  });
  return cpu;
}

const CpuInfo& host_cpu() {
  static const CpuInfo cpu = [] {
    CpuInfo all = host_cpu_without_tiles();
    set_instructions(&all, true);
    return all;
  }();
  return cpu;
}

const CpuInfo& host_cpu_without_tiles() {
  static const CpuInfo cpu = detected(false);
  return cpu;
}

std::vector<std::string> missing_here(std::span<const std::string> features) {
  const bool tiles = std::ranges::any_of(features, needs_tile_registers);
  return (tiles ? host_cpu() : host_cpu_without_tiles()).missing(features);
}

}  // namespace nimble
