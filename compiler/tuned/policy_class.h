// The classes of measuring policy, as compiler and tuner name them.
//
// A kernel's time depends on where its operands lie, and that is a property of the model around it.
// Records of different classes are never compared, and a class has fixed parameters
// (tuner/measure/protocol.h), so that two models share a record only where its time means the same
// to both:
//
//   cached  one copy of everything: the weights of a small model stay in the second cache
//   warm    weights rotate over 32 MiB: they come from the last cache, the rest is as it was left
//   cold    everything rotates over 512 MiB: all comes from memory, as in a program that does much
//           else between two runs
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace nimble::tuned {

inline constexpr char kPolicyCached[] = "cached";
inline constexpr char kPolicyWarm[] = "warm";
inline constexpr char kPolicyCold[] = "cold";

const std::vector<std::string>& policy_classes();
// What a model implies whose constants, each counted once, fill so many bytes: cached or warm. Cold
// is only asked for.
std::string implied_policy(int64_t constant_bytes);
// The other classes, the best substitute first.
std::vector<std::string> policy_fallbacks(const std::string& policy_class);

}  // namespace nimble::tuned
