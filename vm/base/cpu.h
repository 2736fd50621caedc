// What the machine is: instruction sets (as far as the operating system lets programs use them),
// caches, and how many cores this process may use.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace nimble {

struct CpuCache {
  int level = 0;
  std::string type;  // "data", "instruction", "unified"
  int64_t bytes = 0;
  int line_bytes = 64;
  int shared_by = 1;  // logical CPUs that share one such cache
};

// Those whose levels and features are known.
enum class CpuArchitecture { kX86_64, kAArch64 };

struct CpuInfo {
  std::string vendor;                 // "GenuineIntel", "AuthenticAMD", "ARM"
  std::string model;                  // brand string; of ARM's, the core's name ("Cortex-A72")
  std::string level;                  // the highest of cpu_levels(), "x86-64-v3"
  std::vector<std::string> features;  // usable; sorted; spelled as in /proc/cpuinfo ("avx512f")
  std::vector<CpuCache> caches;       // of the machine's first CPU
  int logical_cpus = 1;               // online in the machine
  int physical_cores = 1;             // distinct cores among those
  int affinity_cpus = 1;              // logical CPUs in this process's affinity mask
  int affinity_cores = 1;             // distinct cores among those
  std::optional<double> cgroup_cpus;  // the tightest CPU quota of its control groups, if any
  std::optional<int64_t> cgroup_memory_bytes;

  // How many threads of work fit: the cores it may use, cut by the quota; at least 1.
  int usable_threads() const;
  // Whether a feature is there. Spellings differ among tools ("sse4.2", "sse4_2",
  // "avx512-vnni", "avx512vnni"), so '.', '-' and '_' do not count. Levels are features too.
  bool has(std::string_view feature) const;
  // Those of `features` that are not there, in order.
  std::vector<std::string> missing(std::span<const std::string> features) const;
  // Bytes of the data or unified cache of a level; 0 if there is none.
  int64_t cache_bytes(int level) const;
};

// Detected once. The environment variable NIMBLE_CPU_LEVEL (a level's name) lowers what is
// reported, so that a stronger machine can try the code for a weaker one. The first call asks Linux
// for tile registers (TileRegisters): it is for who tells the machine's level or makes code for it.
const CpuInfo& host_cpu();
// The same, detected anew: what the machine is stays, what this process may use of it can change.
CpuInfo detect_cpu();
// The same as host_cpu() but for tile registers and what needs them, for which nobody is asked.
const CpuInfo& host_cpu_without_tiles();
// Those of `features` that this machine lacks, in order; Linux is asked for tile registers if one
// of them needs these.
std::vector<std::string> missing_here(std::span<const std::string> features);

// What this program is compiled for, if it is one of those.
std::optional<CpuArchitecture> host_architecture();
// "x86-64", "aarch64".
std::string_view name_of(CpuArchitecture architecture);
// The levels of an architecture, the lowest first. x86-64: those of its psABI, then those that ask
// for instructions for products of narrow types ("x86-64-v4-bf16", "x86-64-v4-amx"). AArch64:
// ARMv8.0 with Advanced SIMD, then those with such instructions ("aarch64-dotprod").
std::span<const std::string_view> cpu_levels(CpuArchitecture architecture);
// Nothing if no architecture has such a level.
std::optional<CpuArchitecture> architecture_of_level(std::string_view level);
// The highest level up to `level` that has a name of the architecture's own: "x86-64-v4" of
// "x86-64-v4-bf16", "aarch64" of "aarch64-i8mm"; else `level`.
std::string_view named_level(std::string_view level);

// What code may use, as records of machines have it: a level of the psABI, and of each level above
// it that is there, up to the first that is not, the feature that stands for all that it asks for,
// the highest first ("x86-64-v4+amx_tile+avx512_bf16+avx512_vnni").
std::string isa_of(const CpuInfo& cpu);
// What a feature in such a text stands for: itself, or all of a level's.
std::vector<std::string> features_in_isa(std::string_view feature);

// The parts that can be tested on any machine:
// The quota of one cpu.max file ("max 100000" or "150000 100000") in CPUs.
std::optional<double> parse_cpu_max(std::string_view text);
// The number of CPUs in a list as in sysfs ("0-3,8").
int count_cpu_list(std::string_view text);
// `cpu` without the features beyond `level`; unknown levels, and those of another architecture, are
// Error(kInvalidArgument).
CpuInfo limited_to_level(CpuInfo cpu, std::string_view level);

// The tile registers of AMX, for which a process must ask Linux before it first uses them.
// Who asks for the whole CPU (host_cpu, detect_cpu) asks Linux, unless NIMBLE_CPU_LEVEL is below
// the levels that have them; a process that was refused has a CPU of a level without them. Linux
// refuses while a thread's alternative signal stack is too small to save them (and, once it has
// granted them, refuses such stacks).
enum class TileRegisters {
  kNone,     // the CPU or the system has none
  kRefused,  // this process may not use them
  kGranted,
};
// Asks anew.
TileRegisters tile_registers();
// Whether code with that feature, or of that level, uses them.
bool needs_tile_registers(std::string_view feature);

}  // namespace nimble
