// From the in-memory form to the file of format.h. Equal executables give equal bytes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "vm/executable/executable.h"

namespace nimble::exec {

std::vector<uint8_t> serialize(const Executable& executable);

// Atomic: `path` holds the old file until the new one is whole and on disk. Constants and images
// are written from where they are, without a copy. Errors: kIo, kNotFound (no such folder).
void write(const Executable& executable, const std::string& path);

}  // namespace nimble::exec
