// Bytecode decoded once, at load, into records of fixed size: the dispatch loop then reads
// operands from named fields instead of walking lists.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "vm/executable/executable.h"
#include "vm/executable/opcodes.h"

namespace nimble::rt {

// The operands of each instruction under the names that Opcodes.def gives them.
namespace decoded {

// Where a list's elements stand in its function.
struct RegisterList {
  uint32_t first = 0, count = 0;
};
struct ImmediateList {
  uint32_t first = 0, count = 0;
};

template <exec::OperandKind kKind>
struct FieldOf {
  using Type = uint32_t;  // a register, an index, a target, a device
};
template <>
struct FieldOf<exec::OperandKind::kImm> {
  using Type = int64_t;
};
template <>
struct FieldOf<exec::OperandKind::kDType> {
  using Type = DType;
};
template <>
struct FieldOf<exec::OperandKind::kSrcs> {
  using Type = RegisterList;
};
template <>
struct FieldOf<exec::OperandKind::kImms> {
  using Type = ImmediateList;
};

#define ARG(kind, name) FieldOf<exec::OperandKind::k##kind>::Type name;
#define NIMBLE_OPCODE(name, source, operands, effect, sentence) \
  struct name {                                                 \
    operands                                                    \
  };
#include "vm/executable/Opcodes.def"
#undef NIMBLE_OPCODE
#undef ARG

}  // namespace decoded

struct DecodedInstruction {
  exec::Opcode op;
  bool tail = false;    // a call whose result is returned at once: its frame is reused
  uint32_t work = 0;    // steps that it takes beyond its own, as far as the program tells
  union {               // that of `op`
    uint64_t none = 0;  // before it is decoded
#define NIMBLE_OPCODE(name, ...) decoded::name name;
#include "vm/executable/Opcodes.def"
#undef NIMBLE_OPCODE
  };
};
static_assert(sizeof(DecodedInstruction) == 32);

struct DecodedFunction {
  const exec::BytecodeFunction* source = nullptr;
  uint32_t registers = 0;
  uint32_t longest_list = 0;  // of registers
  std::vector<DecodedInstruction> code;
  std::vector<uint32_t> register_lists;
  std::vector<int64_t> immediates;

  std::span<const uint32_t> elements(decoded::RegisterList list) const {
    return {register_lists.data() + list.first, list.count};
  }
  std::span<const int64_t> elements(decoded::ImmediateList list) const {
    return {immediates.data() + list.first, list.count};
  }
  // Bytes that it takes.
  uint64_t memory() const {
    return sizeof *this + code.capacity() * sizeof(DecodedInstruction) +
           register_lists.capacity() * sizeof(uint32_t) + immediates.capacity() * sizeof(int64_t);
  }
  // What an instruction was made for; ends in a zero byte. "" if the compiler did not say.
  std::string_view note_of(size_t instruction) const;
  // Where an instruction is, for messages: `function "body" (loop at /decoder/Loop), matmul at
  // /decoder/MatMul, instruction 12`.
  std::string place_of(size_t instruction) const;
};

// `function`, one of `executable`, must be verified. Error(kUnsupported) for alignments above the
// storage pool's.
DecodedFunction decode_function(const exec::Executable& executable,
                                const exec::BytecodeFunction& function);

}  // namespace nimble::rt
