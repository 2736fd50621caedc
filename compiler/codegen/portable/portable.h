// Kernel IR to portable kernels (vm/executable/portable_kernel.h): the third printer, for no
// machine at all. Needs nothing of LLVM.
#pragma once

#include "compiler/kernels/kernel_ir.h"
#include "vm/executable/portable_kernel.h"

namespace nimble::codegen {

// `f` must be well formed (kir::verify). The result passes exec::verify_portable for f's contract
// and gives the same status codes as native code (check_status.h). It is the kernel of one thread:
// `thread` is 0, `threads` 1, barriers vanish. Error(kUnsupported) for loops over a GPU's axes,
// and for a kernel whose unrolled code would exceed the form's limits.
exec::PortableKernel to_portable(const kir::Function& f);

}  // namespace nimble::codegen
