// Generated code as text in the database, for those who ask why a kernel is fast. Of what a
// campaign ends with alone, since it has thousands of candidates; each costs as much as compiling
// it anew.
#pragma once

#include <string>
#include <vector>

#include "tuner/service/backend.h"

namespace nimble::tuner {

struct WantedCode {
  std::string code_hash;
  tuned::Candidate candidate;
};

// Stores the texts of these, made by as many threads as given; those that are there already are
// left out.
void keep_code(db::Store& store, Backend& backend, const kernels::Workload& workload,
               const kernels::TargetInfo& target, const std::vector<WantedCode>& wanted,
               size_t threads);

}  // namespace nimble::tuner
