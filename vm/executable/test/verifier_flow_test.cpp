// The data-flow part of the verifier on programs made to be dear, and the control flow under it.
#include <gtest/gtest.h>

#include <random>
#include <set>

#include "vm/base/error.h"
#include "vm/executable/bench/dear_programs.h"
#include "vm/executable/control_flow.h"
#include "vm/executable/test/prelude.h"
#include "vm/executable/verifier.h"

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
