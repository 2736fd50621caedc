#include "vm/api/vendor_libraries.h"

#include <algorithm>

#include "vm/base/error.h"
#include "vm/executable/vendor_routines.h"
#include "vm/library/registry.h"

namespace nimble {

std::vector<VendorLibrary> vendor_libraries() {
  std::vector<VendorLibrary> out;
  for (const exec::VendorRoutineInfo& routine : exec::all_vendor_routines()) {
    VendorLibrary library;
    library.name = routine.name.substr(0, routine.name.find('.'));
    if (std::ranges::find(out, library.name, &VendorLibrary::name) != out.end()) continue;
    const rt::LibraryKernel* kernel =
        rt::find_library_kernel(exec::ImplementationKind::kVendor, routine.name);
    NIMBLE_CHECK(kernel && kernel->version && kernel->unavailable, "{}", routine.name);
    library.version = kernel->version();
    library.problem = kernel->unavailable();
    out.push_back(std::move(library));
  }
  return out;
}

}  // namespace nimble
