// The table of vendors' routines, VendorRoutines.def: for the compiler, which tells them what to
// compute, and for the runtime, which calls them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace nimble::exec {

struct VendorRoutineInfo {
  enum class Machine : uint8_t { kCpu, kGpu };
  enum class Sizes : uint8_t { kExact, kAny };
  std::string_view name;  // "onednn.matmul"
  Machine machine = Machine::kCpu;
  Sizes sizes = Sizes::kAny;
  std::string_view operators;  // separated by spaces
  std::string_view signature, summary;

  // Whether it is of the machine and has the operator as its anchor.
  bool computes(Machine on, std::string_view anchor) const;
};

// In the table's order.
std::span<const VendorRoutineInfo> all_vendor_routines();
// nullptr if there is none of this name.
const VendorRoutineInfo* find_vendor_routine(std::string_view name);
// The environment's variable that names the file, or the folder, of a library of a GPU's routines:
// NIMBLE_CUBLASLT of "cublaslt".
std::string variable_of_library(std::string_view library);
// Those of all libraries of a GPU in the table, in its order, each once.
std::vector<std::string> gpu_library_variables();

}  // namespace nimble::exec
