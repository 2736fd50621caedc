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

const CpuArchitectureTraits& x86_64_cpus();
const CpuArchitectureTraits& aarch64_cpus();

// A feature's name without separators; where LLVM's name differs from /proc/cpuinfo's, the latter.
std::string plain_feature(std::string_view name);

}  // namespace nimble
