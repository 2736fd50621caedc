// What is particular to an architecture's CPUs, a file each. The tables are there on every machine
// (a file may be compiled for another one); only detection needs a CPU of the kind.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "vm/base/cpu.h"

namespace nimble {

struct CpuArchitectureTraits {
  CpuArchitecture id;
  std::string_view name;                     // as `uname -m` has it, but for its separator
  std::span<const std::string_view> levels;  // the lowest first
  int named_levels;  // so many of them have a name of the architecture's own; those above are
                     // features in short
  // The number of the level, counted from 1, below which a CPU has nothing of the feature; 0 if
  // the feature is not known.
  int (*level_of_feature)(std::string_view feature);
  // The features that a level has first; the first of them stands for all in short.
  std::vector<std::string> (*features_of_level)(int level);
  // Sets what is known of vendor, model, level and features of this machine's CPU; `tiles`: this
  // process may use tile registers.
  void (*detect)(CpuInfo* cpu, bool tiles);
};

// Of a table of features, rows with `name` and `level` (the level that asks for it first, from 1;
// 0: none does): the names that a level has first.
template <typename Table>
std::vector<std::string> features_of(const Table& table, int level) {
  std::vector<std::string> out;
  for (const auto& f : table)
    if (f.level == level) out.emplace_back(f.name);
  return out;
}
// Adds those that are there to the CPU's; the highest of `levels` levels of which none is missing.
template <typename Table, typename Predicate>
int take_features(const Table& table, int levels, const Predicate& is_there, CpuInfo* cpu) {
  std::vector<bool> complete(static_cast<size_t>(levels) + 2, true);
  complete.back() = false;
  for (const auto& f : table) {
    if (is_there(f))
      cpu->features.emplace_back(f.name);
    else if (f.level > 0)
      complete[static_cast<size_t>(f.level)] = false;
  }
  int level = 0;
  while (complete[static_cast<size_t>(level) + 1]) ++level;
  return level;
}

const CpuArchitectureTraits& x86_64_cpus();
const CpuArchitectureTraits& aarch64_cpus();

// A feature's name without separators; where LLVM's name differs from /proc/cpuinfo's, the latter.
std::string plain_feature(std::string_view name);

}  // namespace nimble
