// Decides whether an executable is safe to interpret. It shares nothing with the compiler: it
// sees only the executable and the rules of verifier.cpp, which lists them by number.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "vm/executable/executable.h"

namespace nimble::exec {

struct Violation {
  std::string where;  // "main@12", "kernel dense", "constant w0", "entry main"
  int rule = 0;       // 1 … kRuleCount
  std::string message;
};

inline constexpr int kRuleCount = 23;
// What rule R<number> asks, one sentence.
std::string_view rule_sentence(int number);

// All violations in the order of functions and instructions, at most `limit`. Empty: the
// interpreter may run it, given the checks that it makes itself (verifier.cpp lists them).
std::vector<Violation> find_violations(const Executable& executable, size_t limit = 100);

// Throws Error(kCorrupt) for the first violation; `place` is usually the file.
void verify(const Executable& executable, const std::string& place = "executable");

}  // namespace nimble::exec
