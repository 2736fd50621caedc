#include "vm/executable/assembler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cctype>

#include "vm/base/error.h"
#include "vm/executable/disassembler.h"
#include "vm/executable/test/sample.h"
#include "vm/executable/writer.h"

namespace nimble::exec {
namespace {

using ::testing::HasSubstr;

TEST(AssemblerTest, DisassemblyIsExact) {
  const Executable e = assemble(kSampleText);
  for (bool comments : {false, true}) {
    DisassembleOptions options;
    options.comments = comments;
    const std::string text = disassemble(e, options);
    EXPECT_EQ(serialize(assemble(text)), serialize(e)) << text;
  }
}

TEST(AssemblerTest, NamesAndLabelsResolve) {
  const Executable e = assemble(kSampleText);
  const std::vector<Instruction>& code = e.functions[0].code;
  EXPECT_EQ(code[1], (Instruction{Opcode::kInvoke, {3, 3, 1, 1}}));
  EXPECT_EQ(code[6], (Instruction{Opcode::kInvokePacked, {0, 4, 0, 7, 1, 6}}));
  EXPECT_EQ(code[8], (Instruction{Opcode::kIf, {10, 9, 12}}));
  EXPECT_EQ(e.functions[0].notes[1].instruction, 6u);
  EXPECT_EQ(e.kernels[0].contract.symbols[1], "b*n");
}

// Symbols are named as a model names its dims.
TEST(AssemblerTest, SymbolsMayBeNamedAsWhatAKernelHas) {
  Executable e = assemble("kernel \"k\" { symbols n portable \"p\" template \"t\" }");
  ASSERT_EQ(e.kernels[0].contract.symbols, std::vector<std::string>{"n"});
  ASSERT_EQ(e.kernels[0].implementations.size(), 1u);
  std::vector<std::string>& symbols = e.kernels[0].contract.symbols;
  symbols = {"source", "workload", "symbols",  "in",     "out",     "inout", "scalar",
             "data",   "require",  "scratch",  "device", "ceil",    "mod",   "threads",
             "native", "vendor",   "dispatch", "host",   "portable"};
  const std::string text = disassemble(e);
  EXPECT_EQ(serialize(assemble(text)), serialize(e)) << text;
}

TEST(AssemblerTest, CommentsTellNames) {
  const std::string text = disassemble(assemble(kSampleText));
  EXPECT_THAT(text, HasSubstr("InvokePacked k0, (r0, r7, r1, r6)"));
  EXPECT_THAT(text, HasSubstr("; dense\n"));
  EXPECT_THAT(text, HasSubstr("; bytes = max(a0 * 12, 4096)"));
}

TEST(AssemblerTest, LargeConstantsAreShownByTheirHash) {
  DisassembleOptions options;
  options.max_constant_elements = 2;
  EXPECT_THAT(disassemble(assemble(kSampleText), options),
              HasSubstr("; c0: constant \"w\" f32 [2, 3] hot, 24 bytes, xxh3 "));
}

TEST(AssemblerTest, MalformedExecutablesAreShownToo) {
  Executable e = assemble("function \"f\" 0 1 { Ret r0 }");
  e.functions[0].code.push_back({Opcode::kInvoke, {1}});
  e.functions[0].code.push_back({Opcode::kLoadConst, {0, 12}});
  e.constants.push_back({"w", DType::kF32, {3}, {}, nullptr});
  const std::string text = disassemble(e);
  EXPECT_THAT(text, HasSubstr("<malformed instruction"));
  EXPECT_THAT(text, HasSubstr("<no such constant>"));
  EXPECT_THAT(text, HasSubstr("; c0 malformed"));
}

struct BadText {
  const char* text;
  const char* message;
  // CTest lists tests by what this prints: letters and spaces alone.
  friend void PrintTo(const BadText& t, std::ostream* out) {
    for (const char* c = t.message; *c; ++c)
      if (std::isalnum(static_cast<unsigned char>(*c)) || *c == ' ') *out << *c;
  }
};

class AssemblerErrors : public ::testing::TestWithParam<BadText> {};

TEST_P(AssemblerErrors, NameTheLine) {
  try {
    assemble(GetParam().text);
    ADD_FAILURE() << GetParam().text;
  } catch (const Error& e) {
    EXPECT_EQ(e.status(), Status::kInvalidArgument);
    EXPECT_THAT(e.what(), HasSubstr(GetParam().message));
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, AssemblerErrors,
    ::testing::Values(
        BadText{"function \"f\" 0 1 {\n  Add r0\n}", "line 2:3: \"Add\" is not an opcode"},
        BadText{"function \"f\" 0 1 {\n  Move r0\n}", "line 3:1: \",\" expected"},
        BadText{"function \"f\" 0 1 {\n  Move r0, x1\n}", "line 2:12: rN expected"},
        BadText{"function \"f\" 0 1 {\n  Goto @gone\n}", "no label \"gone\""},
        BadText{"function \"f\" 0 1 {\na:\na:\n}", "line 3:1: label \"a\" stands twice"},
        BadText{"function \"f\" 0 1 {\n7: Ret r0\n}", "line 2:1: this is instruction 0"},
        BadText{"function \"f\" 0 1 { LoadConst r0, c\"w\" }", "nothing is named \"w\""},
        BadText{"function \"f\" 0 1 {", "a word expected"},
        BadText{"constant \"w\" i8 [1] { 128 }", "128 does not fit i8"},
        BadText{"constant \"w\" u8 [1] { -1 }", "-1 does not fit u8"},
        BadText{"constant \"w\" f33 [1] { 1 }", "\"f33\" is not a dtype"},
        BadText{"constant \"w\" f32 [1] { one }", "\"one\" is not a valid f32"},
        BadText{"kernel \"k\" { scalar n }", "no symbol \"n\""},
        BadText{"kernel \"k\" { dispatch { 1: 0 } }", "nodes come in order"},
        BadText{"scalar \"s\" [a0 ?]", "\"?\" is not a dim instruction"},
        BadText{"kernel \"k\" { native \"n\" launch ([1], [1]) block 32 shared 0 }",
                "\",\" expected"},
        BadText{"kernel \"k\" { native \"n\" launch ([1], [1], [1]) shared 0 }",
                "\"block\" expected"},
        BadText{"kernel \"k\" { native \"n\" launch ([1], [1], [1]) block 32 shared -1 }",
                "-1 is out of range"},
        BadText{"text \"open", "unterminated string"}, BadText{"nonsense", "expected"}));

}  // namespace
}  // namespace nimble::exec
