// What a register holds where paths meet, and what each instruction reads and leaves: the smallest
// programs of either side. scripts/mutate-verifier tells which are missing.
#include <gtest/gtest.h>

#include "vm/executable/test/prelude.h"
#include "vm/executable/verifier.h"

namespace nimble::exec {
namespace {

std::string faults_of(const std::string& text) {
  std::string names;
  for (const Violation& v : find_violations(with_prelude(text)))
    names += (names.empty() ? "" : " ") + std::string(info_of(v.fault).name);
  return names;
}
std::string name_of_fault(Fault fault) {
  return std::string(info_of(fault).name);
}

// r1 is what the path makes of it, chosen by r0; the paths are 3 instructions each.
std::string either(const std::string& one, const std::string& other, const std::string& then,
                   const std::string& third = "") {
  return "function \"f\" 1 6 { LoadConsti r5, 0  LoadConsti r4, 64  LoadConst r1, c0  "
         "If r0, @one, @other  one: " +
         one + "  Goto @" + (third.empty() ? "then" : "more") + "  other: " + other +
         (third.empty() ? "" : "  more: If r0, @then, @third  third: " + third) +
         "  then: " + then + " }";
}

TEST(VerifierPaths, WhatIsFreedOnOnePathIsFreed) {
  const std::string freed = name_of_fault(Fault::kReadFreed);
  EXPECT_EQ(faults_of(either("FreeTensor r1", "LoadConsti r5, 1", "Ret r1")), freed);
  EXPECT_EQ(faults_of(either("LoadConsti r5, 1", "FreeTensor r1", "Ret r1")), freed);
  EXPECT_EQ(faults_of(either("LoadConsti r5, 1", "LoadConsti r5, 1", "Ret r1")), "");
}

// r2, which nothing wrote before the branch.
TEST(VerifierPaths, WhatIsUnwrittenOnOnePathIsUnwritten) {
  const std::string unwritten = name_of_fault(Fault::kReadUnwritten), none = "LoadConsti r5, 1",
                    scalar = "LoadConsti r2, 1", tensor = "LoadConst r2, c0",
                    freed = "LoadConst r2, c0  FreeTensor r2";
  for (const std::string& other : {scalar, tensor, freed}) {
    EXPECT_EQ(faults_of(either(none, other, "Ret r2")), unwritten) << other;
    EXPECT_EQ(faults_of(either(other, none, "Ret r2")), unwritten) << other;
  }
  EXPECT_EQ(faults_of(either(scalar, tensor, "Ret r2")), "");
}

TEST(VerifierPaths, WhatIsTheSameOnBothPathsStaysSo) {
  const std::string wrong = name_of_fault(Fault::kWrongKind);
  const auto both = [](const std::string& write, const std::string& use) {
    return faults_of(either(write, write, use + "  Ret r1"));
  };
  EXPECT_EQ(both("LoadConsti r1, 1", "ShapeOf r2, 1, r1"), wrong);
  EXPECT_EQ(both("LoadConsti r1, 1", "AllocStorage r2, r1, 64, d0"), "");
  EXPECT_EQ(both("AllocStorage r1, r4, 64, d0", "GetTag r2, r1"), wrong);
  EXPECT_EQ(both("AllocADT r1, 0, ()", "ShapeOf r2, 1, r1"), wrong);
  // A tensor that is none of a constant's may be written.
  const std::string tensor = "AllocStorage r1, r4, 64, d0  AllocTensor r1, r1, r5, f32, [1]",
                    write = "LoadConsti r3, 1  InvokePacked k0, (r0, r3, r1)";
  EXPECT_EQ(both(tensor, write), "");
  EXPECT_EQ(both("LoadConst r1, c0", write), name_of_fault(Fault::kWritesConstant));
}

// Only tensors on both paths make a tensor.
TEST(VerifierPaths, WhatIsATensorOnOnePathIsUnknown) {
  const std::string tensor = "AllocStorage r1, r4, 64, d0  AllocTensor r1, r1, r5, f32, [1]",
                    write = "LoadConsti r3, 1  InvokePacked k0, (r0, r3, r1)  Ret r1";
  for (const std::string other : {"LoadConsti r1, 1", "Move r1, r0", "AllocADT r1, 0, ()"})
    for (const auto& [one, two] : {std::pair(tensor, other), std::pair(other, tensor)})
      for (const std::string& use : {std::string("GetTag r2, r1  Ret r1"), write,
                                     std::string("AllocStorage r2, r1, 64, d0  Ret r2")})
        EXPECT_EQ(faults_of(either(one, two, use)), "") << one << " / " << two << ": " << use;
  const std::string constant = "LoadConst r1, c0";
  for (const auto& [one, two] : {std::pair(tensor, constant), std::pair(constant, tensor)}) {
    EXPECT_EQ(faults_of(either(one, two, write)), name_of_fault(Fault::kWritesConstant));
    EXPECT_EQ(faults_of(either(one, two, "GetTag r2, r1  Ret r1")),
              name_of_fault(Fault::kWrongKind));
  }
}

// A tensor placed in what may be a constant is one.
TEST(VerifierPaths, WhatIsPerhapsAConstantStaysSo) {
  const std::string writes =
      "AllocTensor r2, r1, r5, f32, [1]  LoadConsti r3, 1  "
      "InvokePacked k0, (r0, r3, r2)  Ret r2";
  const std::string constant = "LoadConst r1, c0", storage = "AllocStorage r1, r4, 64, d0",
                    unknown = "Move r1, r0";
  const std::string refused = name_of_fault(Fault::kWritesConstant);
  EXPECT_EQ(faults_of(either(constant, storage, writes)), refused);
  EXPECT_EQ(faults_of(either(storage, constant, writes)), refused);
  EXPECT_EQ(faults_of(either(storage, unknown, writes)), "");
  for (const auto& [a, b, c] :
       {std::tuple(constant, storage, unknown), std::tuple(storage, constant, unknown),
        std::tuple(storage, unknown, constant), std::tuple(unknown, storage, constant)})
    EXPECT_EQ(faults_of(either(a, b, writes, c)), refused) << a << b << c;
  EXPECT_EQ(faults_of(either(storage, unknown, writes, storage)), "");
}

TEST(VerifierPaths, ExtentsInRegistersAreRead) {
  const auto alloc = [](const std::string& extent) {
    return faults_of(
        "function \"f\" 1 6 { LoadConsti r1, 64  AllocStorage r2, r1, 64, d0  "
        "LoadConsti r3, 0  " +
        extent + "  AllocTensorReg r5, r2, r3, f32, (r3, r4)  Ret r5 }");
  };
  EXPECT_EQ(alloc("LoadConsti r4, 1"), "");
  EXPECT_EQ(alloc("Move r1, r1"), name_of_fault(Fault::kReadUnwritten));
  EXPECT_EQ(alloc("LoadConst r4, c0"), name_of_fault(Fault::kWrongKind));
}

// A kernel's call of another number of arguments reads none of them: what is wrong with them is
// told where they are read next.
TEST(VerifierPaths, ACallOfTheWrongLengthReadsNothing) {
  const std::string wrong = name_of_fault(Fault::kKernelArguments),
                    unwritten = name_of_fault(Fault::kReadUnwritten);
  const auto call = [](const std::string& arguments) {
    return faults_of("function \"f\" 1 4 { LoadConsti r1, 1  InvokePacked k0, (" + arguments +
                     ")  Goto @next  next: Move r3, r2  Ret r3 }");
  };
  EXPECT_EQ(call("r0, r1, r0"), unwritten);
  EXPECT_EQ(call("r2, r1, r0, r0"), wrong + " " + unwritten);
  EXPECT_EQ(call("r0, r1, r2, r0"), wrong + " " + unwritten);
  for (const char* arguments : {"", "r2", "r0, r1"})
    EXPECT_EQ(call(arguments), wrong + " " + unwritten) << arguments;
}

// --- Blocks that touch a register, and those where it merges -------------------------------------

// What is written behind a merge is what later blocks read, not the merge.
TEST(VerifierPaths, AWriteBehindAMergeHidesIt) {
  const auto read = [](const std::string& behind) {
    return faults_of(either("LoadConst r1, c0", "LoadConsti r1, 1",
                            "Move r2, r1  Goto @behind  behind: " + behind +
                                "  Goto @last  last: ShapeOf r2, 1, r1  Ret r2"));
  };
  EXPECT_EQ(read("LoadConsti r3, 1"), "");
  EXPECT_EQ(read("LoadConsti r1, 1"), name_of_fault(Fault::kWrongKind));
  EXPECT_EQ(read("LoadConst r1, c0"), "");
  // At the merge nothing touches it, and neither is it the last block to do so.
  const auto untouched = [](const std::string& behind) {
    return faults_of(either("LoadConst r1, c0", "LoadConsti r5, 1",
                            "LoadConsti r3, 1  Goto @behind  behind: " + behind +
                                "  Goto @last  last: GetField r2, r1, 0  Ret r2"));
  };
  const std::string wrong = name_of_fault(Fault::kWrongKind);
  EXPECT_EQ(untouched("LoadConsti r3, 1"), wrong);
  EXPECT_EQ(untouched("LoadConsti r1, 1"), wrong);
  EXPECT_EQ(untouched("AllocADT r1, 0, ()"), "");
}

// A merge behind all blocks that touch r1, which leads back to one of them; what the next register
// holds is nothing to it.
TEST(VerifierPaths, AMergeBehindTheLastWrite) {
  const auto loop = [](const std::string& before, const std::string& other) {
    return faults_of("function \"f\" 1 6 { " + before + "  " + other +
                     "  Goto @head  head: ShapeOf r3, 1, r1  If r0, @idle, @write  "
                     "write: LoadConst r1, c0  Goto @join  idle: Move r4, r2  Goto @join  "
                     "join: If r0, @head, @end  end: Ret r0 }");
  };
  for (const char* other : {"LoadConsti r2, 1", "LoadConst r2, c0", "AllocADT r2, 0, ()"}) {
    EXPECT_EQ(loop("LoadConsti r1, 1", other), "") << other;
    EXPECT_EQ(loop("LoadConst r1, c0", other), "") << other;
  }
  EXPECT_EQ(loop("LoadConsti r3, 1", "LoadConst r2, c0"), name_of_fault(Fault::kReadUnwritten));
}

}  // namespace
}  // namespace nimble::exec
