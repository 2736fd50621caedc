#include "compiler/driver/vendor_versions.h"

#include "compiler/kernels/vendor.h"
#include "vm/executable/vendor_call.h"
#include "vm/library/registry.h"

namespace nimble::driver {
namespace {

constexpr char kRounding[] = "+tf32";

const rt::LibraryKernel* find_routine(const std::string& name) {
  return rt::find_library_kernel(exec::ImplementationKind::kVendor, name);
}

}  // namespace

std::string why_no_vendor(const std::string& routine) {
  const rt::LibraryKernel* known = find_routine(routine);
  if (!known) return fmt::format("this program knows no routine {}", routine);
  return known->unavailable ? known->unavailable() : "";
}

std::string version_here(const std::string& routine) {
  const rt::LibraryKernel* known = find_routine(routine);
  return known && known->version ? known->version() : "";
}

std::string code_of_routine(const std::string& routine, const std::string& version) {
  return version.empty() ? routine : routine + " " + version;
}

std::string code_of_call(const exec::VendorCall& call) {
  return code_of_routine(call.tf32 ? call.routine + kRounding : call.routine, call.library);
}

std::string version_in(const std::string& code, const std::string& routine) {
  for (const std::string& begin : {routine + " ", routine + kRounding + " "})
    if (code.starts_with(begin)) return code.substr(begin.size());
  return {};
}

std::string vendor_configuration(const kernels::Workload& w, const kernels::TargetInfo& target,
                                 const std::string& routine, std::string version) {
  std::optional<exec::VendorCall> call = kernels::vendor_call_of(w, target);
  if (!call || call->routine != routine) return {};
  call->library = std::move(version);
  return exec::to_json(*call);
}

}  // namespace nimble::driver
