// nimble db diff: what became faster or slower.
#pragma once

#include "db/store/compare.h"
#include "vm/arguments/table.h"

namespace nimble::db {

enum class DiffBy { kCampaign, kHardware, kToolchain };

struct DiffOptions {
  // Identifiers or their beginnings; of hardware part of a name, of toolchains the compiler's
  // version ("19.1") or nimble's revision, too.
  std::string a, b;
  DiffBy by = DiffBy::kCampaign;
  std::string workload;  // hash, a prefix of it, or part of the text of one; empty: all
  double smallest = 0.02;
};

struct Diff {
  Table rows;
  std::string summary;  // one line
  bool regressed = false;
};

// Error(kNotFound) if a side is not known, or nothing is common to both.
Diff show_diff(Store&, const DiffOptions&);

}  // namespace nimble::db
