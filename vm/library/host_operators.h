// Operators that run as plain C++ on the host.
#pragma once

#include <vector>

#include "vm/library/registry.h"

namespace nimble::rt {

std::vector<LibraryKernel> host_operators();

}  // namespace nimble::rt
