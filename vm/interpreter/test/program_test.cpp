// Bytecode as it is decoded at load.
#include "vm/interpreter/program.h"

#include <gtest/gtest.h>

#include "vm/executable/assembler.h"
#include "vm/executable/verifier.h"

namespace nimble::rt {
namespace {

DecodedFunction decoded(const std::string& code) {
  static exec::Executable e;
  e = exec::assemble("function \"f\" 1 3 { " + code + " }");
  exec::verify(e);
  return decode_function(e, e.functions[0]);
}

// A call is one in tail position if nothing but jumps lies between it and a Ret of its result.
TEST(ProgramTest, TailCallsAreFoundBehindChainsOfJumps) {
  std::string chain;
  for (int i = 2; i < 100; ++i) chain += "Goto @" + std::to_string(i + 1) + " ";
  const DecodedFunction f =
      decoded("Invoke r1, f0, (r0)  Goto @2  " + chain + "Invoke r2, f0, (r0)  Ret r1");
  EXPECT_FALSE(f.code[0].tail);  // another call comes before the Ret
  EXPECT_FALSE(f.code[100].tail);
  EXPECT_TRUE(decoded("Invoke r1, f0, (r0)  Goto @2  " + chain + "Ret r1").code[0].tail);
  EXPECT_FALSE(decoded("Invoke r1, f0, (r0)  Goto @2  " + chain + "Ret r0").code[0].tail);
  EXPECT_TRUE(decoded("Invoke r1, f0, (r0)  Ret r1").code[0].tail);
  // Backwards, too.
  EXPECT_TRUE(decoded("Goto @2  Ret r1  Invoke r1, f0, (r0)  Goto @1").code[2].tail);
}

TEST(ProgramTest, JumpsThatGoRoundLeadToNoRet) {
  EXPECT_FALSE(decoded("Invoke r1, f0, (r0)  1: Goto @1").code[0].tail);
  EXPECT_FALSE(decoded("Invoke r1, f0, (r0)  1: Goto @3  2: Goto @1  3: Goto @2").code[0].tail);
}

}  // namespace
}  // namespace nimble::rt
