// What the prover counts of itself.
#pragma once

#include <cstdint>

namespace nimble::ir {

// How many questions of this thread to any DimContext became too dear and had the answer "unknown".
int64_t exhausted_questions();

}  // namespace nimble::ir
