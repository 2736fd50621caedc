#include "vm/tools/dim_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nimble {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(DimText, GivesExtents) {
  const std::map<std::string, int64_t> at = {{"n", 7}, {"b.1", 3}, {"odd name", 2}, {"?", 9}};
  const auto extent = [&](const std::string& text) { return extent_of_dim(text, at); };
  EXPECT_EQ(extent("n"), 7);
  EXPECT_EQ(extent("n + 1"), 8);
  EXPECT_EQ(extent("2*n*b.1 - 3*`odd name`"), 36);
  EXPECT_EQ(extent("-n + 8"), 1);
  EXPECT_EQ(extent("n - (b.1 - 1)"), 5);
  EXPECT_EQ(extent("floordiv(n + 1, b.1)"), 2);
  EXPECT_EQ(extent("floordiv(b.1 - n, 3)"), -2);
  EXPECT_EQ(extent("mod(b.1 - n, 3)"), 2);
  EXPECT_EQ(extent("ceildiv(n, 3) + min(n, b.1, 5) + max(1, n)"), 13);
  EXPECT_EQ(extent("broadcast(1, n)"), 7);
  EXPECT_EQ(extent("?"), 9);
}

TEST(DimText, GivesNothingWhereThereIsNoExtent) {
  const std::map<std::string, int64_t> at = {{"n", INT64_MAX}, {"z", 0}, {"m", 2}};
  for (const char* text : {"k", "n + 1", "2*n", "floordiv(m, z)", "mod(m, z)", "broadcast(m, 3)",
                           "m +", "m m", "sin(m)", "", "?", "(m", "`m", "9999999999999999999"})
    EXPECT_EQ(extent_of_dim(text, at), std::nullopt) << text;
  EXPECT_EQ(extent_of_dim(std::string(100000, '('), at), std::nullopt);
}

TEST(DimText, NamesTheSymbols) {
  EXPECT_THAT(symbols_of_dim("floordiv(n + k*n, 2) - `a b`"), ElementsAre("a b", "k", "n"));
  EXPECT_THAT(symbols_of_dim("8"), IsEmpty());
  EXPECT_THAT(symbols_of_dim("?"), ElementsAre("?"));
}

}  // namespace
}  // namespace nimble
