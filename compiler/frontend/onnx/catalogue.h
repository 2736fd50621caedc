// What of ONNX nimble imports: every operator and version, with the reason where it does not.
#pragma once

#include <string>
#include <vector>

#include "compiler/frontend/onnx/operators.h"

namespace nimble::frontend::onnx {

inline constexpr int64_t kOldestOpset = 6, kNewestOpset = 28;  // of the standard domain

struct CatalogueRow {
  std::string domain, name;
  std::vector<int64_t> versions;  // the operator sets that (re)defined it, ascending
  std::string note;               // what is left out, or why there is no rule
};

const std::vector<CatalogueRow>& catalogue();
// Why there is no rule for an operator, in a clause.
std::string missing_reason(const std::string& domain, const std::string& name);

}  // namespace nimble::frontend::onnx
