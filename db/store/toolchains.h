// How old the toolchain is that made a table, among those that a database knows.
//
// Not whether the table is stale (docs/records.md): code of an older toolchain may be the same,
// which only a compiler can tell, since it generates the code anew (nimble compile, nimble check
// --require-tuned).
#pragma once

#include <span>

#include "db/store/records.h"

namespace nimble::db {

enum class ToolchainAge {
  kNewest,
  kOlderCompiler,  // of the same compiler a later version is known
  kOlderCodegen,   // a later code generator of nimble is known: it refuses what the older one made
};
ToolchainAge age_of(const Toolchain& toolchain, std::span<const Toolchain> known);

}  // namespace nimble::db
