// What the assembler says of a kernel, in the log of its compilation (ptxas -v).
#pragma once

#include <map>
#include <string>

#include "compiler/codegen/cuda/cuda.h"

namespace nimble::codegen {

// By the kernel's name. A kernel may have functions of its own beside it, of which the assembler
// tells one by one: the most that any of them takes counts.
std::map<std::string, CudaResources> resources_of(const std::string& log);

// What it says of a kernel where it waits behind each product of a group of warps (C7510 and its
// neighbours), or somewhere we did not (C7517), since it cannot see that nobody touches the sums
// meanwhile, or lacks registers for them; "" if nothing. Such a kernel is right, and has lost what
// such products are for.
std::string serialized_products(const std::string& log);

}  // namespace nimble::codegen
