// Which sizes and constants a kernel's routines are made ready for.
#include "vm/interpreter/exact_entries.h"

#include <gmock/gmock.h>

#include "vm/executable/assembler.h"

namespace nimble::rt {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Shapes = std::vector<std::vector<int64_t>>;

// The tree of a kernel with so many symbols and implementations.
exec::DispatchTree tree(const std::string& symbols, int implementations, const std::string& text) {
  std::string list, arguments;
  for (int i = 0; i < implementations; ++i) list += " host \"host.copy\"";
  for (size_t i = 0; i * 2 < symbols.size(); ++i)
    arguments += fmt::format(" scalar {}", symbols[2 * i]);
  return exec::assemble(fmt::format("kernel \"k\" {{ symbols {} {} out i64 ([1]) scratch [0] "
                                    "dispatch {{ {} }} {} }}",
                                    symbols, arguments, text, list))
      .kernels[0]
      .dispatch;
}

Shapes sizes_of(const exec::DispatchTree& t, size_t symbols, uint32_t implementation,
                int32_t threads = 2) {
  Shapes out;
  for (const ExactEntry& e : exact_entries(t, symbols, threads))
    if (e.implementation == implementation) out.push_back(e.symbols);
  std::sort(out.begin(), out.end());
  return out;
}

TEST(ExactEntries, AreLeavesThatOneSizeAloneReaches) {
  const auto t = tree("m", 3, R"(
    0: m == 37 ? 1 : 2
    1: 1
    2: m <= 64 ? 3 : 4
    3: 0
    4: m <= 65 ? 5 : 6
    5: 2
    6: 1)");
  EXPECT_EQ(sizes_of(t, 1, 1), (Shapes{{37}}));
  EXPECT_EQ(sizes_of(t, 1, 2), (Shapes{{65}}));  // above 64, and 65 at most
  EXPECT_THAT(sizes_of(t, 1, 0), IsEmpty());
}

TEST(ExactEntries, EachSymbolIsAskedFor) {
  const auto t = tree("m n", 2, R"(
    0: m == 8 ? 1 : 2
    1: n == 3 ? 3 : 4
    2: 1
    3: 1
    4: 1)");
  EXPECT_EQ(sizes_of(t, 2, 1), (Shapes{{8, 3}}));
}

TEST(ExactEntries, ThreadsAndOtherFeaturesAreAskedOfTheTree) {
  const auto t = tree("m", 2, R"(
    0: threads <= 1 ? 1 : 2
    1: m == 5 ? 3 : 4
    2: m == 6 ? 5 : 6
    3: 1
    4: 0
    5: mod(m, 4) == 2 ? 7 : 8
    6: 0
    7: 1
    8: 0)");
  EXPECT_EQ(sizes_of(t, 1, 1, 1), (Shapes{{5}}));
  EXPECT_EQ(sizes_of(t, 1, 1, 4), (Shapes{{6}}));
  // The way by mod(6, 4) != 2 is none.
  EXPECT_THAT(sizes_of(t, 1, 0, 4), IsEmpty());
}

TEST(ExactEntries, WithoutSymbolsTheTreeHasOneSize) {
  EXPECT_EQ(sizes_of(exec::DispatchTree::single(0), 0, 0), (Shapes{{}}));
  EXPECT_THAT(exact_entries(exec::DispatchTree::single(0), 1, 2), IsEmpty());
}

TEST(ExactEntries, TreesOverVeryManySymbolsAreLeft) {
  // As deep as there are symbols, each of which is asked for its size.
  const auto sizes = [](size_t symbols) {
    exec::DispatchTree t;
    for (uint32_t i = 0; i < symbols; ++i)
      t.nodes.push_back({exec::DispatchNode::Test::kEqual,
                         {exec::DispatchFeature::Kind::kSymbol, i, 0, 1},
                         3,
                         i + 1,
                         static_cast<uint32_t>(symbols) + 1});
    t.nodes.push_back({exec::DispatchNode::Test::kLeaf, {}, 0, 0, 0});
    t.nodes.push_back({exec::DispatchNode::Test::kLeaf, {}, 0, 1, 0});
    return exact_entries(t, symbols, 1).size();
  };
  EXPECT_EQ(sizes(64), 1u);
  EXPECT_EQ(sizes(65), 0u);
  EXPECT_EQ(sizes(100000), 0u);
}

std::vector<uint32_t> passed(const std::string& code, size_t argument = 1) {
  const exec::Executable e = exec::assemble(R"(
constant "a" f32 [1] { 1 }
constant "b" f32 [1] { 2 }
constant "c" f32 [1] { 3 }
kernel "other" { in f32 ([1]) in f32 ([1]) scratch [0] dispatch { 0: 0 } host "host.copy" }
kernel "k" { in f32 ([1]) in f32 ([1]) scratch [0] dispatch { 0: 0 } host "host.copy" }
function "main" 1 6 {
)" + code + "}\n");
  return constants_passed(e, 1, argument);
}

TEST(ExactEntries, ConstantsAreFoundWhereTheyWereLoaded) {
  EXPECT_THAT(passed(R"(
  LoadConst r1, c"b"
  InvokePacked k"k", (r0, r1)
  Ret r0
)"),
              ElementsAre(1));
  EXPECT_THAT(passed(R"(
  LoadConst r1, c"b"
  InvokePacked k"k", (r0, r1)
  Ret r0
)",
                     0),
              IsEmpty())
      << "it is a parameter";
}

// One register holds one matrix after the other.
TEST(ExactEntries, WhatIsInTheRegisterAtAnotherTimeIsNotPassed) {
  EXPECT_THAT(passed(R"(
  LoadConst r1, c"a"
  InvokePacked k"other", (r0, r1)
  LoadConst r1, c"b"
  Move r2, r1
  LoadConst r1, c"c"
  InvokePacked k"k", (r0, r2)
  InvokePacked k"other", (r0, r1)
  Ret r0
)"),
              ElementsAre(1));
}

TEST(ExactEntries, WaysThatMeetBringAllTheirConstants) {
  EXPECT_THAT(passed(R"(
  LoadConsti r3, 1
  If r3, @one, @two
one:
  LoadConst r1, c"c"
  Goto @join
two:
  LoadConst r1, c"a"
join:
  InvokePacked k"k", (r0, r1)
  If r3, @join, @end
end:
  Ret r0
)"),
              ElementsAre(0, 2));
}

}  // namespace
}  // namespace nimble::rt
