#include "vm/executable/verifier.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "vm/base/error.h"
#include "vm/executable/assembler.h"
#include "vm/executable/test/sample.h"

namespace nimble::exec {
namespace {

using ::testing::HasSubstr;

// What the rejecting texts refer to: constants c0 (f32), c1 (i64) and c2 (on device 1), kernels k0
// and k1 (on device 1), scalar function
// f"twice" and bytecode function f"callee" of two parameters.
constexpr const char* kPrelude = R"ASM(
text "message"
constant "w" f32 [2] { 1, 2 }
constant "n" i64 [] { 3 }
scalar "twice" [a0 2 *]
kernel "k" { symbols m s  in f32 ([a0])  scalar s  out f32 ([a0])  scratch [a0 a1 +]
             dispatch { 0: 0 }  native "k0" }
kernel "far" { symbols m  device d1  in f32 ([a0])  out f32 ([a0])  scratch [0]
               dispatch { 0: 0 }  native "k1" }
constant "there" f32 [2] device d1 { 1, 2 }
)ASM";
constexpr const char* kCallee = "function \"callee\" 2 2 { Ret r0 }\n";

Executable with_prelude(const std::string& text) {
  return assemble(kPrelude + text + kCallee);
}

struct Rejected {
  int rule;
  const char* where;
  const char* text;
  friend void PrintTo(const Rejected& r, std::ostream* out) {
    *out << "R" << r.rule << " at " << r.where;
  }
};

class VerifierRejects : public ::testing::TestWithParam<Rejected> {};

TEST_P(VerifierRejects, ByItsRule) {
  const std::vector<Violation> found = find_violations(with_prelude(GetParam().text));
  ASSERT_FALSE(found.empty()) << GetParam().text;
  EXPECT_EQ(found[0].rule, GetParam().rule) << found[0].where << ": " << found[0].message;
  EXPECT_EQ(found[0].where, GetParam().where) << found[0].message;
}

const Rejected kRejected[] = {
    {2, "f@0", "function \"f\" 1 1 { Move r1, r0  Ret r0 }"},
    {2, "f@0", "function \"f\" 1 1 { Ret r7 }"},
    {2, "f@0", "function \"f\" 1 2 { AllocADT r1, 0, (r0, r2)  Ret r1 }"},
    {2, "f", "function \"f\" 3 2 { Ret r0 }"},
    {2, "f", "function \"f\" 0 1048577 { LoadConsti r0, 1  Ret r0 }"},
    {2, "f@0", "function \"f\" 1 3 { ShapeOf r1, 3, r0  Ret r0 }"},
    {3, "f@0", "function \"f\" 1 1 { Goto @1 }"},
    {3, "f@0", "function \"f\" 1 1 { If r0, @1, @9  Ret r0 }"},
    {4, "f", "function \"f\" 0 1 { }"},
    {4, "f@0", "function \"f\" 1 2 { Move r1, r0 }"},
    {5, "f@0", "function \"f\" 0 1 { Ret r0 }"},
    {5, "f@0", "function \"f\" 0 2 { AllocADT r0, 0, (r1)  Ret r0 }"},
    // Written on one of two paths only.
    {5, "f@2", "function \"f\" 1 2 { If r0, @1, @2  1: LoadConsti r1, 1  2: Ret r1 }"},
    // Written, but only later on the way around the loop.
    {5, "f@0", "function \"f\" 1 2 { 0: Move r0, r1  LoadConsti r1, 1  Goto @0 }"},
    {6, "f@2", "function \"f\" 0 1 { LoadConst r0, c0  FreeTensor r0  Ret r0 }"},
    {6, "f@2", "function \"f\" 2 2 { If r0, @1, @2  1: FreeTensor r1  2: Ret r1 }"},
    {6, "f@3",
     "function \"f\" 0 2 { LoadConsti r0, 8  AllocStorage r1, r0, 8, d0  FreeStorage r1  "
     "AllocTensor r1, r1, r0, f32, [2]  Ret r1 }"},
    {7, "f@1", "function \"f\" 0 2 { LoadConsti r0, 1  ShapeOf r1, 1, r0  Ret r1 }"},
    {7, "f@1", "function \"f\" 0 2 { LoadConst r0, c0  AllocStorage r1, r0, 8, d0  Ret r1 }"},
    {7, "f@1", "function \"f\" 0 2 { LoadConsti r0, 1  AllocTensor r1, r0, r0, f32, [1]  Ret r1 }"},
    {7, "f@1", "function \"f\" 0 2 { LoadConsti r0, 1  InvokeClosure r1, r0, ()  Ret r1 }"},
    {7, "f@1", "function \"f\" 0 2 { LoadConsti r0, 1  GetField r1, r0, 0  Ret r1 }"},
    {7, "f@1", "function \"f\" 0 2 { LoadConsti r0, 1  GetField r1, r0, -1  Ret r1 }"},
    {7, "f@1", "function \"f\" 0 2 { AllocADT r0, 0, ()  GetField r1, r0, -1  Ret r1 }"},
    {7, "f@1", "function \"f\" 0 2 { LoadConst r0, c0  GetTag r1, r0  Ret r1 }"},
    {7, "f@1", "function \"f\" 0 2 { LoadConst r0, c0  Invoke r1, f\"twice\", (r0)  Ret r1 }"},
    {7, "f@1", "function \"f\" 0 1 { AllocADT r0, 0, ()  If r0, @2, @2  2: Ret r0 }"},
    {7, "f@1", "function \"f\" 0 2 { LoadConst r0, c0  ReshapeTensor r1, r0, (r0)  Ret r1 }"},
    {7, "f@1", "function \"f\" 0 1 { LoadConsti r0, 0  FreeTensor r0  Ret r0 }"},
    {7, "f@1", "function \"f\" 0 1 { LoadConst r0, c0  Fatal t0, (r0) }"},
    {7, "f@1", "function \"f\" 0 2 { LoadConsti r0, 0  DeviceCopy r1, r0, d0  Ret r1 }"},
    {8, "f@0", "function \"f\" 0 1 { LoadConst r0, c3  Ret r0 }"},
    {8, "f@0", "function \"f\" 0 1 { Invoke r0, f9, ()  Ret r0 }"},
    {8, "f@0", "function \"f\" 0 1 { InvokePacked k2, ()  Ret r0 }"},
    {8, "f@0", "function \"f\" 0 1 { Fatal t1, () }"},
    {8, "f@0", "function \"f\" 0 1 { AllocClosure r0, f\"twice\", ()  Ret r0 }"},
    {9, "f@0", "function \"f\" 1 1 { Invoke r0, f\"callee\", (r0)  Ret r0 }"},
    {9, "f@1", "function \"f\" 0 1 { LoadConsti r0, 1  Invoke r0, f\"twice\", (r0, r0)  Ret r0 }"},
    {9, "f@0", "function \"f\" 1 1 { AllocClosure r0, f\"callee\", (r0, r0, r0)  Ret r0 }"},
    {10, "f@1", "function \"f\" 0 1 { LoadConsti r0, 1  AllocStorage r0, r0, 24, d0  Ret r0 }"},
    {10, "f@1", "function \"f\" 0 1 { LoadConsti r0, 1  AllocStorage r0, r0, 0, d0  Ret r0 }"},
    {10, "f@1",
     "function \"f\" 0 1 { LoadConsti r0, 1  AllocStorage r0, r0, 4194304, d0  Ret r0 }"},
    {10, "f@1", "function \"f\" 0 1 { LoadConsti r0, 1  AllocStorage r0, r0, 8, d256  Ret r0 }"},
    {10, "f@0", "function \"f\" 2 2 { AllocTensor r0, r0, r1, f32, [-1]  Ret r0 }"},
    {10, "f@0",
     "function \"f\" 2 2 { AllocTensor r0, r0, r1, f32, [4611686018427387904]  Ret r0 }"},
    {10, "f@0", "function \"f\" 1 1 { AllocADT r0, -1, ()  Ret r0 }"},
    {10, "f@0", "function \"f\" 1 1 { GetField r0, r0, -2  Ret r0 }"},
    {10, "f@0", "function \"f\" 1 1 { ShapeOf r0, -1, r0  Ret r0 }"},
    {10, "f@0", "function \"f\" 1 10 { ShapeOf r1, 9, r0  Ret r1 }"},
    {10, "f@0",
     "function \"f\" 2 2 { AllocTensor r0, r0, r1, f32, [1, 1, 1, 1, 1, 1, 1, 1, 1]  Ret r0 }"},
    {10, "f@0",
     "function \"f\" 2 2 { AllocTensorReg r0, r0, r1, f32, (r1, r1, r1, r1, r1, r1, r1, r1, r1)  "
     "Ret r0 }"},
    {10, "f@0",
     "function \"f\" 2 2 { ReshapeTensor r0, r0, (r1, r1, r1, r1, r1, r1, r1, r1, r1)  Ret r0 }"},
    {11, "scalar function s", "scalar \"s\" [1->1: a1]"},
    {11, "scalar function s", "scalar \"s\" [0->1: +]"},
    {11, "kernel x",
     "kernel \"x\" { in f32 ([0->2: 1 1]) scratch [0] dispatch { 0: 0 } host \"h\" }"},
    {11, "kernel x", "kernel \"x\" { scratch [1 +] dispatch { 0: 0 } host \"h\" }"},
    // An output's dim does not bind.
    {12, "kernel x",
     "kernel \"x\" { symbols m out f32 ([a0]) scratch [0] dispatch { 0: 0 } host \"h\" }"},
    // Read before bound.
    {12, "kernel x",
     "kernel \"x\" { symbols m in f32 ([a0 1 +], [a0]) scratch [0] dispatch { 0: 0 } host \"h\" }"},
    {12, "kernel x", "kernel \"x\" { symbols m scratch [0] dispatch { 0: 0 } host \"h\" }"},
    {12, "kernel x", "kernel \"x\" { in f32 ([a0]) scratch [0] dispatch { 0: 0 } host \"h\" }"},
    {12, "kernel x", "kernel \"x\" { require [a0] scratch [0] dispatch { 0: 0 } host \"h\" }"},
    {12, "kernel x", "kernel \"x\" { scratch [a1] dispatch { 0: 0 } host \"h\" }"},
    {13, "kernel x", "kernel \"x\" { scratch [0] dispatch { } host \"h\" }"},
    {13, "kernel x", "kernel \"x\" { scratch [0] dispatch { 0: 1 } host \"h\" }"},
    {13, "kernel x",
     "kernel \"x\" { scratch [0] dispatch { 0: threads <= 1 ? 0 : 1  1: 0 } host \"h\" }"},
    {14, "f@1", "function \"f\" 1 2 { LoadConsti r1, 1  InvokePacked k0, (r0, r1)  Ret r0 }"},
    {14, "f@1",
     "kernel \"d\" { data scratch [0] dispatch { 0: 0 } host \"h\" } "
     "function \"f\" 0 1 { LoadConsti r0, 1  InvokePacked k\"d\", (r0)  Ret r0 }"},
    {14, "f@1", "function \"f\" 2 3 { LoadConst r2, c0  InvokePacked k0, (r0, r2, r1)  Ret r0 }"},
    {14, "f@1", "function \"f\" 2 3 { LoadConsti r2, 1  InvokePacked k0, (r2, r2, r1)  Ret r0 }"},
    {15, "f@2",
     "function \"f\" 1 3 { LoadConst r1, c0  LoadConsti r2, 1  InvokePacked k0, (r0, r2, r1)  Ret "
     "r1 }"},
    // A constant by way of a reshape, and on one path only.
    {15, "f@7",
     "function \"f\" 1 5 { LoadConsti r1, 2  LoadConst r2, c0  If r0, @3, @5  "
     "3: AllocStorage r3, r1, 8, d0  4: AllocTensor r2, r3, r1, f32, [2]  "
     "5: ReshapeTensor r4, r2, (r1)  Move r3, r4  InvokePacked k0, (r0, r1, r3)  Ret r3 }"},
    // A part of a constant.
    {15, "f@3",
     "function \"f\" 1 3 { LoadConst r1, c0  LoadConsti r2, 0  AllocTensor r1, r1, r2, f32, [1]  "
     "InvokePacked k0, (r0, r2, r1)  Ret r1 }"},
    {16, "constant bad", "constant \"bad\" f32 [3] { 1, 2 }"},
    {16, "constant bad", "constant \"bad\" f32 [-1] { }"},
    {16, "constant bad", "constant \"bad\" bool [1] { 0x2 }"},
    {17, "entry e", "entry \"e\" f5 { output \"y\" f32 [] [] }"},
    {17, "entry e", "entry \"e\" f0 { output \"y\" f32 [] [] }"},
    {17, "entry e", "entry \"e\" f0 { input \"a\" f32 [] [] input \"b\" f32 [] [] }"},
    {17, "entry e",
     "entry \"e\" f0 { input \"a\" f32 [] [] input \"a\" f32 [] [] output \"y\" f32 [] [] }"},
    {17, "entry e",
     "entry \"e\" f0 { input \"a\" f32 [\"n\"] [] input \"b\" f32 [] [] output \"y\" f32 [] [] }"},
    {17, "entry e",
     "entry \"e\" f0 { input \"a\" f32 [\"n\"] [-2] input \"b\" f32 [] [] output \"y\" f32 [] [] "
     "}"},
    {17, "entry e",
     "entry \"e\" f0 { input \"a\" f32 [] [] default \"twos\" input \"b\" f32 [] [] "
     "output \"y\" f32 [] [] }"},
    {18, "kernel k", "kernel \"k\" { scratch [0] dispatch { 0: 0 } host \"h\" }"},
    {18, "kernel x", "kernel \"x\" { scratch [0] dispatch { 0: 0 } native \"\" }"},
    {18, "kernel x", "kernel \"x\" { data scratch [0] dispatch { 0: 0 } native \"n\" }"},
    {18, "kernel x", "kernel \"x\" { scratch [0] dispatch { 0: 0 } native \"x\" threads -1 }"},
    // A constant, a storage's tensor and its part, a copy: none lies where the kernel runs.
    {21, "f@1", "function \"f\" 1 2 { LoadConst r1, c0  InvokePacked k1, (r1, r0)  Ret r0 }"},
    {21, "f@2",
     "function \"f\" 1 3 { LoadConst r1, c2  LoadConsti r2, 1  InvokePacked k0, (r1, r2, r0)  "
     "Ret r0 }"},
    {21, "f@5",
     "function \"f\" 1 4 { LoadConsti r1, 8  AllocStorage r2, r1, 8, d1  LoadConsti r1, 0  "
     "AllocTensor r2, r2, r1, f32, [2]  DeviceCopy r3, r2, d0  InvokePacked k1, (r2, r3)  Ret r0 "
     "}"},
    {21, "f@3",
     "function \"f\" 1 3 { LoadConsti r1, 2  DeviceCopy r2, r0, d1  ReshapeTensor r2, r2, (r1)  "
     "InvokePacked k0, (r2, r1, r0)  Ret r0 }"},
    // Elements are read on the CPU.
    {21, "f@1", "function \"f\" 1 2 { DeviceCopy r1, r0, d1  GetField r1, r1, 0  Ret r1 }"},
    {21, "f@1", "function \"f\" 1 2 { DeviceCopy r1, r0, d1  If r1, @2, @2  2: Ret r0 }"},
    // The same register from both sides of a branch: on one device only.
    {21, "f@4",
     "function \"f\" 1 2 { If r0, @1, @3  1: DeviceCopy r1, r0, d1  Goto @4  "
     "3: DeviceCopy r1, r0, d1  4: GetField r1, r1, 0  Ret r1 }"},
    {23, "type t", "type \"t\" data { \"A\" (0, 7) }"},
    {23, "type t", "type \"t\" data { }"},
    {23, "type t", "type \"t\" data { \"\" () }"},
    {23, "type t", "type \"t\" scalar f32\n"},
    {23, "type t", "type \"t\" tensor f32 [\"n\"] []"},
    {23, "type t", "type \"t\" tensor f32 [\"n\"] [-2]"},
    {23, "type t", "type \"t\" tuple (1)"},
    {23, "entry e", "entry \"e\" f0 { input \"a\" type 0 input \"b\" type 0 output \"y\" type 0 }"},
    {20, "f", "function \"f\" 1 1 { Ret r0 .note \"behind the end\" }"},
};

INSTANTIATE_TEST_SUITE_P(All, VerifierRejects, ::testing::ValuesIn(kRejected),
                         [](const auto& info) {
                           return "R" + std::to_string(info.param.rule) + "_" +
                                  std::to_string(info.index);
                         });

// R1, R10's dtypes and R19 cannot be written as text.
TEST(VerifierTest, InstructionsThatDoNotFitTheTable) {
  for (const Instruction& in :
       {Instruction{static_cast<Opcode>(22), {}}, Instruction{Opcode::kMove, {0}},
        Instruction{Opcode::kMove, {0, 0, 0}}, Instruction{Opcode::kAllocADT, {0, 0, 5, 0}},
        Instruction{Opcode::kAllocADT, {0, 0, -1}}}) {
    Executable e = assemble("function \"f\" 1 1 { Ret r0 }");
    e.functions[0].code.insert(e.functions[0].code.begin(), in);
    const std::vector<Violation> found = find_violations(e);
    ASSERT_FALSE(found.empty());
    EXPECT_EQ(found[0].rule, 1);
  }
  Executable e = assemble("function \"f\" 2 2 { AllocTensor r0, r0, r1, f32, [1]  Ret r0 }");
  e.functions[0].code[0].operands[3] = kDTypeCount;
  ASSERT_FALSE(find_violations(e).empty());
  EXPECT_EQ(find_violations(e)[0].rule, 10);
}

TEST(VerifierTest, DevicesOfKernelsAndConstants) {
  Executable e = sample();
  e.kernels[0].device = 256;
  EXPECT_EQ(find_violations(e)[0].rule, 21);
  e = sample();
  e.constants[0].device = -1;
  EXPECT_EQ(find_violations(e)[0].rule, 21);
}

// On one path here, on the other there: left to the interpreter's check.
TEST(VerifierTest, DevicesThatDependOnThePathAreUnknown) {
  EXPECT_TRUE(find_violations(with_prelude("function \"f\" 1 2 { If r0, @1, @3  "
                                           "1: DeviceCopy r1, r0, d1  Goto @4  "
                                           "3: DeviceCopy r1, r0, d0  4: GetField r1, r1, 0  "
                                           "Ret r1 }"))
                  .empty());
}

TEST(VerifierTest, Images) {
  Executable e = sample();
  e.images[1].target = e.images[0].target;
  ASSERT_EQ(find_violations(e).size(), 1u);
  EXPECT_EQ(find_violations(e)[0].rule, 19);
  e = sample();
  e.images[0].bytes = {};
  EXPECT_EQ(find_violations(e)[0].rule, 19);
}

TEST(VerifierTest, PortableKernels) {
  Executable e = sample();
  e.kernels[0].portable->code.pop_back();
  EXPECT_TRUE(find_violations(e).empty());
  e.kernels[0].portable->code.pop_back();  // the loop's End
  ASSERT_EQ(find_violations(e).size(), 1u);
  EXPECT_EQ(find_violations(e)[0].rule, 22);
  EXPECT_THAT(find_violations(e)[0].message, HasSubstr("breaks rule P11"));
  e = sample();
  e.kernels[1].implementations[0].kind = ImplementationKind::kPortable;
  ASSERT_EQ(find_violations(e).size(), 1u);
  EXPECT_EQ(find_violations(e)[0].rule, 22);
}

TEST(VerifierTest, EveryRuleHasARejectingTest) {
  std::set<int> tested = {1, 19, 21, 22};  // the tests above
  for (const Rejected& r : kRejected) tested.insert(r.rule);
  for (int rule = 1; rule <= kRuleCount; ++rule) {
    EXPECT_EQ(tested.count(rule), 1u) << "R" << rule;
    EXPECT_FALSE(rule_sentence(rule).empty());
  }
  EXPECT_TRUE(rule_sentence(kRuleCount + 1).empty());
}

TEST(VerifierTest, AcceptsTheSample) {
  for (const Violation& v : find_violations(sample()))
    ADD_FAILURE() << v.where << " R" << v.rule << " " << v.message;
  EXPECT_NO_THROW(verify(sample()));
  EXPECT_NO_THROW(verify({}));
}

class VerifierAccepts : public ::testing::TestWithParam<const char*> {};

TEST_P(VerifierAccepts, WhatIsSafe) {
  for (const Violation& v : find_violations(with_prelude(GetParam())))
    ADD_FAILURE() << v.where << " R" << v.rule << " " << v.message;
}

INSTANTIATE_TEST_SUITE_P(
    All, VerifierAccepts,
    ::testing::Values(
        // A loop that counts, with a scalar carried around.
        "function \"f\" 1 3 { LoadConsti r1, 0  1: Invoke r1, f\"twice\", (r1)  "
        "If r1, @1, @3  3: Ret r0 }",
        // Unreachable code may read anything.
        "function \"f\" 1 2 { Ret r0  Ret r1 }",
        // Kinds that differ at a merge are looked at when used.
        "function \"f\" 1 2 { If r0, @1, @3  1: LoadConsti r1, 1  Goto @4  "
        "3: LoadConst r1, c0  4: GetField r0, r1, 0  Ret r0 }",
        // A freed register may be written again.
        "function \"f\" 1 1 { FreeTensor r0  LoadConsti r0, 1  Ret r0 }",
        // A tensor in the memory of another.
        "function \"f\" 0 3 { LoadConsti r0, 64  AllocStorage r1, r0, 64, d0  LoadConsti r0, 0  "
        "AllocTensor r2, r1, r0, f32, [16]  AllocTensor r2, r2, r0, f32, [4]  Ret r2 }",
        // The storage of a tensor, its bytes, and a reference dropped.
        "function \"f\" 1 3 { GetField r1, r0, -1  GetField r2, r1, 0  Invoke r2, f\"twice\", (r2) "
        " "
        "FreeTensor r1  Ret r2 }",
        // Element of an integer tensor as a scalar.
        "function \"f\" 0 2 { LoadConst r0, c1  GetField r1, r0, 0  Invoke r1, f\"twice\", (r1)  "
        "Ret r1 }",
        // A symbol bound by a scalar argument may be read by all that follows; threads by scratch.
        "kernel \"x\" { symbols m  scalar m  in f32 ([a0 2 *])  inout f32 ([a0])  scratch [a0 a1 "
        "*] "
        "dispatch { 0: 0 } host \"h\" }",
        "function \"f\" 1 1 { 0: Goto @0 }"));

TEST(VerifierTest, ErrorsNameFunctionInstructionAndRule) {
  try {
    verify(with_prelude("function \"f\" 0 2 { LoadConsti r0, 1  Move r0, r1  Ret r0 }"),
           "m.nimble");
    ADD_FAILURE();
  } catch (const Error& e) {
    EXPECT_EQ(e.status(), Status::kCorrupt);
    EXPECT_EQ(e.place(), "m.nimble: f@1");
    EXPECT_THAT(e.what(), HasSubstr("rule R5"));
    EXPECT_THAT(e.what(), HasSubstr("register 1"));
  }
}

TEST(VerifierTest, FindsManyUpToTheLimit) {
  std::string text = "function \"f\" 0 9 { ";
  for (int i = 1; i < 9; ++i) text += "Move r0, r" + std::to_string(i) + "\n";
  const Executable e = with_prelude(text + "Ret r0 }");
  EXPECT_EQ(find_violations(e).size(), 8u);
  EXPECT_EQ(find_violations(e, 3).size(), 3u);
}

// A function made to be dear to verify is refused instead: a million registers and a thousand
// jump targets.
TEST(VerifierTest, VerificationIsBounded) {
  Executable e = assemble("function \"f\" 1 1000000 { Ret r0 }");
  std::vector<Instruction> code;
  for (int64_t i = 0; i < 1000; ++i) code.push_back({Opcode::kIf, {0, i, 1000}});
  code.push_back(e.functions[0].code[0]);
  e.functions[0].code = code;
  const std::vector<Violation> found = find_violations(e);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].rule, 2);
}

// A limit that earlier faults have used up hides none that later checks rely on.
TEST(VerifierTest, StopsAtItsLimit) {
  const Executable e = with_prelude(
      "function \"f\" 0 1 { LoadConsti r0, 1  Ret r1 }"
      "function \"g\" 0 1 { LoadConsti r100000, 1  Ret r0 }");
  EXPECT_EQ(find_violations(e, 1).size(), 1u);
  EXPECT_GT(find_violations(e).size(), 1u);
}

}  // namespace
}  // namespace nimble::exec
