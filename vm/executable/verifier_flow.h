// The data-flow part of the verifier: rules R5, R6, R7, R14, R15 and R21. Internal to verifier.cpp.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "vm/executable/executable.h"
#include "vm/executable/verifier.h"

namespace nimble::exec {

// What Invoke calls: a bytecode or a scalar function, by its common index.
struct Callee {
  const std::string* name;
  uint64_t parameters;
  uint64_t results;
  bool is_scalar;
};
std::optional<Callee> callee_of(const Executable& executable, int64_t index);

// Appends at most `limit` violations of `function`, whose instructions already keep the rules
// that they can be checked against one by one.
void check_flow(const Executable& executable, const BytecodeFunction& function, size_t limit,
                std::vector<Violation>* found);

}  // namespace nimble::exec
