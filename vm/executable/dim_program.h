// A DimProgram computes one or several 64-bit integers from 64-bit integers: shapes, storage
// sizes, loop conditions, dispatch features. It is postfix code over a small stack, verified
// once (every operand exists, the stack never underflows and ends with `results` values), then
// evaluated without checks but those of the arithmetic itself: overflow and division by zero of
// extents fail with nimble::Error(Status::kFatal). Elements of tensors that live in registers are
// computed by operations of their own, which wrap (DimOps.def).
#pragma once

#include <cstdint>
#include <iterator>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "vm/executable/fault.h"

namespace nimble::exec {

enum class DimOp : uint8_t {
#define NIMBLE_DIM_OP(name, operands, word, between) k##name,
#include "vm/executable/DimOps.def"
#undef NIMBLE_DIM_OP
};
struct DimOpInfo {
  int operands;      // popped; each operation pushes one value
  const char* word;  // of the assembler; none of kConst and kArg
  bool between;      // printed between its two operands
};
inline constexpr DimOpInfo kDimOps[] = {
#define NIMBLE_DIM_OP(name, operands, word, between) {operands, word, between},
#include "vm/executable/DimOps.def"
#undef NIMBLE_DIM_OP
};
inline constexpr size_t kDimOpCount = std::size(kDimOps);
// Of an operation that exists.
inline const DimOpInfo& info_of(DimOp op) {
  return kDimOps[static_cast<size_t>(op)];
}

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

  // What is wrong, by rule R11 (VerifierRules.def); deeper stacks than 256 are refused.
  std::optional<Finding> find_fault() const;
  // The same as text, "" if it is well formed.
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
