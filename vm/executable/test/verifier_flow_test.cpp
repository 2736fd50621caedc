// The data-flow part of the verifier on programs made to be dear, and the control flow under it.
#include <gtest/gtest.h>

#include <random>
#include <set>

#include "vm/base/error.h"
#include "vm/executable/bench/dear_programs.h"
#include "vm/executable/control_flow.h"
#include "vm/executable/test/prelude.h"
#include "vm/executable/verifier.h"
#include "vm/executable/verifier_rules.h"

namespace nimble::exec {
namespace {

VerificationEffort effort_of(const Executable& e) {
  VerificationEffort effort;
  for (const Violation& v : find_violations(e, 100, 0, &effort))
    ADD_FAILURE() << v.where << " R" << v.rule << " " << v.message;
  return effort;
}

// What once took the square of its length takes a few steps for each instruction.
TEST(VerifierFlowTest, StepsAreLinearInChainsOfMoves) {
  const uint64_t small = effort_of(dear::moves_in_a_loop(1000)).steps;
  const uint64_t large = effort_of(dear::moves_in_a_loop(10000)).steps;
  EXPECT_LT(large, 11 * small);
  EXPECT_LT(large, 30 * 10000u);
}

// A wide frame costs what is used of it, however many blocks there are.
TEST(VerifierFlowTest, WideFramesCostWhatIsUsedOfThem) {
  EXPECT_LT(effort_of(dear::wide_frame_of_branches(1 << 20, 1000)).steps, 100 * 1000u);
}

// All registers live through all of many blocks: no step of its own for each pair.
TEST(VerifierFlowTest, LiveRegistersCostNothingInBlocksThatDoNotTouchThem) {
  EXPECT_LT(effort_of(dear::live_through_branches(2000, 2000)).steps, 20 * 2000u);
}

// A merge of every register at every one of many joins is quadratic whatever is done: refused.
TEST(VerifierFlowTest, ABudgetEndsWhatWouldTakeTooLong) {
  const Executable e = dear::ladder(500);
  VerificationEffort effort;
  const std::vector<Violation> found = find_violations(e, 100, 0, &effort);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].fault, Fault::kTooManySteps);
  EXPECT_EQ(found[0].where, "main");
  EXPECT_EQ(effort.steps, effort.budget);
  try {
    verify(e, "m.nimble");
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), Status::kExhausted);
    EXPECT_EQ(error.place(), "m.nimble: main");
  }
  // Who trusts the file may grant more.
  EXPECT_TRUE(find_violations(e, 100, uint64_t{1} << 30).empty());
  EXPECT_NO_THROW(verify(e, "m.nimble", uint64_t{1} << 30));
}

// No function goes unverified because an earlier one took all steps.
TEST(VerifierFlowTest, FunctionsBehindTheEndOfTheBudgetAreNotAccepted) {
  Executable e = dear::ladder(500);
  e.functions.push_back(dear::ladder(30).functions[0]);
  e.functions.back().name = "next";
  const std::vector<Violation> found = find_violations(e);
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[1].where, "next");
}

// --- From block to block -------------------------------------------------------------------------

std::string faults_of(const std::string& text) {
  std::string names;
  for (const Violation& v : find_violations(with_prelude(text)))
    names += (names.empty() ? "" : " ") + std::string(info_of(v.fault).name);
  return names;
}

// A read in the block that wrote it takes nothing from what the next block knows.
TEST(VerifierFlowTest, WhatIsReadWhereItWasWrittenIsKnownInTheNextBlock) {
  EXPECT_EQ(faults_of("function \"f\" 0 3 { LoadConsti r1, 1  Move r2, r1  Goto @3  "
                      "3: ShapeOf r2, 1, r1  Ret r2 }"),
            info_of(Fault::kWrongKind).name);
}

// What is not known stays unknown: a copy of it is no tensor, nor is what is read out of it.
TEST(VerifierFlowTest, WhatComesFromTheUnknownIsWhatItIsUsedAsInTheNextBlock) {
  for (const char* instruction : {"Move r1, r0", "GetTag r1, r0", "GetField r1, r0, 0"})
    for (const char* use : {"Invoke r1, f\"twice\", (r1)", "AllocStorage r1, r1, 64, d0"})
      EXPECT_EQ(faults_of(std::string("function \"f\" 1 2 { ") + instruction +
                          "  Goto @2  2: " + use + "  Ret r1 }"),
                "")
          << instruction << ", " << use;
  // But a scalar that was read out is one.
  EXPECT_EQ(
      faults_of("function \"f\" 1 2 { GetTag r1, r0  Goto @2  2: ShapeOf r1, 1, r1  Ret r1 }"),
      info_of(Fault::kWrongKind).name);
}

// A fault is told at the first read, and neither at later ones nor of copies.
TEST(VerifierFlowTest, AFaultIsToldOnceThroughAllBlocks) {
  EXPECT_EQ(faults_of("function \"f\" 0 2 { Move r1, r0  Goto @2  2: Move r1, r0  Goto @4  "
                      "4: AllocADT r1, 0, (r1, r0)  Ret r1 }"),
            info_of(Fault::kReadUnwritten).name);
  EXPECT_EQ(faults_of("function \"f\" 0 2 { LoadConst r0, c0  FreeTensor r0  Move r1, r0  Goto @4  "
                      "4: AllocADT r1, 0, (r1, r0)  Ret r1 }"),
            info_of(Fault::kReadFreed).name);
}

