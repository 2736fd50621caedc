// Which functions of a module callers from outside may run.
#pragma once

#include <string>

#include "compiler/ir/expr.h"

namespace nimble::ir {

// An entry function: @main, and every function with a signature.
inline bool is_entry(const Module& m, const std::string& name) {
  return name == "main" || m.signatures.count(name) > 0;
}

}  // namespace nimble::ir
