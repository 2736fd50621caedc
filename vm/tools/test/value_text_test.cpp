// Values as text: what is read, what is written, where faults are reported.
#include "vm/tools/value_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <memory>

#include "vm/base/file.h"
#include "vm/base/npy.h"
#include "vm/executable/assembler.h"
#include "vm/executable/writer.h"

namespace nimble {
namespace {

using ::testing::HasSubstr;

// Types 0: Tree, 1: f32 (n, 2), 2: (Tree, i64), 3: i64, 4: (Tree,), 5: u8 (), 6: (), 7: bool (3),
// 8: f16 (2), 9: u64 (), 10: f64 (2).
constexpr char kModel[] = R"ASM(
function "main" 1 1 { Ret r0 }
type "Tree" data { "Leaf" (1) "Node" (0, 0) "Nil" () }
type "Tensor[(n, 2), f32]" tensor f32 ["n", "2"] [-1, 2]
type "(Tree, i64)" tuple (0, 3)
type "i64" scalar i64
type "(Tree,)" tuple (0)
type "u8" tensor u8 [] []
type "()" tuple ()
type "Tensor[(3), bool]" tensor bool ["3"] [3]
type "Tensor[(2), f16]" tensor f16 ["2"] [2]
type "u64" tensor u64 [] []
type "Tensor[(2), f64]" tensor f64 ["2"] [2]
entry "main" f0 { input "t" type 0 output "same" type 0 }
)ASM";
constexpr int32_t kTree = 0, kRows = 1, kPair = 2, kI64 = 3, kSingle = 4, kU8 = 5, kUnit = 6,
                  kBools = 7, kHalves = 8, kU64 = 9, kDoubles = 10;

class ValueText : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = ::testing::TempDir() + "value-text." + std::to_string(::getpid());
    std::filesystem::create_directory(folder_);
    const std::string path = folder_ + "/model.nimble";
    exec::write(exec::assemble(kModel), path);
    types_ = api::Model(path).types();
    std::vector<float> words = {0, 1, 2, 3, 4, 5, 6, 7};
    write_npy(folder_ + "/words.npy", DType::kF32, std::vector<int64_t>{4, 2},
              {reinterpret_cast<const uint8_t*>(words.data()), 32});
    write_npy(folder_ + "/cube.npy", DType::kF32, std::vector<int64_t>{2, 2, 2},
              {reinterpret_cast<const uint8_t*>(words.data()), 32});
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  // Reads one value and writes it again.
  std::string again(const std::string& text, int32_t type) const {
    const auto values = parse_values(text, "text", folder_, types_, type);
    EXPECT_EQ(values.size(), 1u) << text;
    return values.empty() ? "" : text_of(values[0], types_, type);
  }
  std::string fault(const std::string& text, int32_t type = kTree) const {
    try {
      parse_values(text, "text", folder_, types_, type);
      return "no fault";
    } catch (const Error& e) {
      return e.what();
    }
  }
  std::string folder_;
  std::vector<api::Type> types_;
};

TEST_F(ValueText, ReadsWhatItWrites) {
  const auto same = [&](const std::string& text, int32_t type) {
    EXPECT_EQ(again(text, type), text);
  };
  same("Node(Leaf(f32[1, 2]{1.5, -0.1}), Nil)", kTree);
  same("Leaf(f32[0, 2]{})", kTree);
  same("(Nil, -9223372036854775808i64)", kPair);
  same("(Nil,)", kSingle);
  same("()", kUnit);
  same("255u8", kU8);
  same("18446744073709551615u64", kU64);
  same("bool[3]{true, false, true}", kBools);
  same("f16[2]{65504, -5.9604645e-08}", kHalves);
  same("f64[2]{0.1, 1e-300}", kDoubles);
  same("f32[3, 2]{inf, -inf, nan, 1e-45, 3.4028235e+38, -0}", kRows);
}

TEST_F(ValueText, ReadsShorterForms) {
  EXPECT_EQ(again("Leaf([[1, 2], [3.5, 4e1]])", kTree), "Leaf(f32[2, 2]{1, 2, 3.5, 40})");
  EXPECT_EQ(again("Leaf( [] )", kTree), "Leaf(f32[0, 2]{})");
  EXPECT_EQ(again("7", kI64), "7i64");
  EXPECT_EQ(again("[1, 0, true]", kBools), "bool[3]{true, false, true}");
  EXPECT_EQ(again("  // a comment (\n (Nil() , +3 ,)// end", kPair), "(Nil, 3i64)");
}

