// Where a library of NVIDIA's that is opened at run time may be.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace nimble {

// What dlopen is to be given, in this order: the file that the environment's `variable` names, or
// these names in the folder that it names; without it, where the system looks, then in the toolkit
// in /usr/local/cuda.
std::vector<std::string> library_files(const char* variable, std::span<const char* const> names);

}  // namespace nimble
