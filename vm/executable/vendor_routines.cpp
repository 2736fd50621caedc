#include "vm/executable/vendor_routines.h"

#include <algorithm>
#include <utility>

namespace nimble::exec {
namespace {

using Machine = VendorRoutineInfo::Machine;
using Sizes = VendorRoutineInfo::Sizes;

constexpr VendorRoutineInfo kVendorRoutines[] = {
#define NIMBLE_VENDOR_ROUTINE(library, routine, machine, sizes, operators, signature, summary) \
  {#library "." #routine, Machine::machine, Sizes::sizes, operators, signature, summary},
#include "vm/executable/VendorRoutines.def"
#undef NIMBLE_VENDOR_ROUTINE
};

}  // namespace

bool VendorRoutineInfo::computes(Machine on, std::string_view anchor) const {
  if (on != machine) return false;
  for (size_t at = 0; at < operators.size();) {
    const size_t end = std::min(operators.find(' ', at), operators.size());
    if (operators.substr(at, end - at) == anchor) return true;
    at = end + 1;
  }
  return false;
}

std::span<const VendorRoutineInfo> all_vendor_routines() {
  return kVendorRoutines;
}

const VendorRoutineInfo* find_vendor_routine(std::string_view name) {
  const auto* const at = std::ranges::find(kVendorRoutines, name, &VendorRoutineInfo::name);
  return at == std::end(kVendorRoutines) ? nullptr : at;
}

std::string variable_of_library(std::string_view library) {
  std::string out = "NIMBLE_";
  for (const char c : library) out += c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  return out;
}

std::vector<std::string> gpu_library_variables() {
  std::vector<std::string> out;
  for (const VendorRoutineInfo& routine : kVendorRoutines) {
    if (routine.machine != Machine::kGpu) continue;
    std::string variable = variable_of_library(routine.name.substr(0, routine.name.find('.')));
    if (std::ranges::find(out, variable) == out.end()) out.push_back(std::move(variable));
  }
  return out;
}

}  // namespace nimble::exec
