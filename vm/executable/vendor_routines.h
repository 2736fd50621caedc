// The table of vendors' routines, VendorRoutines.def: for the compiler, which tells them what to
// compute, and for the runtime, which calls them.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

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

}  // namespace nimble::exec
