#include "vm/executable/dim_program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "vm/base/error.h"
#include "vm/executable/assembler.h"
#include "vm/executable/disassembler.h"

namespace nimble::exec {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

int64_t value(const char* text, std::vector<int64_t> args = {}) {
  const DimProgram p = assemble_program(text);
  EXPECT_EQ(p.verify(), "");
  return p.evaluate1(args);
}

TEST(DimProgramTest, Arithmetic) {
  EXPECT_EQ(value("[a0 a1 +]", {2, 3}), 5);
  EXPECT_EQ(value("[a0 a1 -]", {2, 3}), -1);
  EXPECT_EQ(value("[a0 4 *]", {6}), 24);
  EXPECT_EQ(value("[a0 a1 min]", {2, 3}), 2);
  EXPECT_EQ(value("[a0 a1 max]", {2, 3}), 3);
  EXPECT_EQ(value("[a0 a1 < a0 a1 <= and]", {2, 3}), 1);
  EXPECT_EQ(value("[a0 a1 == a0 a1 != or]", {2, 3}), 1);
  EXPECT_EQ(value("[a0 not]", {2}), 0);
  EXPECT_EQ(value("[a0 10 20 select]", {1}), 10);
  EXPECT_EQ(value("[a0 10 20 select]", {0}), 20);
}

TEST(DimProgramTest, Logic) {
  for (int64_t a : {0, 1, -3})
    for (int64_t b : {0, 1, 7}) {
      EXPECT_EQ(value("[a0 a1 and]", {a, b}), a != 0 && b != 0);
      EXPECT_EQ(value("[a0 a1 or]", {a, b}), a != 0 || b != 0);
    }
}

TEST(DimProgramTest, KnowsConstantsAndArgumentsFromOthers) {
  int64_t number = 0;
  uint32_t index = 0;
  EXPECT_TRUE(assemble_program("[7]").is_constant(&number));
  EXPECT_EQ(number, 7);
  EXPECT_FALSE(assemble_program("[7 a0 +]").is_constant(&number));
  EXPECT_FALSE(assemble_program("[a0]").is_constant(&number));
  EXPECT_TRUE(assemble_program("[a1]").is_argument(&index));
  EXPECT_EQ(index, 1u);
  EXPECT_FALSE(assemble_program("[a0 7 +]").is_argument(&index));
  EXPECT_FALSE(assemble_program("[7]").is_argument(&index));
  EXPECT_FALSE(DimProgram().is_constant(&number) || DimProgram().is_argument(&index));
}

TEST(DimProgramTest, PrintsProgramsUpToALength) {
  const auto program = [](size_t size) {
    DimProgram p = DimProgram::constant(1);
    for (size_t i = 1; i < size; ++i) p.code.push_back({DimOp::kNot});
    return p;
  };
  EXPECT_EQ(program(2).str(), "not 1");
  EXPECT_EQ(program(1000).str().rfind("not (not", 0), 0u);
  EXPECT_EQ(program(1001).str(), "<program of 1001 instructions>");
  DimProgram unknown = program(1);
  unknown.code[0].op = static_cast<DimOp>(kDimOpCount);
  EXPECT_NE(unknown.verify(), "");
}

TEST(DimProgramTest, DivisionRoundsDown) {
  for (int64_t a = -7; a <= 7; ++a)
    for (int64_t b : {-3, -1, 1, 3}) {
      const int64_t q = value("[a0 a1 //]", {a, b}), r = value("[a0 a1 %]", {a, b});
      EXPECT_EQ(q * b + r, a);
      EXPECT_TRUE(r == 0 || (r < 0) == (b < 0)) << a << " % " << b << " = " << r;
      EXPECT_LT(std::abs(r), std::abs(b));
    }
}

TEST(DimProgramTest, Broadcast) {
  EXPECT_EQ(value("[a0 a1 bcast]", {1, 5}), 5);
  EXPECT_EQ(value("[a0 a1 bcast]", {5, 1}), 5);
  EXPECT_EQ(value("[a0 a1 bcast]", {5, 5}), 5);
  EXPECT_THROW(value("[a0 a1 bcast]", {5, 6}), Error);
  EXPECT_EQ(value("[a0 a1 bcast]", {1, 0}), 0);
}

TEST(DimProgramTest, ArithmeticThatFails) {
  for (const char* text : {"[a0 1 +]", "[a0 2 *]", "[-2 a0 -]", "[a0 0 //]", "[a0 0 %]"}) {
    try {
      value(text, {INT64_MAX});
      ADD_FAILURE() << text;
    } catch (const Error& e) {
      EXPECT_EQ(e.status(), Status::kFatal) << text;
    }
  }
  EXPECT_THROW(value("[a0 -1 //]", {INT64_MIN}), Error);
  EXPECT_EQ(value("[a0 -1 %]", {INT64_MIN}), 0);
}

// Elements of tensors that live in registers: what a kernel would compute, whatever the operands.
TEST(DimProgramTest, ElementsWrap) {
  EXPECT_EQ(value("[a0 1 +%]", {INT64_MAX}), INT64_MIN);
  EXPECT_EQ(value("[a0 1 -%]", {INT64_MIN}), INT64_MAX);
  EXPECT_EQ(value("[0 a0 -%]", {INT64_MIN}), INT64_MIN);
  EXPECT_EQ(value("[a0 3 *%]", {INT64_MAX}), INT64_MAX - 2);
  EXPECT_EQ(value("[a0 a0 *%]", {int64_t{1} << 32}), 0);
  EXPECT_EQ(value("[a0 -1 quot]", {INT64_MIN}), INT64_MIN);
  EXPECT_EQ(value("[a0 -1 rem]", {INT64_MIN}), 0);
  EXPECT_EQ(value("[a0 0 quot]", {-7}), 0);
  EXPECT_EQ(value("[a0 0 rem]", {-7}), 0);
  for (int64_t a = -7; a <= 7; ++a)
    for (int64_t b : {-3, -1, 1, 3}) {
      EXPECT_EQ(value("[a0 a1 quot]", {a, b}), a / b);
      EXPECT_EQ(value("[a0 a1 rem]", {a, b}), ((a % b) + b) % b);
    }
}

TEST(DimProgramTest, PrintsAndAssemblesEveryOperation) {
  for (size_t i = 0; i < kDimOpCount; ++i) {
    const auto op = static_cast<DimOp>(i);
    DimProgram p{0, 1, {}};
    for (int k = 0; k < info_of(op).operands; ++k) p.code.push_back({DimOp::kConst, k + 5});
    p.code.push_back({op});
    if (op == DimOp::kArg) p.arguments = 1;
    EXPECT_EQ(p.verify(), "") << i;
    EXPECT_EQ(assemble_program(postfix(p)), p) << postfix(p);
    EXPECT_EQ(p.str().find("malformed"), std::string::npos) << p.str();
  }
  EXPECT_EQ(assemble_program("[a0 a1 +% 2 *%]").str(), "(a0 +% a1) *% 2");
  EXPECT_EQ(assemble_program("[a0 a1 quot]").str(), "quot(a0, a1)");
}

TEST(DimProgramTest, SeveralResults) {
  const DimProgram p = assemble_program("[2->3: a0 a1 a0 a1 +]");
  ASSERT_EQ(p.verify(), "");
  int64_t results[3];
  p.evaluate(std::vector<int64_t>{4, 5}, results);
  EXPECT_THAT(results, ElementsAre(4, 5, 9));
}

TEST(DimProgramTest, MalformedOnes) {
  auto bad = [](DimProgram p) { return p.verify(); };
  EXPECT_THAT(bad({1, 1, {{DimOp::kArg, 1}}}), HasSubstr("argument 1 of 1"));
  EXPECT_THAT(bad({1, 1, {{DimOp::kArg, -1}}}), HasSubstr("argument -1"));
  EXPECT_THAT(bad({0, 1, {{DimOp::kConst, 1}, {DimOp::kAdd}}}), HasSubstr("needs 2 values"));
  EXPECT_THAT(bad({0, 1, {{DimOp::kSelect}}}), HasSubstr("needs 3 values"));
  EXPECT_THAT(bad({0, 2, {{DimOp::kConst, 1}}}), HasSubstr("leaves 1 values"));
  EXPECT_THAT(bad({0, 1, {}}), HasSubstr("leaves 0 values"));
  EXPECT_THAT(bad({0, 1, {{static_cast<DimOp>(99)}}}), HasSubstr("unknown operation 99"));
  const std::vector<DimInstruction> deep(257, {DimOp::kConst, 1});
  EXPECT_THAT(bad({0, 257, deep}), HasSubstr("deeper than 256"));
  const std::vector<DimInstruction> just_right(256, {DimOp::kConst, 1});
  EXPECT_EQ(bad({0, 256, just_right}), "");
}

TEST(DimProgramTest, Text) {
  EXPECT_EQ(assemble_program("[a0 4 * a1 +]").str(), "(a0 * 4) + a1");
  EXPECT_EQ(assemble_program("[a0 a1 min a0 +]").str(), "min(a0, a1) + a0");
  EXPECT_EQ(assemble_program("[a0 1 2 select]").str(), "a0 ? 1 : 2");
  EXPECT_EQ(assemble_program("[2->2: a0 a1]").str(), "a0, a1");
  for (const char* text : {"[a0 4 * a1 +]", "[2->3: a0 a1 a0]", "[3->1: a0]", "[-5]", "[0->0: ]"})
    EXPECT_EQ(assemble_program(postfix(assemble_program(text))), assemble_program(text)) << text;
}

TEST(DimProgramTest, Recognition) {
  uint32_t index = 0;
  int64_t constant = 0;
  EXPECT_TRUE(DimProgram::argument(3).is_argument(&index));
  EXPECT_EQ(index, 3u);
  EXPECT_FALSE(DimProgram::argument(3).is_constant(&constant));
  EXPECT_TRUE(DimProgram::constant(-4).is_constant(&constant));
  EXPECT_EQ(constant, -4);
}

}  // namespace
}  // namespace nimble::exec
