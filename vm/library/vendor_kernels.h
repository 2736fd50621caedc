// What makes the routines of vendors' libraries ready: in vm/library a file for each library, or
// for a routine.
#pragma once

#include "vm/library/registry.h"

namespace nimble::rt {

// Gives the kernel of a row of the table its version and what prepares it.
#define NIMBLE_VENDOR_ROUTINE(library, routine, ...) \
  void bind_##library##_##routine(LibraryKernel* kernel);
#include "vm/executable/VendorRoutines.def"
#undef NIMBLE_VENDOR_ROUTINE

}  // namespace nimble::rt
