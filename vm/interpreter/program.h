// Bytecode decoded once, at load, into records of fixed size: the dispatch loop then reads
// operands from named fields instead of walking lists.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "vm/executable/executable.h"

namespace nimble::rt {

// Fields by opcode; what an opcode does not name is unused. Lists are (list, count) into the
// function's `registers` (srcs) or `immediates` (imms).
//   Move a<-b         Ret a               If a ? b : c         Goto b
//   LoadConst a<-b    LoadConsti a<-imm   AllocStorage a<-b, imm alignment, c device
//   AllocTensor(Reg) a <- storage b, offset c, dtype, list     AllocADT a, imm tag, list
//   AllocClosure a <- function b, list    FreeStorage a        FreeTensor a
//   Invoke a… <- function b, list         InvokeClosure a <- b, list
//   InvokePacked kernel b, list           GetField a <- b, imm GetTag a <- b
//   DeviceCopy a <- b, c device           ShapeOf a… <- b, imm rank
//   ReshapeTensor a <- b, list            Fatal b, list
struct DecodedInstruction {
  exec::Opcode op;
  DType dtype = DType::kF32;
  bool tail = false;  // a call whose result is returned at once: its frame is reused
  uint32_t a = 0, b = 0, c = 0;
  uint32_t list = 0, count = 0;
  int64_t imm = 0;
};

struct DecodedFunction {
  const exec::BytecodeFunction* source = nullptr;
  uint32_t registers = 0;
  std::vector<DecodedInstruction> code;
  std::vector<uint32_t> register_lists;
  std::vector<int64_t> immediates;

  std::span<const uint32_t> sources(const DecodedInstruction& in) const {
    return {register_lists.data() + in.list, in.count};
  }
  std::span<const int64_t> immediate_list(const DecodedInstruction& in) const {
    return {immediates.data() + in.list, in.count};
  }
  // Bytes that it takes.
  uint64_t memory() const {
    return sizeof *this + code.capacity() * sizeof(DecodedInstruction) +
           register_lists.capacity() * sizeof(uint32_t) + immediates.capacity() * sizeof(int64_t);
  }
  // What an instruction was made for; ends in a zero byte. "" if the compiler did not say.
  std::string_view note_of(size_t instruction) const;
  // "main@12 (main:%37 matmul …)": where an instruction is, for messages.
  std::string place_of(size_t instruction) const;
};

// `function` must be verified. Error(kUnsupported) for alignments above the storage pool's.
DecodedFunction decode_function(const exec::BytecodeFunction& function);

}  // namespace nimble::rt
