// From the file of format.h to the in-memory form. Nothing in the file is trusted: sizes are
// checked against the bytes that are there before anything is allocated, enumerations against
// their ranges. What the instructions mean is checked by verifier.h.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "vm/executable/executable.h"

namespace nimble::exec {

struct ReadOptions {
  // Without, damage inside constants or images goes unnoticed, and loading touches only those of
  // their pages that are used. All else is verified in any case.
  bool verify_checksums = true;
};

// Maps the file; constants and images view the mapping, which lives as long as any of them.
// Errors, each of one line with the path: kNotFound, kIo; kCorrupt: not a nimble executable,
// truncated (with the expected and the actual size), a checksum that does not match (with the
// section), malformed contents; kIncompatible: a newer format.
Executable read(const std::string& path, const ReadOptions& options = {});

// The same from memory. The bytes are copied once, to an aligned place that the result owns.
Executable deserialize(std::span<const uint8_t> bytes, const ReadOptions& options = {},
                       const std::string& place = "executable");

}  // namespace nimble::exec
