// Who wins, and by how much: what is said of the vendor's routine beside ours.
#include "db/store/vendor_standing.h"

#include <gmock/gmock.h>

#include <cmath>

namespace nimble::db {
namespace {

using testing::ElementsAre;

BothSides at(int64_t m, std::optional<double> vendor, std::optional<double> ours,
             bool failed = false) {
  return {{{"m", m}}, vendor, ours, failed};
}
std::string detail_of(const VendorStanding& s) {
  return R"({"trials":3,"vendor":)" + json_text(s) + "}";
}

TEST(VendorStanding, CountsWhereBothHaveATime) {
  const std::vector<BothSides> sizes = {
      at(1, 100, 80),                 // ours by 1.25
      at(2, 100, 200),                // the vendor by 2
      at(3, 100, 104.9),              // the vendor, within 5 %
      at(4, std::nullopt, 50),        // it was not there
      at(5, std::nullopt, 50, true),  // it was wrong
      at(6, 100, std::nullopt),       // none of ours was right
      at(7, 100, 100),                // nobody
  };
  const VendorStanding s = standing_of(sizes);
  EXPECT_EQ(s.of, 6u);
  EXPECT_EQ(s.sizes, 4u);
  EXPECT_EQ(s.failed, 1u);
  EXPECT_EQ(s.wins, 2u);
  EXPECT_NEAR(s.faster, std::sqrt(2 * 1.049), 1e-12);
  EXPECT_NEAR(s.slower, std::sqrt(1.25), 1e-12);
  EXPECT_NEAR(s.worst, 1, 1e-12);
  EXPECT_THAT(s.ours_behind, ElementsAre(Dims{{"m", 2}}));
  EXPECT_EQ(text_of(s), "2/4 of 6 by 1.45x, behind 1.12x");
}

TEST(VendorStanding, OfNothingItSaysNothing) {
  EXPECT_EQ(standing_of({}), VendorStanding{});
  EXPECT_EQ(text_of(VendorStanding{}), "-");
  EXPECT_EQ(sum_of({}), VendorStanding{});
  const std::vector<BothSides> never = {at(1, std::nullopt, 10)};
  EXPECT_EQ(text_of(standing_of(never)), "-");
  EXPECT_EQ(standing_of(never).of, 1u);
  const std::vector<BothSides> always = {at(1, 10, 20)};
  EXPECT_EQ(text_of(standing_of(always)), "1/1 by 2.00x");
  const std::vector<BothSides> behind = {at(1, 20, 10)};
  EXPECT_EQ(text_of(standing_of(behind)), "0/1 behind 2.00x");
}

TEST(VendorStanding, SeveralWorkloadsCountBySizes) {
  const std::vector<BothSides> a = {at(1, 10, 20), at(2, 10, 80), at(3, 10, 5)};
  const std::vector<BothSides> b = {at(1, 10, 20), at(2, std::nullopt, 1, true)};
  const VendorStanding sum = sum_of(std::vector{standing_of(a), standing_of(b)});
  EXPECT_EQ(sum.of, 5u);
  EXPECT_EQ(sum.sizes, 4u);
  EXPECT_EQ(sum.failed, 1u);
  EXPECT_EQ(sum.wins, 3u);
  EXPECT_NEAR(sum.faster, std::cbrt(2 * 8 * 2), 1e-9);
  EXPECT_NEAR(sum.slower, 2, 1e-12);
  EXPECT_NEAR(sum.worst, 7, 1e-12);
}

TEST(VendorStanding, IsReadAsItWasWritten) {
  const std::vector<BothSides> sizes = {at(1, 10, 20), at(2, 10, 9), at(3, std::nullopt, 9, true)};
  const VendorStanding s = standing_of(sizes);
  EXPECT_EQ(vendor_standing_of(detail_of(s)), s);
}

// A detail is any text, of anybody.
TEST(VendorStanding, WhatIsOfAnotherFormIsNone) {
  const std::string good = detail_of(standing_of(std::vector{at(1, 10, 20)}));
  ASSERT_TRUE(vendor_standing_of(good));
  for (const auto& [from, to] : {std::pair{R"("wins":1)", R"("wins":2)"},
                                 {R"("wins":1)", R"("wins":-1)"},
                                 {R"("wins":1)", R"("wins":1.5)"},
                                 {R"("of":1)", R"("of":0)"},
                                 {R"("of":1)", R"("of":99999999999999999)"},
                                 {R"("failed":0)", R"("failed":2)"},
                                 {R"("faster":2.0)", R"("faster":0)"},
                                 {R"("faster":2.0)", R"("faster":1e300)"},
                                 {R"("slower":1.0)", R"("slower":null)"},
                                 {R"("worst":1.0)", R"("worst":"much")"},
                                 {R"([{"m":1}])", R"([{"m":"1"}])"},
                                 {R"([{"m":1}])", "[1]"},
                                 {R"([{"m":1}])", "{}"}}) {
    std::string bad = good;
    const size_t place = bad.find(from);
    ASSERT_NE(place, std::string::npos) << from << " in " << good;
    bad.replace(place, std::string(from).size(), to);
    EXPECT_FALSE(vendor_standing_of(bad)) << bad;
  }
  for (const char* odd : {"", "{", "3", "[]", R"({"vendor":3})", R"({"vendor":{}})"})
    EXPECT_FALSE(vendor_standing_of(odd)) << odd;
}

}  // namespace
}  // namespace nimble::db
