// Seeds of the fuzz target `vm` that run portable kernels, for which the assembler has no text:
// between them they use every operation, each on types that the verifier accepts.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "vm/executable/assembler.h"
#include "vm/executable/executable.h"

namespace nimble::fuzz {

// main(x: f32 (n)) -> f32 (n) by one kernel; its contract's symbol n is index slot 0.
inline constexpr const char* kPortableText = R"(scalar "bytes" [a0 4 *]
kernel "portable" {
  symbols n
  in f32 ([a0])
  out f32 ([a0])
  dispatch { 0: 0 }
  portable "portable"
}
function "main" 1 6 {
  ShapeOf r1, 1, r0
  Invoke r2, f"bytes", (r1)
  AllocStorage r3, r2, 64, d0
  LoadConsti r4, 0
  AllocTensorReg r5, r3, r4, f32, (r1)
  InvokePacked k"portable", (r0, r5)
  Ret r5
}
entry "main" f0 {
  input "x" f32 ["n"] [-1]
  output "y" f32 ["n"] [-1]
}
)";

// A scalar and a vector register of every dtype.
inline int64_t portable_register(DType t, bool vector) {
  return 2 * static_cast<int64_t>(t) + (vector ? 1 : 0);
}

// The registers of one operation, result first (memory apart): what its type rule asks for.
// `memory`: the buffers' dtype.
inline std::vector<int64_t> portable_registers(exec::PortableTypes types, DType memory) {
  using exec::PortableTypes;
  const auto vector = [](DType t) { return portable_register(t, true); };
  const auto scalar = [](DType t) { return portable_register(t, false); };
  switch (types) {
    case PortableTypes::kNone:
      return {};
    case PortableTypes::kSame:
      return {vector(DType::kF16), vector(DType::kF16)};
    case PortableTypes::kInteger:
      return std::vector<int64_t>(4, vector(DType::kI16));
    case PortableTypes::kLogic:
      return std::vector<int64_t>(4, vector(DType::kBool));
    case PortableTypes::kFloat:
      return std::vector<int64_t>(4, vector(DType::kF64));
    case PortableTypes::kCompare:
      return {vector(DType::kBool), vector(DType::kF32), vector(DType::kF32)};
    case PortableTypes::kSelect:
      return {vector(DType::kF32), vector(DType::kBool), vector(DType::kF32), vector(DType::kF32)};
    case PortableTypes::kCast:
      return {vector(DType::kI8), vector(DType::kF32)};
    case PortableTypes::kBitcast:
      return {vector(DType::kI32), vector(DType::kF32)};
    case PortableTypes::kBroadcast:
      return {vector(DType::kF32), scalar(DType::kF32)};
    case PortableTypes::kReduceNumber:
    case PortableTypes::kExtract:
      return {scalar(DType::kF32), vector(DType::kF32)};
    case PortableTypes::kReduceLogic:
      return {scalar(DType::kBool), vector(DType::kBool)};
    case PortableTypes::kIota:
      return {vector(DType::kI32)};
    case PortableTypes::kFromIndex:
    case PortableTypes::kIndexOf:
      return {scalar(DType::kI64)};
    case PortableTypes::kNumber:
    case PortableTypes::kConst:
      return std::vector<int64_t>(4, vector(DType::kF32));
    case PortableTypes::kMemory:
      return std::vector<int64_t>(4, vector(memory));
  }
  return {};
}

// Index slots: 1 is always 0, 2 a loop's variable, 3 what is left of n, 4 scratch.
inline exec::PortableInstruction portable_instruction(exec::PortableOp op, DType memory) {
  const exec::PortableOpInfo& info = exec::info_of(op);
  const std::vector<int64_t> registers = portable_registers(info.types, memory);
  exec::PortableInstruction out{op, {}};
  const bool unmasked =
      op == exec::PortableOp::kLoadStrided || op == exec::PortableOp::kStoreStrided;
  const int64_t slots[] = {2, 1, unmasked ? 1 : 3, 1};  // element, 0, lanes that are left, stride
  size_t value = 0, read = 0;
  for (size_t i = 0; i < info.operands.size(); ++i) {
    switch (info.operands[i]) {
      case 'J':
        out.operands[i] = 4;
        break;
      case 'I':
        out.operands[i] = slots[read++];
        break;
      case 'B':
        out.operands[i] = 0;
        break;
      case 'S':
        out.operands[i] = 1;
        break;
      case 'N':
        out.operands[i] = info.types == exec::PortableTypes::kExtract ? 3 : 0;
        break;
      default:
        out.operands[i] = registers.at(value++);
    }
  }
  return out;
}

// Whether portable_instruction makes sense of it: control has blocks to close.
inline bool is_straight(exec::PortableOp op) {
  return op < exec::PortableOp::kLoop || op > exec::PortableOp::kCheck;
}

// for (i = 0; i < n; i += 4) { left = n - i; operations; masked copy }, scratch of n elements; for
// a contract of one symbol n and two tensors of a dtype.
inline exec::PortableKernel portable_kernel(const std::vector<exec::PortableOp>& operations,
                                            DType memory = DType::kF32) {
  using Op = exec::PortableOp;
  exec::PortableKernel k;
  k.indices = 6;
  for (int t = 0; t < kDTypeCount; ++t)
    for (const uint8_t lanes : {1, 4}) k.values.push_back({static_cast<DType>(t), lanes});
  k.scratch = {{memory, exec::DimProgram::argument(0)}};
  k.code = {{Op::kLoop, {2, 1, 0, 4}}, {Op::kIndexMulAdd, {3, 0, 2, -1}}};
  for (const Op op : operations) k.code.push_back(portable_instruction(op, memory));
  const int64_t x = portable_register(memory, true);
  k.code.insert(k.code.end(), {{Op::kLoadMasked, {x, 0, 1, 2, 0, 3, x}},
                               {Op::kStoreMasked, {2, 1, 2, 0, x, 3}},
                               {Op::kIf, {3}},
                               {Op::kStoreMasked, {1, 1, 2, 0, x, 3}},
                               {Op::kElse, {}},
                               {Op::kCheck, {1, 7}},
                               {Op::kEnd, {}},
                               {Op::kEnd, {}}});
  return k;
}

inline exec::Executable portable_program(const std::vector<exec::PortableOp>& operations) {
  exec::Executable e = exec::assemble(kPortableText);
  e.kernels[0].portable = portable_kernel(operations);
  return e;
}

// The copy alone, and with every operation but those of control; unmasked accesses fail in the
// tail, so memory has a program of its own for each.
inline std::vector<std::pair<std::string, exec::Executable>> portable_programs() {
  using exec::PortableOp;
  std::vector<std::pair<std::string, exec::Executable>> out;
  out.emplace_back("portable-copy", portable_program({}));
  std::vector<PortableOp> arithmetic;
  for (int i = 0; i < exec::kPortableOpCount; ++i) {
    const auto op = static_cast<PortableOp>(i);
    const exec::PortableOpInfo& info = exec::info_of(op);
    if (info.types == exec::PortableTypes::kMemory)
      out.emplace_back("portable-" + std::string(info.name), portable_program({op}));
    else if (is_straight(op))
      arithmetic.push_back(op);
  }
  out.emplace_back("portable-arithmetic", portable_program(arithmetic));
  return out;
}

}  // namespace nimble::fuzz
