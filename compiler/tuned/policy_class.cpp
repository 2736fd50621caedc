#include "compiler/tuned/policy_class.h"

namespace nimble::tuned {
namespace {

// Half of a small second cache: the other half is for what is computed.
constexpr int64_t kCachedBytes = int64_t{1} << 20;

}  // namespace

const std::vector<std::string>& policy_classes() {
  static const std::vector<std::string> all = {kPolicyCached, kPolicyWarm, kPolicyCold};
  return all;
}

std::string implied_policy(int64_t constant_bytes) {
  return constant_bytes <= kCachedBytes ? kPolicyCached : kPolicyWarm;
}

std::vector<std::string> policy_fallbacks(const std::string& policy_class) {
  // Weights in some cache are nearer to weights in another one than to weights in memory.
  std::vector<std::string> out;
  for (const char* other : {kPolicyWarm, kPolicyCached, kPolicyCold})
    if (policy_class != other) out.emplace_back(other);
  return out;
}

}  // namespace nimble::tuned
