// A DimProgram computes one or several 64-bit integers from 64-bit integers: shapes, storage
// sizes, loop conditions, dispatch features. It is postfix code over a small stack, verified
// once (every operand exists, the stack never underflows and ends with `results` values), then
// evaluated without checks but those of the arithmetic itself: overflow and division by zero
// fail with nimble::Error(Status::kFatal).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace nimble::exec {

enum class DimOp : uint8_t {
  kConst = 0,  // push immediate
  kArg = 1,    // push argument[immediate]
  kAdd = 2,
  kSub = 3,
  kMul = 4,
  kFloorDiv = 5,
  kMod = 6,  // rounds towards minus infinity; the modulus has the divisor's sign
  kMin = 7,
  kMax = 8,
  kBroadcast = 9,  // (1, d) -> d, (d, 1) -> d, (d, d) -> d; anything else fails
  kEq = 10,
  kNe = 11,
  kLt = 12,
  kLe = 13,  // push 0 or 1
  kAnd = 14,
  kOr = 15,
  kNot = 16,
  kSelect = 17,  // condition, then, else -> then if condition != 0
};

struct DimInstruction {
  DimOp op;
  int64_t immediate = 0;  // kConst, kArg
  friend bool operator==(const DimInstruction&, const DimInstruction&) = default;
};

struct DimProgram {
  uint32_t arguments = 0;  // how many values it reads
  uint32_t results = 1;    // how many it leaves, in order of pushing
  std::vector<DimInstruction> code;

  static DimProgram constant(int64_t value) { return {0, 1, {{DimOp::kConst, value}}}; }
  static DimProgram argument(uint32_t index) { return {index + 1, 1, {{DimOp::kArg, index}}}; }

  // Nothing if well formed, else what is wrong. Deeper stacks than 256 are refused.
  std::string verify() const;
  // Evaluates a verified program. `results` must have exactly the program's count.
  void evaluate(std::span<const int64_t> arguments, std::span<int64_t> results) const;
  int64_t evaluate1(std::span<const int64_t> arguments) const;
  // The argument's index if the whole program is one kArg; the constant if it is one kConst.
  bool is_argument(uint32_t* index) const;
  bool is_constant(int64_t* value) const;
  std::string str() const;  // infix, arguments as a0, a1, …

  friend bool operator==(const DimProgram&, const DimProgram&) = default;
};

}  // namespace nimble::exec
