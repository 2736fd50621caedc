#include "compiler/tuned/policy_class.h"

#include <algorithm>

namespace nimble::tuned {
namespace {

// Half of a small second cache: the other half is for what is computed.
constexpr int64_t kCachedBytes = int64_t{1} << 20;

}  // namespace

const std::vector<std::string>& policy_classes() {
  static const std::vector<std::string> all = {kPolicyCached, kPolicyWarm, kPolicyWeightsCold,
                                               kPolicyCold};
  return all;
}

std::string implied_policy(int64_t constant_bytes, int64_t last_cache_bytes) {
  if (constant_bytes <= kCachedBytes) return kPolicyCached;
  return last_cache_bytes > 0 && constant_bytes > last_cache_bytes ? kPolicyWeightsCold
                                                                   : kPolicyWarm;
}

std::vector<std::string> policy_fallbacks(const std::string& policy_class) {
  const std::vector<std::string>& all = policy_classes();
  const auto asked = std::find(all.begin(), all.end(), policy_class) - all.begin();
  std::vector<std::string> out;
  for (auto i = static_cast<std::ptrdiff_t>(all.size()); i-- > 0;)
    if (i != asked) out.push_back(all[static_cast<size_t>(i)]);
  std::stable_sort(out.begin(), out.end(), [&](const std::string& a, const std::string& b) {
    const auto distance = [&](const std::string& name) {
      const auto d = std::find(all.begin(), all.end(), name) - all.begin() - asked;
      return d < 0 ? -d : d;
    };
    return distance(a) < distance(b);
  });
  return out;
}

}  // namespace nimble::tuned
