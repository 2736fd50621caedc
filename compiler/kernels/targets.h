// The table of targets, Targets.def: for who is given a target's name, and for what only its row
// says. Kernels and passes look at a TargetInfo alone.
#pragma once

#include <string>
#include <vector>

#include "compiler/kernels/target.h"

namespace nimble::kernels {

// kPortable: the checked interpreter, on any CPU; kNvidia: GPUs (codegen/cuda).
enum class Architecture { kX86_64, kAArch64, kPortable, kNvidia };

struct TargetRow {
  TargetInfo info;
  Architecture architecture = Architecture::kX86_64;
  bool loaded = false;    // by the runtime; else its code can only be generated
  std::string processor;  // LLVM's, whose costs its code is made for
};

// In the table's order: of an architecture the lowest level first.
const std::vector<TargetRow>& all_targets();
// The row of a level; an internal error if there is none.
const TargetRow& target_row(const std::string& level);

// Whether code for one may be machine code for the other.
bool same_architecture(const TargetInfo& a, const TargetInfo& b);
// The levels of CPUs' machine code that are loaded, in the table's order.
std::vector<std::string> machine_levels();
// "native", then the levels that are loaded, GPUs' among them.
std::vector<std::string> loaded_target_names();
// GPUs' architectures whose code one file has, in the table's order. Its kernels are started alike
// on all of them, so that each is left the shared memory that the least of them has.
// Error(kInvalidArgument) if one is named twice.
std::vector<TargetInfo> gpus_of_one_file(std::vector<TargetInfo> gpus);
// Whose records serve the kernels of a file that has code for these GPUs: the only one's. A kernel
// has one schedule for all of them, and records of one architecture are none of another: nullptr
// where there are several (or none).
const TargetInfo* gpu_of_records(const std::vector<TargetInfo>& gpus);
// As target_by_name, for a file that is to be run: Error(kUnsupported) for what is not loaded.
TargetInfo loaded_target_by_name(const std::string& name);

}  // namespace nimble::kernels
