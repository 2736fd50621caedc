// What `nimble explain --format json` tells of the kernels of an executable file: which one ran for
// which operators at a shape, and which record of a tuning database decided.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "db/store/records.h"

namespace nimble::gui {

struct ExplainedKernel {
  std::string kernel, operators, implementation, config;
  db::Dims symbols;  // of the kernel's contract, at the shape
  int64_t calls = 0;
  std::vector<std::string> path;  // decisions in the file's dispatch tree
  std::string summary;            // of the evidence, for people
  db::Uuid table;                 // that decided; empty: none
  int64_t version = 0;            // of the table
  std::string range;              // JSON, of the table's entry; empty: unknown
  db::Uuid override_uuid;         // that decided instead of the table; empty: none
  db::Uuid measurement;           // that the entry rests on; empty: none
};

// Throws Error(kCorrupt) for what is no such answer. What the file's provenance says is anybody's:
// parts of another form are left out.
std::vector<ExplainedKernel> explained_from_json(const std::string& json);

// An operator of an executable file, from which "Why this kernel?" begins.
struct FileOperator {
  std::string file, digest;  // BLAKE2b-256
  ExplainedKernel kernel;
  std::string problem;  // why the open database tells no more; empty: it does
};

}  // namespace nimble::gui
