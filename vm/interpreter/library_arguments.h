// The arguments of a bound call as a kernel of the library sees them.
#pragma once

#include <span>

#include "vm/interpreter/kernel.h"

namespace nimble::rt {

// Its tensors, of the contract's shapes, where the frame has them.
std::span<const LibraryTensor> library_tensors(const PreparedKernel& kernel,
                                               std::span<const Value> arguments,
                                               KernelFrame* frame);

// Operators of the library assume that what they write is nobody else's. (Native code is trusted to
// stand what the compiler plans, and portable code checks each access.) Error(kFatal) where a
// tensor that is written shares a byte with another.
void refuse_overlaps(const PreparedKernel& kernel, std::span<const Value> arguments,
                     KernelFrame* frame);

}  // namespace nimble::rt
