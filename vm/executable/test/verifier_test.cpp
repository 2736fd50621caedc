#include "vm/executable/verifier.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "vm/base/error.h"
#include "vm/executable/assembler.h"
#include "vm/executable/test/prelude.h"
#include "vm/executable/test/sample.h"

namespace nimble::exec {
namespace {

using ::testing::HasSubstr;

// On one path here, on the other there: left to the interpreter's check.
TEST(VerifierTest, DevicesThatDependOnThePathAreUnknown) {
  EXPECT_TRUE(find_violations(with_prelude("function \"f\" 1 2 { If r0, @1, @3  "
                                           "1: DeviceCopy r1, r0, d1  Goto @4  "
                                           "3: DeviceCopy r1, r0, d0  4: GetElement r1, r1, 0  "
                                           "Ret r1 }"))
                  .empty());
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
        "3: LoadConst r1, c0  4: GetElement r0, r1, 0  Ret r0 }",
        // A freed register may be written again.
        "function \"f\" 1 1 { FreeTensor r0  LoadConsti r0, 1  Ret r0 }",
        // A tensor in the memory of another.
        "function \"f\" 0 3 { LoadConsti r0, 64  AllocStorage r1, r0, 64, d0  LoadConsti r0, 0  "
        "AllocTensor r2, r1, r0, f32, [16]  AllocTensor r2, r2, r0, f32, [4]  Ret r2 }",
        // The storage of a tensor, its bytes, and a reference dropped.
        "function \"f\" 1 3 { GetStorage r1, r0  GetCapacity r2, r1  Invoke r2, f\"twice\", (r2) "
        " "
        "FreeTensor r1  Ret r2 }",
        // Element of an integer tensor as a scalar.
        "function \"f\" 0 2 { LoadConst r0, c1  GetElement r1, r0, 0  Invoke r1, f\"twice\", (r1)  "
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
