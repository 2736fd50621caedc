// "Did you mean …"
#include "vm/base/edit_distance.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace nimble {
namespace {

TEST(EditDistance, ASwapOfNeighboursIsOneSlip) {
  EXPECT_EQ(edit_distance("copmile", "compile"), 1u);
  EXPECT_EQ(edit_distance("", "abc"), 3u);
  EXPECT_EQ(edit_distance("same", "same"), 0u);
}

TEST(NearestName, IsAtMostTwoSlipsAway) {
  const std::vector<std::string> names = {"input_ids", "attention_mask"};
  EXPECT_EQ(nearest_name("inputid", names), "input_ids");
  EXPECT_EQ(nearest_name("atention_masks", names), "attention_mask");
  EXPECT_EQ(nearest_name("atention_msaks2", names), "") << "three";
  EXPECT_EQ(nearest_name("zzzzzzzz", names), "");
  EXPECT_EQ(nearest_name("", names), "");
}

// Of a short word two slips leave nothing.
TEST(NearestName, HasHalfOfItsLettersInCommon) {
  const std::vector<std::string> names = {"x", "m", "run"};
  EXPECT_EQ(nearest_name("mm", names), "m");
  EXPECT_EQ(nearest_name("y", names), "");
  EXPECT_EQ(nearest_name("rnu", names), "run");
  EXPECT_EQ(nearest_name("cup", names), "");
}

TEST(NearestName, APrefixSufficesWhereItIsAskedFor) {
  const std::vector<std::string> names = {"--signature", "--shape"};
  EXPECT_EQ(nearest_name("--sig", names), "");
  EXPECT_EQ(nearest_name("--sig", names, 4), "--signature");
}

}  // namespace
}  // namespace nimble