TEST_F(ValueText, ReadsArraysAndTheirRows) {
  EXPECT_EQ(again("@words.npy[1:3]", kRows), "f32[2, 2]{2, 3, 4, 5}");
  EXPECT_EQ(again("@words.npy[4:4]", kRows), "f32[0, 2]{}");
  EXPECT_EQ(again("@\"words.npy\"", kRows), "f32[4, 2]{0, 1, 2, 3, 4, 5, 6, 7}");
  EXPECT_EQ(again("@cube.npy[1]", kRows), "f32[2, 2]{4, 5, 6, 7}");
  EXPECT_THAT(fault("Leaf(@words.npy[5:6])"), HasSubstr("text:1:6: "));
  EXPECT_THAT(fault("Leaf(@words.npy[5:6])"), HasSubstr("has 4 rows"));
  EXPECT_THAT(fault("@words.npy[4]", kRows), HasSubstr("has 4 rows"));
  EXPECT_THAT(fault("@words.npy[3:2]", kRows), HasSubstr("has 4 rows"));
  EXPECT_THAT(fault("@words.npy[2]", kRows), HasSubstr("a shape of (2) where"));
  EXPECT_THAT(fault("@none.npy", kRows), HasSubstr("none.npy"));
  EXPECT_THAT(fault("@words.npy[x]", kRows), HasSubstr("\"x\" is not a whole number"));
  EXPECT_THAT(fault("@words.npy[0]", kDoubles), HasSubstr("f32 stands where"));
}

TEST_F(ValueText, KeepsSharedParts) {
  const std::string dag = "Node(#1=Node(#2=Leaf(f32[1, 2]{1, 2}), #2), #1)";
  EXPECT_EQ(again(dag, kTree), dag);
  // A hundred doublings are 2^100 leaves, but few parts.
  std::string text = "#0=Leaf([[1, 2]])";
  for (int i = 1; i <= 100; ++i) text = fmt::format("#{}=Node({}, #{})", i, text, i - 1);
  EXPECT_EQ(again(again(text, kTree), kTree), again(text, kTree));
  EXPECT_THAT(fault("Node(#1, Nil)"), HasSubstr("text:1:6: nothing before is labelled #1"));
  EXPECT_THAT(fault("Node(#1=Nil, #1=Nil)"), HasSubstr("label #1 has a value already"));
  EXPECT_THAT(fault("(#1=Nil, #1)", kPair), HasSubstr("#1 is a Tree where i64 belongs"));
  EXPECT_THAT(fault("#1=Nil #1"), HasSubstr("nothing before is labelled #1"));
}

TEST_F(ValueText, ReadsManyValuesAndDeepOnes) {
  EXPECT_EQ(parse_values("", "text", "", types_, kTree).size(), 0u);
  EXPECT_EQ(parse_values("Nil\nNil() Node(Nil,\n Nil)\n", "text", "", types_, kTree).size(), 3u);
  std::string deep = "Nil";
  for (int i = 0; i < 14; ++i) {
    std::string opened, closed;
    for (int k = 0; k < 10000; ++k) opened += "Node(Nil, ", closed += ")";
    deep = opened + deep + closed;
  }
  EXPECT_EQ(again(deep, kTree), deep);
  const auto tree = parse_values("Leaf([[1, 2], [3, 4]])", "text", "", types_, kTree);
  EXPECT_EQ(text_of(tree[0], types_, kTree, 3), "Leaf(f32[2, 2]{1, 2, 3, …})");
}

