// What makes the routines of vendors' libraries ready, by library: a file of vm/library each.
#pragma once

#include "vm/library/registry.h"

namespace nimble::rt {

// Gives the kernel of a row of the table its version and what prepares it.
#define NIMBLE_VENDOR_ROUTINE(library, ...) void bind_##library(LibraryKernel* kernel);
#include "vm/executable/VendorRoutines.def"
#undef NIMBLE_VENDOR_ROUTINE

}  // namespace nimble::rt
