// The classes of measuring policy, as compiler and tuner name them.
//
// A kernel's time depends on where its operands lie, and that is a property of the model around it.
// Records of different classes are never compared, and a class has fixed parameters
// (tuner/measure/protocol.h), so that two models share a record only where its time means the same
// to both:
//
//   cached  one copy of everything: the weights of a small model stay in the second cache
//   warm    weights rotate over 16 MiB: they come from the last cache, the rest is as it was left
//   weights-cold
//           weights rotate over 512 MiB: they come from memory, as those of a model that no cache
//           holds do at each run; the rest is as it was left
//   cold    everything rotates over 512 MiB: all comes from memory, as in a program that does much
//           else between two runs
//
// This is also the order by which one stands in for another: the nearest first, and of two equally
// near that one whose operands come from farther.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace nimble::tuned {

inline constexpr char kPolicyCached[] = "cached";
inline constexpr char kPolicyWarm[] = "warm";
inline constexpr char kPolicyWeightsCold[] = "weights-cold";
inline constexpr char kPolicyCold[] = "cold";

// In the order above.
const std::vector<std::string>& policy_classes();
// What a model implies whose constants, each counted once, fill `constant_bytes`, on a machine
// whose last cache holds `last_cache_bytes` (0: unknown): cached, warm or weights-cold. Cold is
// only asked for.
std::string implied_policy(int64_t constant_bytes, int64_t last_cache_bytes);
// The other classes, the best substitute first.
std::vector<std::string> policy_fallbacks(const std::string& policy_class);

}  // namespace nimble::tuned
