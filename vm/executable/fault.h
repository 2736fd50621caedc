// The names under which headers pass on what a verifier found. The faults themselves, with their
// rules and messages, are in verifier_rules.h: only what reports or prints one includes that, so
// that the wording of a message concerns few files.
#pragma once

#include <cstdint>
#include <string>

namespace nimble::exec {

enum class Fault : uint8_t;          // rows of VerifierRules.def
enum class PortableFault : uint8_t;  // rows of PortableRules.def

// One thing that is wrong, without its place.
struct Finding {
  Fault fault{};
  std::string message;
};

}  // namespace nimble::exec
