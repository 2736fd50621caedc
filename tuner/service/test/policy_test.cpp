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
  EXPECT_EQ(texts.size(), 3u);
  EXPECT_EQ(Policy::of_class(tuned::kPolicyWarm), Policy());
  EXPECT_TRUE(Policy::of_class(tuned::kPolicyCold).cold);
  EXPECT_EQ(Policy::of_class(tuned::kPolicyCached).rotate_bytes, 0);
  EXPECT_THROW(Policy::of_class("lukewarm"), Error);
}

TEST(PolicyClass, IsImpliedByAModelsConstants) {
  EXPECT_EQ(tuned::implied_policy(0), tuned::kPolicyCached);
  EXPECT_EQ(tuned::implied_policy(1 << 20), tuned::kPolicyCached);
  EXPECT_EQ(tuned::implied_policy((1 << 20) + 1), tuned::kPolicyWarm);
  for (const std::string& name : tuned::policy_classes()) {
    std::vector<std::string> all = tuned::policy_fallbacks(name);
    EXPECT_THAT(all, testing::Not(testing::Contains(name)));
    all.push_back(name);
    EXPECT_THAT(all, testing::UnorderedElementsAreArray(tuned::policy_classes()));
  }
}

}  // namespace
}  // namespace nimble::tuner
