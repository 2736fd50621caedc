// The fused group of a submitted task: read from a text that anybody may have written.
#pragma once

#include <string>
#include <vector>

#include "compiler/ir/expr.h"
#include "compiler/kernels/workload.h"

namespace nimble::tuner {

// The one function of `text`, typed as the compiler typed it within its model. There a group may
// rest on what was checked before it (that a length is at most a table's); inference of the group
// alone asserts such a thing, and here it counts as asserted: PossibleSizes tells at which sizes it
// holds. `passed` names the symbols that no parameter's dims bind and the caller passes. Throws
// Error, kCorrupt with `place`, for anything else than operators and tuples of types that agree.
ir::FunctionRef group_of(const std::string& text, const std::vector<std::string>& passed,
                         const std::string& place);

// Throws Error(kCorrupt) for a record that somebody made up, of one line whatever the problem is
// (a diagnostic of text IR shows its line in lines of its own).
[[noreturn]] void corrupt_submission(const std::string& place, const std::string& problem);

// The symbols that a workload's caller passes, sorted.
std::vector<std::string> passed_symbols(const kernels::Workload& workload);

}  // namespace nimble::tuner
