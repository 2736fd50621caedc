// cuDNN's convolutions as implementations of a GPU's kernels that dispatch may choose.
#pragma once

#include <vector>

#include "vm/library/registry.h"

namespace nimble::rt {

std::vector<LibraryKernel> cudnn_kernels();

}  // namespace nimble::rt