TEST_F(ValueText, SaysWhereAndWhatIsWrong) {
  EXPECT_THAT(fault("Node(Nil,\n  Lief([[1, 2]]))"),
              HasSubstr("text:2:3: \"Lief\" stands where Tree belongs; write "
                        "Leaf(Tensor[(n, 2), f32]) or Node(Tree, Tree) or Nil"));
  EXPECT_THAT(fault("Node(Nil)"), HasSubstr("text:1:9: after field 1 of Node stands \")\""));
  EXPECT_THAT(fault("Node(Nil, Nil, Nil)"), HasSubstr("stands \"Nil\""));
  EXPECT_THAT(fault("Node"), HasSubstr("Node has 2 fields"));
  EXPECT_THAT(fault("Node (Nil, Nil)"), HasSubstr("at once after it"));
  EXPECT_THAT(fault("Node(Nil,"), HasSubstr("the end of the text stands where Tree belongs"));
  EXPECT_THAT(fault("\nNode(Nil, Nil"), HasSubstr("the text ends inside Node of 2:1"));
  EXPECT_THAT(fault("Nil(Nil)"), HasSubstr("Nil"));
  EXPECT_THAT(fault("Leaf(Nil)"), HasSubstr("\"Nil\" stands where Tensor[(n, 2), f32] belongs"));
  EXPECT_THAT(fault("(Nil, Nil)"), HasSubstr("\"(\" stands where Tree belongs"));
  EXPECT_THAT(fault("Nil", kPair), HasSubstr("\"Nil\" stands where (Tree, i64) belongs"));
  EXPECT_THAT(fault("Leaf(f32[1, 3]{1, 2, 3})"), HasSubstr("a shape of (1, 3) where"));
  EXPECT_THAT(fault("Leaf(f32[1, 2]{1})"), HasSubstr("1 elements for a shape of (1, 2)"));
  EXPECT_THAT(fault("Leaf(f32[1, 2] 1)"), HasSubstr("a shape without elements"));
  EXPECT_THAT(fault("Leaf(f64[1, 2]{1, 2})"), HasSubstr("f64 stands where"));
  EXPECT_THAT(fault("Leaf(f32[99999999, 9999999999]{})"), HasSubstr("too large"));
  EXPECT_THAT(fault("Leaf([1, 2])"), HasSubstr("\"1\" stands where a list of numbers belongs"));
  EXPECT_THAT(fault("Leaf([[[1, 2]]])"), HasSubstr("is not a number"));
  EXPECT_THAT(fault("Leaf([[1, 2], [3]])"), HasSubstr("a list of 1 after one of 2"));
  EXPECT_THAT(fault("Leaf([[1 2]])"), HasSubstr("\"2\" stands in a list"));
  EXPECT_THAT(fault("Leaf([[1, 2]"), HasSubstr("the end of the text stands in a list"));
  EXPECT_THAT(fault("Leaf([[1, 1e999]])"), HasSubstr("too large or too small"));
  EXPECT_THAT(fault("256", kU8), HasSubstr("256 is not a valid u8"));
  EXPECT_THAT(fault("-1", kU64), HasSubstr("-1 is not a valid u64"));
  EXPECT_THAT(fault("1.5", kI64), HasSubstr("1.5 is not a valid i64"));
  EXPECT_THAT(fault("9223372036854775808", kI64), HasSubstr("is not a valid i64"));
  EXPECT_THAT(fault("1i32", kI64), HasSubstr("i32 stands where i64 belongs"));
  EXPECT_THAT(fault("1x", kI64), HasSubstr("\"x\" follows a number"));
  EXPECT_THAT(fault("true", kI64), HasSubstr("a bool stands where"));
  EXPECT_THAT(fault("[1, 0, 2]", kBools), HasSubstr("2 is not a valid bool"));
  EXPECT_THAT(fault("", kTree), HasSubstr("no fault"));
}

TEST_F(ValueText, TakesOneValueOfAFile) {
  const std::string path = folder_ + "/trees.txt";
  write_file_atomically(path, std::string_view("Nil\nLeaf(@words.npy[0:1])  // by its folder\n"));
  EXPECT_EQ(read_values(path, types_, kTree).size(), 2u);
  const auto second = read_values(path + "[1]", types_, kTree);
  ASSERT_EQ(second.size(), 1u);
  EXPECT_EQ(text_of(second[0], types_, kTree), "Leaf(f32[1, 2]{0, 1})");
  EXPECT_THROW(read_values(path + "[2]", types_, kTree), Error);
  write_file_atomically(path, std::string_view("// nothing\n"));
  EXPECT_THROW(read_values(path, types_, kTree), Error);
}

}  // namespace
}  // namespace nimble
