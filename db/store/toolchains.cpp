#include "db/store/toolchains.h"

#include <algorithm>
#include <vector>

namespace nimble::db {
namespace {

// Numbers of a version, each as a number: "19.1.7" is older than "19.1.10".
std::vector<int64_t> numbers_of(const std::string& version) {
  std::vector<int64_t> numbers(1, 0);
  for (char c : version) {
    if (c >= '0' && c <= '9' && numbers.back() < 1'000'000'000)
      numbers.back() = numbers.back() * 10 + (c - '0');
    else if (c == '.')
      numbers.push_back(0);
  }
  return numbers;
}

}  // namespace

ToolchainAge age_of(const Toolchain& own, std::span<const Toolchain> known) {
  if (std::ranges::any_of(
          known, [&](const Toolchain& t) { return t.codegen_version > own.codegen_version; }))
    return ToolchainAge::kOlderCodegen;
  const std::vector<int64_t> version = numbers_of(own.version);
  const bool older = std::ranges::any_of(known, [&](const Toolchain& t) {
    return t.compiler == own.compiler && t.codegen_version == own.codegen_version &&
           numbers_of(t.version) > version;
  });
  return older ? ToolchainAge::kOlderCompiler : ToolchainAge::kNewest;
}

}  // namespace nimble::db
