// Dispatch trees as JSON, as the tuning database keeps them:
//   {"nodes":[{"feature":"symbol","a":"s0","op":"<=","value":16,"yes":1,"no":2},{"leaf":0},…]}
#pragma once

#include <string>
#include <vector>

#include "vm/executable/dispatch.h"

namespace nimble::exec {

std::string tree_to_json(const DispatchTree& tree, const std::vector<std::string>& symbols);
// The inverse. Error(kCorrupt) for what is not of that form or names another symbol.
DispatchTree tree_from_json(const std::string& json, const std::vector<std::string>& symbols);

}  // namespace nimble::exec
