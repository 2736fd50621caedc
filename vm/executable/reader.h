// From the file of format.h to the in-memory form. Nothing in the file is trusted: sizes are
// checked against the bytes that are there before anything is allocated, enumerations against
// their ranges. What the instructions mean is checked by verifier.h.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "vm/executable/executable.h"
#include "vm/executable/load_limits.h"

namespace nimble::exec {

struct ReadOptions {
  // Whether those who may write to the file are trusted. A mapping changes with its file, after all
  // checks, and ends its readers (SIGBUS) if the file is cut: without trust the file is read into
  // memory, whole, before the first check, and with trust it is mapped.
  bool trust = false;
  LoadLimits limits{};
};

// Constants and images view the mapping or memory, which lives as long as any of them.
// Errors, each of one line with the path: kNotFound, kIo; kCorrupt: not a nimble executable,
// truncated (with the expected and the actual size), a checksum that does not match (with the
// section), malformed contents; kIncompatible: a newer format; kExhausted: beyond the limits.
Executable read(const std::string& path, const ReadOptions& options = {});

// The same from memory. The bytes are copied once, before they are checked, to an aligned place
// that the result owns: the caller's may change or go afterwards.
Executable deserialize(std::span<const uint8_t> bytes, const ReadOptions& options = {},
                       const std::string& place = "executable");

}  // namespace nimble::exec
