// Operators that run as plain C++ on the host.
#pragma once

#include <vector>

#include "vm/library/registry.h"

namespace nimble::rt {

std::vector<LibraryKernel> host_operators();       // copies
std::vector<LibraryKernel> selection_operators();  // what counts and selects by value
std::vector<LibraryKernel> ordering_operators();   // what sorts
std::vector<LibraryKernel> linearise_operators();  // what numbers the parts of data-type values
std::vector<LibraryKernel> scatter_operators();    // what writes at indices

}  // namespace nimble::rt
