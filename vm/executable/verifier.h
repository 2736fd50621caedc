// Decides whether an executable is safe to interpret. It shares nothing with the compiler: it
// sees only the executable and the rules of VerifierRules.def.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "vm/executable/executable.h"
#include "vm/executable/verifier_rules.h"

namespace nimble::exec {

struct Violation {
  std::string where;  // "main@12", "kernel dense", "constant w0", "entry main"
  Fault fault{};
  int rule = 0;  // the fault's: 1 … kRuleCount
  std::string message;
};
inline Violation violation(std::string where, Finding f) {
  return {std::move(where), f.fault, info_of(f.fault).rule, std::move(f.message)};
}

// Steps of rule R24 for each byte of bytecode where nobody says how many a file may take. A
// compiled model takes less than one for each byte.
inline constexpr uint64_t kVerificationStepsPerByte = 16;

// What verification took.
struct VerificationEffort {
  uint64_t steps = 0;
  uint64_t budget = 0;  // steps that it might take
};

// All violations in the order of functions and instructions, at most `limit`. Empty: the
// interpreter may run it, given the checks that it makes itself (verifier.cpp lists them). `steps`
// bounds the work (rule R24); 0: kVerificationStepsPerByte for each byte of bytecode.
std::vector<Violation> find_violations(const Executable& executable, size_t limit = 100,
                                       uint64_t steps = 0, VerificationEffort* effort = nullptr);

// Throws Error(kCorrupt) for the first violation, Error(kExhausted) if `steps` are too few for it;
// `place` is usually the file.
void verify(const Executable& executable, const std::string& place = "executable",
            uint64_t steps = 0);

}  // namespace nimble::exec