// Registers that merge at other blocks, one of them at none: each has its own.
TEST(VerifierFlowTest, MergesOfOneRegisterAreNotThoseOfAnother) {
  // r1 merges at the first join, r2 is written before it and behind it, r3 merges at the second.
  const auto program = [](const std::string& use) {
    return "function \"f\" 1 5 { LoadConsti r1, 1  LoadConsti r2, 1  LoadConsti r3, 1  "
           "If r0, @4, @5  4: LoadConst r1, c0  5: If r0, @6, @8  6: LoadConst r3, c0  Goto @8  "
           "8: LoadConst r2, c0  Goto @10  10: " +
           use + "  Ret r4 }";
  };
  const std::string wrong(info_of(Fault::kWrongKind).name);
  for (const char* unknown : {"r1", "r3"})
    for (const char* use : {"ShapeOf r4, 1, ", "AllocADT r4, 0, ("})
      EXPECT_EQ(faults_of(program(use + std::string(unknown) + (use[0] == 'S' ? "" : ")"))), "");
  EXPECT_EQ(faults_of(program("ShapeOf r4, 1, r2")), "");
  EXPECT_EQ(faults_of(program("GetField r4, r2, 0")), wrong);
  EXPECT_EQ(faults_of(program("GetField r4, r1, 0  GetField r4, r3, 0")), "");
  EXPECT_EQ(faults_of(program("Move r4, r1  GetField r4, r2, 0  Move r4, r3")), wrong);
}

// --- What is charged -----------------------------------------------------------------------------

uint64_t steps_of(const std::string& text) {
  return effort_of(with_prelude(text)).steps;
}

// An instruction of few operands may write many registers.
TEST(VerifierFlowTest, ManyResultsOfOneInstructionAreCharged) {
  const auto steps = [](int results) {
    return steps_of("function \"f\" 1 9 { ShapeOf r1, " + std::to_string(results) +
                    ", r0  Ret r0 }");
  };
  EXPECT_EQ(steps(2), steps(1) + 2);
  EXPECT_EQ(steps(8), steps(2) + 6);
}

TEST(VerifierFlowTest, RegistersThatNobodyReadsCostNothing) {
  const auto steps = [](int dead) {
    std::string code;
    int at = 0;
    for (int join = 0; join < 20; ++join) {
      code += " If r0, @" + std::to_string(at + 1) + ", @" + std::to_string(at + 1 + dead);
      for (int d = 1; d <= dead; ++d) code += " LoadConsti r" + std::to_string(d) + ", 1";
      at += 1 + dead;
    }
    return steps_of("function \"f\" 1 9 {" + code + " Ret r0 }");
  };
  EXPECT_EQ(steps(8), steps(1));
}

// --- Control flow --------------------------------------------------------------------------------

// A function of empty blocks with these successors; the last instruction of each leads on.
BytecodeFunction graph(const std::vector<std::vector<size_t>>& successors) {
  BytecodeFunction f{"f", 1, 1, {}, {}};
  for (const std::vector<size_t>& to : successors) {
    if (to.empty()) f.code.push_back({Opcode::kRet, {0}});
    if (to.size() == 1) f.code.push_back({Opcode::kGoto, {static_cast<int64_t>(to[0])}});
    if (to.size() == 2)
      f.code.push_back(
          {Opcode::kIf, {0, static_cast<int64_t>(to[0]), static_cast<int64_t>(to[1])}});
  }
  return f;
}

// Which blocks can be reached from the first one without `without`.
std::set<size_t> reached(const std::vector<std::vector<size_t>>& successors, size_t without) {
  std::set<size_t> seen;
  std::vector<size_t> work;
  if (without != 0) work.push_back(0);
  while (!work.empty()) {
    const size_t b = work.back();
    work.pop_back();
    if (!seen.insert(b).second) continue;
    for (size_t to : successors[b])
      if (to != without) work.push_back(to);
  }
  return seen;
}

// Against the definitions: a dominates b if b cannot be reached without a; b is in the frontier of
// a if a dominates a predecessor of b but is not b's dominator or is b.
TEST(ControlFlowTest, DominatorsAndFrontiersAsDefined) {
  std::mt19937_64 random(42);
  for (int trial = 0; trial < 500; ++trial) {
    const size_t count = 1 + random() % 12;
    std::vector<std::vector<size_t>> successors(count);
    for (auto& to : successors)
      for (size_t n = random() % 3; n > 0; --n) to.push_back(random() % count);
    const BytecodeFunction f = graph(successors);
    StepBudget budget(1 << 20);
    ControlFlow flow;
    flow.build(f, &budget);
    const auto blocks = flow.blocks();
    const std::set<size_t> all = reached(successors, count);
    ASSERT_EQ(blocks.size(), all.size());
    // Each instruction is a block.
    std::vector<std::set<size_t>> without(count);
    for (size_t b = 0; b < count; ++b) without[b] = reached(successors, b);
    const auto dominates = [&](size_t a, size_t b) { return a == b || !without[a].contains(b); };
    for (uint32_t a = 0; a < blocks.size(); ++a) {
      ASSERT_EQ(blocks[a].end, blocks[a].first + 1);
      std::set<size_t> frontier;
      flow.for_each_frontier(a, [&](uint32_t b) { frontier.insert(b); });
      for (uint32_t b = 0; b < blocks.size(); ++b) {
        const size_t x = blocks[a].first, y = blocks[b].first;
        EXPECT_EQ(flow.dominates(a, b), dominates(x, y)) << x << " " << y;
        bool in_frontier = false;
        for (size_t p : all)
          for (size_t to : successors[p])
            in_frontier |= to == y && dominates(x, p) && (x == y || !dominates(x, y));
        EXPECT_EQ(frontier.contains(b), in_frontier) << x << " " << y;
      }
      if (a > 0) {
        EXPECT_TRUE(flow.dominates(blocks[a].dominator, a));
        EXPECT_LT(blocks[a].dominator, a);
      }
    }
  }
}

}  // namespace
}  // namespace nimble::exec
