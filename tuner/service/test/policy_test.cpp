// Classes of measuring policy: what the compiler names is what the worker measures by.
#include <gmock/gmock.h>

#include <set>

#include "compiler/tuned/policy_class.h"
#include "tuner/measure/protocol.h"
#include "vm/base/error.h"

namespace nimble::tuner {
namespace {

TEST(PolicyClass, HasFixedParameters) {
  std::set<std::string> texts;
  for (const std::string& name : tuned::policy_classes()) {
    const Policy p = Policy::of_class(name);
    EXPECT_EQ(p.name, name);
    texts.insert(p.text());
    // What another class left behind does not show.
    Policy other = Policy::of_class("cold");
    other.choose_class(name);
    EXPECT_EQ(other, p);
  }
  EXPECT_EQ(texts.size(), tuned::policy_classes().size());
  EXPECT_EQ(Policy::of_class(tuned::kPolicyWarm), Policy());
  EXPECT_TRUE(Policy::of_class(tuned::kPolicyCold).cold);
  EXPECT_EQ(Policy::of_class(tuned::kPolicyCached).rotate_bytes, 0);
  EXPECT_THROW(Policy::of_class("lukewarm"), Error);
}

TEST(PolicyClass, IsImpliedByAModelsConstants) {
  constexpr int64_t kMiB = 1 << 20;
  EXPECT_EQ(tuned::implied_policy(0, 32 * kMiB), tuned::kPolicyCached);
  EXPECT_EQ(tuned::implied_policy(kMiB, 32 * kMiB), tuned::kPolicyCached);
  EXPECT_EQ(tuned::implied_policy(kMiB + 1, 32 * kMiB), tuned::kPolicyWarm);
  EXPECT_EQ(tuned::implied_policy(32 * kMiB, 32 * kMiB), tuned::kPolicyWarm);
  EXPECT_EQ(tuned::implied_policy(32 * kMiB + 1, 32 * kMiB), tuned::kPolicyWeightsCold);
  EXPECT_EQ(tuned::implied_policy(340 * kMiB, 0), tuned::kPolicyWarm);  // nobody knows the cache
}

TEST(PolicyClass, IsStoodInForByTheNearest) {
  using testing::ElementsAre;
  EXPECT_THAT(tuned::policy_fallbacks("cached"), ElementsAre("warm", "weights-cold", "cold"));
  EXPECT_THAT(tuned::policy_fallbacks("warm"), ElementsAre("weights-cold", "cached", "cold"));
  EXPECT_THAT(tuned::policy_fallbacks("weights-cold"), ElementsAre("cold", "warm", "cached"));
  EXPECT_THAT(tuned::policy_fallbacks("cold"), ElementsAre("weights-cold", "warm", "cached"));
}

// The rotation leaves every cache, and only that of weights.
TEST(PolicyClass, OfColdWeightsLeavesTheRestWarm) {
  const Policy p = Policy::of_class(tuned::kPolicyWeightsCold);
  EXPECT_FALSE(p.cold);
  EXPECT_GT(p.rotate_bytes, Policy::of_class(tuned::kPolicyWarm).rotate_bytes);
  EXPECT_EQ(p.rotate_bytes, Policy::of_class(tuned::kPolicyCold).rotate_bytes);
}

}  // namespace
}  // namespace nimble::tuner
