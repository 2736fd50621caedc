// Detection by cpuid, with xgetbv telling which register files the operating system saves: AVX
// counts only with XCR0 bits 1-2, AVX-512 with 5-7 too, AMX with 17-18. A process must also ask
// Linux for AMX's registers and may be refused: nobody asks before it matters. The levels are those
// of the x86-64 psABI and three above them, for which it has no names. Caches and cores come from
// sysfs, limits from the affinity mask and from the control groups (v2, then v1).
#include "vm/base/cpu.h"

#include <fmt/ranges.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>

#include "vm/base/error.h"

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
};

constexpr std::string_view kLevels[] = {"x86-64",       "x86-64-v2",      "x86-64-v3",
                                        "x86-64-v4",    "x86-64-v4-vnni", "x86-64-v4-bf16",
                                        "x86-64-v4-amx"};
constexpr int kLevelCount = static_cast<int>(std::size(kLevels)), kPsabiLevels = 4;

// A feature's name without separators; where LLVM's name differs from /proc/cpuinfo's, the latter.
std::string plain(std::string_view name) {
  std::string out;
  for (char c : name)
    if (c != '.' && c != '-' && c != '_') out += c;
  return out == "bmi" ? "bmi1" : out;
}

int level_number(std::string_view level) {
  for (int i = 0; i < kLevelCount; ++i)
    if (level == kLevels[i]) return i + 1;
  return 0;
}

std::string read_line(const std::string& path) {
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  return line;
}

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

void detect_model(CpuInfo* cpu) {
  const Registers vendor = cpuid(0, 0);
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
}

// `tiles`: this process may use tile registers.
void detect_features(CpuInfo* cpu, bool tiles) {
  uint64_t saved = saved_register_files();
  if (!tiles) saved &= ~kAmx;
  cpu->features.clear();
  bool complete[kLevelCount + 1];
  std::fill(std::begin(complete), std::end(complete), true);
  for (const FeatureBit& f : kFeatures) {
    const bool there =
        (cpuid(f.leaf, f.subleaf).of(f.reg) >> f.bit & 1) && (saved & f.xcr0) == f.xcr0;
    if (there)
      cpu->features.emplace_back(f.name);
    else if (f.level > 0)
      complete[f.level] = false;
  }
  int level = 1;
  while (level < kLevelCount && complete[level + 1]) ++level;
  cpu->level = kLevels[level - 1];
}
#else
TileRegisters ask_for_tiles() {
  return TileRegisters::kNone;
}
void detect_model(CpuInfo* cpu) {
  cpu->vendor = cpu->model = "unknown";
}
void detect_features(CpuInfo* cpu, bool) {
  cpu->level = "generic";
}
#endif

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

// The level and the features, as NIMBLE_CPU_LEVEL lowers them. With `ask` Linux is asked for tile
// registers where they count.
void set_instructions(CpuInfo* cpu, bool ask) {
  const char* level = std::getenv("NIMBLE_CPU_LEVEL");
  const bool lowered = level && *level;
  const bool tiles = ask && (!lowered || needs_tile_registers(level)) &&
                     ask_for_tiles() == TileRegisters::kGranted;
  detect_features(cpu, tiles);
  std::sort(cpu->features.begin(), cpu->features.end());
  if (lowered) *cpu = limited_to_level(std::move(*cpu), level);
}

CpuInfo detected(bool ask) {
  CpuInfo cpu;
  detect_model(&cpu);
  detect_cores(&cpu);
  detect_control_groups(&cpu);
  set_instructions(&cpu, ask);
  return cpu;
}

// The features that a level has first.
std::vector<std::string> features_of_level(int level) {
  std::vector<std::string> out;
  for (const FeatureBit& f : kFeatures)
    if (f.level == level) out.emplace_back(f.name);
  return out;
}

}  // namespace

std::span<const std::string_view> cpu_levels() {
  return kLevels;
}

std::string_view psabi_level(std::string_view level) {
  return level_number(level) > kPsabiLevels ? kLevels[kPsabiLevels - 1] : level;
}

std::string isa_of(const CpuInfo& cpu) {
  std::string out(psabi_level(cpu.level));
  for (int level = kLevelCount; level > kPsabiLevels; --level)
    if (const auto all = features_of_level(level); cpu.missing(all).empty()) out += "+" + all[0];
  return out;
}

std::vector<std::string> features_in_isa(std::string_view extra) {
  for (int level = kLevelCount; level > kPsabiLevels; --level)
    if (auto all = features_of_level(level); extra == all[0]) return all;
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
  if (const int asked = level_number(feature)) return level_number(level) >= asked;
  const std::string wanted = plain(feature);
  return std::any_of(features.begin(), features.end(),
                     [&](const std::string& f) { return plain(f) == wanted; });
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
  const int asked = level_number(level);
  if (asked == 0)
    throw Error(Status::kInvalidArgument, "NIMBLE_CPU_LEVEL",
                fmt::format("\"{}\" is not a CPU level", level),
                fmt::format("the levels are {}", fmt::join(kLevels, ", ")));
  if (asked >= level_number(cpu.level)) return cpu;
  cpu.level = std::string(level);
  // What belongs to a higher level, or to none but needs its registers, goes.
  std::erase_if(cpu.features, [&](const std::string& name) {
    for (const FeatureBit& f : kFeatures)
      if (name == f.name) {
        const int needs = f.level ? f.level : f.xcr0 == kAvx512 ? 4 : f.xcr0 == kAvx ? 3 : 4;
        return needs > asked;
      }
    return false;
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

TileRegisters tile_registers() {
  return ask_for_tiles();
}

bool needs_tile_registers(std::string_view feature) {
  const std::string wanted = plain(feature);
  const int level = level_number(feature);
  return std::ranges::any_of(kFeatures, [&](const FeatureBit& f) {
    return f.xcr0 == kAmx && (plain(f.name) == wanted || (f.level > 0 && f.level <= level));
  });
}

}  // namespace nimble
