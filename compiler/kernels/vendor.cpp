#include "compiler/kernels/vendor.h"

#include "compiler/kernels/vendor/reader.h"
#include "vm/executable/vendor_routines.h"

namespace nimble::kernels {
namespace {

using exec::VendorCall;
using exec::VendorRoutineInfo;

// How the routines of the table, in its order, are told what to compute.
struct Told {
  void (*read)(vendor::Reader& reader, const ir::Expr& anchor);
  std::string (*fault_of)(const VendorCall& call, const Workload& w);
};
constexpr Told kTold[] = {
#define NIMBLE_VENDOR_ROUTINE(library, routine, ...) \
  {vendor::read_##library##_##routine, vendor::fault_of_##library##_##routine},
#include "vm/executable/VendorRoutines.def"
#undef NIMBLE_VENDOR_ROUTINE
};

}  // namespace

std::optional<exec::VendorCall> vendor_call_of(const Workload& w, const TargetInfo& target,
                                               std::string* why) {
  using Machine = VendorRoutineInfo::Machine;
  const auto all = exec::all_vendor_routines();
  const auto routine = std::ranges::find_if(all, [&](const VendorRoutineInfo& r) {
    return r.computes(target.is_gpu() ? Machine::kGpu : Machine::kCpu, w.anchor);
  });
  try {
    vendor::Reader reader(w, target.is_gpu());
    const Told* told = routine == all.end() ? nullptr : &kTold[routine - all.begin()];
    VendorCall call = reader.read(told ? told->read : nullptr);
    call.routine = routine->name;
    if (std::string fault = told->fault_of(call, w); !fault.empty())
      throw vendor::Refused{std::move(fault)};
    return call;
  } catch (const vendor::Refused& refused) {
    if (why) *why = refused.why;
    return std::nullopt;
  }
}

bool serves_exact_sizes(std::string_view routine) {
  const VendorRoutineInfo* known = exec::find_vendor_routine(routine);
  return known && known->sizes == VendorRoutineInfo::Sizes::kExact;
}

}  // namespace nimble::kernels
