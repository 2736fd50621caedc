#include "compiler/emit/share_registers.h"

#include <gtest/gtest.h>

namespace nimble::emit {
namespace {

using exec::Opcode;

exec::BytecodeFunction function(uint32_t parameters, uint32_t registers,
                                std::vector<exec::Instruction> code) {
  exec::BytecodeFunction f{"f", parameters, registers, std::move(code), {}};
  share_registers(&f, [](int64_t index) { return index == 9 ? 2u : 1u; });
  return f;
}

TEST(ShareRegisters, TakesWhatIsNoLongerRead) {
  const auto f = function(1, 5,
                          {{Opcode::kGetTag, {1, 0}},
                           {Opcode::kMove, {2, 1}},
                           {Opcode::kMove, {3, 2}},
                           {Opcode::kMove, {4, 3}},
                           {Opcode::kRet, {4}}});
  EXPECT_EQ(f.registers, 2u);
  EXPECT_EQ(f.code[1].operands, (std::vector<int64_t>{0, 1}));  // the parameter is not read again
  EXPECT_EQ(f.code[2].operands, (std::vector<int64_t>{1, 0}));
  EXPECT_EQ(f.code[3].operands, (std::vector<int64_t>{0, 1}));
  EXPECT_EQ(f.code[4].operands, (std::vector<int64_t>{0}));
}

TEST(ShareRegisters, AnInstructionsResultIsNoneOfItsOperands) {
  const auto f = function(1, 2, {{Opcode::kMove, {1, 0}}, {Opcode::kRet, {1}}});
  EXPECT_EQ(f.registers, 2u);
}

// Register 1 is written in both branches and read behind them; nothing takes it in between.
TEST(ShareRegisters, KeepsWhatAnotherBranchHolds) {
  const auto f = function(1, 4,
                          {{Opcode::kIf, {0, 1, 3}},
                           {Opcode::kLoadConsti, {1, 7}},
                           {Opcode::kGoto, {6}},
                           {Opcode::kLoadConsti, {2, 8}},
                           {Opcode::kMove, {3, 2}},
                           {Opcode::kMove, {1, 3}},
                           {Opcode::kRet, {1}}});
  const int64_t result = f.code[6].operands[0];
  EXPECT_EQ(f.code[1].operands[0], result);
  EXPECT_EQ(f.code[5].operands[0], result);
  EXPECT_NE(f.code[3].operands[0], result);
  EXPECT_NE(f.code[4].operands[0], result);
  EXPECT_EQ(f.registers, 3u);  // the condition's register is taken again
}

TEST(ShareRegisters, KeepsResultsSideBySide) {
  const auto f = function(2, 7,
                          {{Opcode::kGetTag, {2, 0}},
                           {Opcode::kInvoke, {3, 9, 1, 2}},  // two results
                           {Opcode::kShapeOf, {5, 2, 1}},
                           {Opcode::kAllocADT, {0, 0, 4, 3, 4, 5, 6}},
                           {Opcode::kRet, {0}}});
  const std::vector<int64_t>& fields = f.code[3].operands;
  EXPECT_EQ(fields[3], f.code[1].operands[0]);
  EXPECT_EQ(fields[4], f.code[1].operands[0] + 1);
  EXPECT_EQ(fields[5], f.code[2].operands[0]);
  EXPECT_EQ(fields[6], f.code[2].operands[0] + 1);
}

}  // namespace
}  // namespace nimble::emit
