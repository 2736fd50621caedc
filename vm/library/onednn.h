// oneDNN's matrix product as an implementation that dispatch may choose.
#pragma once

#include <vector>

#include "vm/library/registry.h"

namespace nimble::rt {

std::vector<LibraryKernel> onednn_kernels();

}  // namespace nimble::rt
