// Whether the cases of a match cover every value, and whether each can be reached.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "compiler/ir/expr.h"

namespace nimble::ir {

struct MatchFault {
  std::optional<std::string> uncovered;  // a value without a case: "Node(_, Leaf(_))"
  std::vector<size_t> unreachable;       // cases that earlier ones leave nothing for
  bool too_complex = false;              // the search gave up: the rest means nothing
};

// The patterns must fit a value of type `t` (constructors exist, field counts agree).
MatchFault check_match(const Module& m, const Type& t, const std::vector<MatchCase>& cases);

}  // namespace nimble::ir
