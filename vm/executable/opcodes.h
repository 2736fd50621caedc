// Opcodes.def as data: the operand schema that the encoder, decoder, assembler, disassembler,
// verifier and documentation share.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "vm/base/bytes.h"
#include "vm/executable/executable.h"

namespace nimble::exec {

enum class OperandKind : uint8_t {
  kDst,
  kSrc,
  kDsts,
  kSrcs,
  kImm,
  kImms,
  kConst,
  kFunc,
  kKernel,
  kTarget,
  kDType,
  kDevice,
  kText,
};
std::string_view name_of(OperandKind kind);
// Whether the operand is a count followed by that many values.
constexpr bool is_list(OperandKind k) {
  return k == OperandKind::kSrcs || k == OperandKind::kImms;
}

// Where an instruction comes from: the paper's table or this implementation.
enum class Origin : uint8_t { kPaper, kExtension };
std::string_view name_of(Origin origin);

enum class Effect : uint8_t { kNone, kControl, kAlloc, kFree, kCall, kPacked };
std::string_view name_of(Effect effect);

struct OperandSpec {
  OperandKind kind;
  std::string_view name;
};

struct OpcodeInfo {
  std::string_view name;
  Origin origin;
  std::vector<OperandSpec> operands;
  Effect effect;
  std::string_view sentence;
};

#define NIMBLE_OPCODE(...) +1
inline constexpr int kOpcodeCount = 0
#include "vm/executable/Opcodes.def"
    ;
#undef NIMBLE_OPCODE

// `op` must be below kOpcodeCount.
const OpcodeInfo& info_of(Opcode op);
std::string_view name_of(Opcode op);
std::optional<Opcode> opcode_from_name(std::string_view name);

// One operand of an instruction with its values: one, or a list's elements without their count.
struct OperandView {
  const OperandSpec* spec;
  std::span<const int64_t> values;
  int64_t value() const { return values[0]; }
};

// The operands of one instruction, in the table's order.
inline constexpr size_t kMaxOperands = std::max<size_t>({
#define ARG(kind, name) +1
#define NIMBLE_OPCODE(name, source, operands, effect, sentence) 0 operands,
#include "vm/executable/Opcodes.def"
#undef NIMBLE_OPCODE
#undef ARG
});
class Operands {
 public:
  void push_back(OperandView operand) { views_[size_++] = operand; }
  size_t size() const { return size_; }
  const OperandView& operator[](size_t i) const { return views_[i]; }
  const OperandView* begin() const { return views_.data(); }
  const OperandView* end() const { return views_.data() + size_; }

 private:
  std::array<OperandView, kMaxOperands> views_{};
  size_t size_ = 0;
};

// Nothing if the instruction does not fit the table: an unknown opcode, operands missing or left
// over, a count that is negative or too large.
std::optional<Operands> operands_of(const Instruction& instruction);

// Bytes of an instruction: the opcode, then each operand as a varint (immediates zigzag, a list
// with its count before it), so that nearly all operands take one byte.
// The instruction must fit the table, with no negative value but in immediates.
void encode(const Instruction& instruction, ByteWriter* out);
// Throws Error(kCorrupt) on bytes that are no instruction. Registers, indices and targets come
// out below 2^32; whether they exist is the verifier's business.
Instruction decode(ByteReader* in);

}  // namespace nimble::exec
