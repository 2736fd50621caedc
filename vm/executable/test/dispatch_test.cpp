#include "vm/executable/dispatch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "vm/executable/dispatch_text.h"

namespace nimble::exec {
namespace {

using ::testing::HasSubstr;
using Feature = DispatchFeature;
using Cond = DispatchNode::Test;

DispatchNode leaf(uint32_t implementation) {
  return {Cond::kLeaf, {}, 0, implementation, 0};
}
DispatchNode node(Cond test, Feature f, int64_t threshold, uint32_t yes, uint32_t no) {
  return {test, f, threshold, yes, no};
}

uint32_t pick(Cond test, Feature f, int64_t threshold, std::vector<int64_t> symbols,
              int32_t threads = 1) {
  const DispatchTree tree{{node(test, f, threshold, 1, 2), leaf(1), leaf(0)}};
  EXPECT_EQ(tree.verify(2, 2), "");
  return tree.choose(symbols, threads);
}

TEST(DispatchTest, Features) {
  using Kind = Feature::Kind;
  EXPECT_EQ(pick(Cond::kLessEqual, {Kind::kSymbol, 1}, 5, {0, 5}), 1u);
  EXPECT_EQ(pick(Cond::kLessEqual, {Kind::kSymbol, 1}, 5, {0, 6}), 0u);
  EXPECT_EQ(pick(Cond::kEqual, {Kind::kSymbol, 0}, 5, {5, 0}), 1u);
  EXPECT_EQ(pick(Cond::kEqual, {Kind::kSymbol, 0}, 5, {4, 0}), 0u);
  EXPECT_EQ(pick(Cond::kEqual, {Kind::kCeilDiv, 0, 0, 8}, 2, {9, 0}), 1u);
  EXPECT_EQ(pick(Cond::kEqual, {Kind::kCeilDiv, 0, 0, 8}, 2, {16, 0}), 1u);
  EXPECT_EQ(pick(Cond::kEqual, {Kind::kCeilDiv, 0, 0, 8}, 2, {17, 0}), 0u);
  EXPECT_EQ(pick(Cond::kEqual, {Kind::kCeilDiv, 0, 0, 8}, INT64_MAX / 8 + 1, {INT64_MAX, 0}), 1u);
  EXPECT_EQ(pick(Cond::kEqual, {Kind::kMod, 0, 0, 8}, 5, {37, 0}), 1u);
  EXPECT_EQ(pick(Cond::kEqual, {Kind::kProduct, 0, 1}, 12, {3, 4}), 1u);
  EXPECT_EQ(pick(Cond::kEqual, {Kind::kProduct, 0, 1}, INT64_MAX, {INT64_MAX, 4}), 1u);
  EXPECT_EQ(pick(Cond::kLessEqual, {Kind::kThreads}, 2, {0, 0}, 2), 1u);
  EXPECT_EQ(pick(Cond::kLessEqual, {Kind::kThreads}, 2, {0, 0}, 3), 0u);
}

TEST(DispatchTest, MalformedTrees) {
  auto bad = [](DispatchTree t) { return t.verify(1, 2); };
  using Kind = Feature::Kind;
  EXPECT_THAT(bad({}), HasSubstr("empty"));
  EXPECT_THAT(bad({{leaf(2)}}), HasSubstr("implementation 2 of 2"));
  EXPECT_THAT(bad({{node(Cond::kEqual, {}, 0, 0, 1), leaf(0)}}), HasSubstr("goes to node 0"));
  EXPECT_THAT(bad({{node(Cond::kEqual, {}, 0, 1, 2), leaf(0)}}), HasSubstr("goes to node 2 of 2"));
  EXPECT_THAT(bad({{node(Cond::kEqual, {Kind::kSymbol, 1}, 0, 1, 1), leaf(0)}}),
              HasSubstr("symbol 1 of 1"));
  EXPECT_THAT(bad({{node(Cond::kEqual, {Kind::kProduct, 0, 1}, 0, 1, 1), leaf(0)}}),
              HasSubstr("symbol 1 of 1"));
  EXPECT_THAT(bad({{node(Cond::kEqual, {Kind::kMod, 0, 0, 0}, 0, 1, 1), leaf(0)}}),
              HasSubstr("divides by 0"));
  EXPECT_THAT(bad({{node(Cond::kEqual, {Kind::kCeilDiv, 0, 0, 0}, 0, 1, 1), leaf(0)}}),
              HasSubstr("divides by 0"));
  constexpr auto kNoKind = static_cast<Kind>(static_cast<int>(Kind::kThreads) + 1);
  EXPECT_THAT(bad({{node(Cond::kEqual, {kNoKind}, 0, 1, 1), leaf(0)}}),
              HasSubstr("unknown feature"));
  constexpr auto kNoTest = static_cast<Cond>(static_cast<int>(Cond::kEqual) + 1);
  EXPECT_THAT(bad({{node(kNoTest, {}, 0, 1, 1), leaf(0)}}), HasSubstr("unknown test"));
  // Only those two divide.
  for (const int64_t divisor : {INT64_MIN, int64_t{-1}, int64_t{0}, int64_t{1}}) {
    for (const Kind kind : {Kind::kSymbol, Kind::kProduct, Kind::kThreads})
      EXPECT_EQ(bad({{node(Cond::kEqual, {kind, 0, 0, divisor}, 0, 1, 1), leaf(0)}}), "");
    for (const Kind kind : {Kind::kCeilDiv, Kind::kMod})
      EXPECT_EQ(bad({{node(Cond::kEqual, {kind, 0, 0, divisor}, 0, 1, 1), leaf(0)}}).empty(),
                divisor == 1);
  }
  // Symbols that a feature does not read may be any.
  for (const Kind kind : {Kind::kSymbol, Kind::kCeilDiv, Kind::kMod})
    EXPECT_EQ(bad({{node(Cond::kEqual, {kind, 0, 9, 1}, 0, 1, 1), leaf(0)}}), "");
  EXPECT_EQ(bad({{node(Cond::kEqual, {Kind::kThreads, 9, 9, 1}, 0, 1, 1), leaf(0)}}), "");
  EXPECT_THAT(bad({{node(static_cast<Cond>(9), {}, 0, 1, 1), leaf(0)}}), HasSubstr("unknown test"));
  EXPECT_THAT(bad({{node(Cond::kEqual, {static_cast<Kind>(9)}, 0, 1, 1), leaf(0)}}),
              HasSubstr("unknown feature"));
}

TEST(DispatchTest, GraftPutsTreesInPlaceOfLeaves) {
  // outer: s0 <= 10 -> a, else (s0 <= 20 -> b, else a again)
  const DispatchTree outer{{node(Cond::kLessEqual, {}, 10, 1, 2), leaf(0),
                            node(Cond::kLessEqual, {}, 20, 3, 4), leaf(1), leaf(0)}};
  // a: even -> 0, odd -> 1; b: always its only implementation.
  const Feature even{Feature::Kind::kMod, 0, 0, 2};
  const DispatchTree a{{node(Cond::kEqual, even, 0, 1, 2), leaf(0), leaf(1)}};
  const DispatchTree trees[] = {a, DispatchTree::single(0)};
  const uint32_t base[] = {0, 2};
  const DispatchTree whole = outer.graft(trees, base);
  ASSERT_EQ(whole.verify(1, 3), "");
  for (int64_t s = 0; s < 40; ++s) {
    const uint32_t expected = s > 10 && s <= 20 ? 2u : static_cast<uint32_t>(s % 2);
    EXPECT_EQ(whole.choose(std::vector<int64_t>{s}, 1), expected) << s;
  }
}

TEST(DispatchTest, FeaturesAsTextAndBack) {
  const std::string names[] = {"s0", "s1"};
  using Kind = Feature::Kind;
  for (const Feature& f : {Feature{Kind::kSymbol, 1, 0, 1}, Feature{Kind::kCeilDiv, 0, 0, 8},
                           Feature{Kind::kMod, 1, 0, 32}, Feature{Kind::kProduct, 0, 1, 1},
                           Feature{Kind::kThreads, 0, 0, 1}}) {
    const auto read = feature_from_text(text_of(f, names), names);
    ASSERT_TRUE(read) << text_of(f, names);
    EXPECT_EQ(*read, f) << text_of(f, names);
  }
  for (const char* bad : {"", "s2", "s0*", "*s1", "s0*s2", "ceildiv(s0)", "ceildiv(s0,)",
                          "ceildiv(s0,0)", "ceildiv(s0,-8)", "ceildiv(s0,8", "mod(s2,8)",
                          "mod(s0,99999999999999999999)", "s0 ", "s0*s1*s0"})
    EXPECT_FALSE(feature_from_text(bad, names)) << bad;
}

TEST(DispatchTest, Text) {
  const DispatchTree tree{
      {node(Cond::kLessEqual, {Feature::Kind::kCeilDiv, 0, 0, 8}, 3, 1, 2), leaf(0), leaf(1)}};
  const std::string names[] = {"m"};
  EXPECT_EQ(tree.str(names), "if ceil(m / 8) <= 3\n  -> 0\nelse\n  -> 1\n");
  // A symbol without a name, or with one that would make the text long, is told by its number.
  const std::string unnamed = "if ceil(s0 / 8) <= 3\n  -> 0\nelse\n  -> 1\n";
  EXPECT_EQ(tree.str({}), unnamed);
  const std::string longest[] = {std::string(1000, 'n')}, longer[] = {std::string(1001, 'n')};
  EXPECT_EQ(tree.str(longest), "if ceil(" + longest[0] + " / 8) <= 3\n  -> 0\nelse\n  -> 1\n");
  EXPECT_EQ(tree.str(longer), unnamed);
}

}  // namespace
}  // namespace nimble::exec
