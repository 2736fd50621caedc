#include "vm/executable/opcodes.h"

namespace nimble::exec {
namespace {

constexpr std::string_view kKindNames[] = {"dst",   "src",    "dsts", "srcs",   "imm",
                                           "imms",  "const",  "func", "kernel", "target",
                                           "dtype", "device", "text"};
constexpr std::string_view kOriginNames[] = {"paper", "extension"};
constexpr std::string_view kEffectNames[] = {"none", "control", "alloc", "free", "call", "packed"};

const std::array<OpcodeInfo, kOpcodeCount>& table() {
  static const std::array<OpcodeInfo, kOpcodeCount> rows = {{
#define ARG(kind, name) {OperandKind::k##kind, #name},
#define NIMBLE_OPCODE(name, source, operands, effect, sentence) \
  {#name, Origin::k##source, {operands}, Effect::k##effect, sentence},
#include "vm/executable/Opcodes.def"
#undef NIMBLE_OPCODE
#undef ARG
  }};
  return rows;
}

constexpr bool is_signed(OperandKind k) {
  return k == OperandKind::kImm || k == OperandKind::kImms;
}

}  // namespace

std::string_view name_of(OperandKind kind) {
  return kKindNames[static_cast<int>(kind)];
}
std::string_view name_of(Origin origin) {
  return kOriginNames[static_cast<int>(origin)];
}
std::string_view name_of(Effect effect) {
  return kEffectNames[static_cast<int>(effect)];
}

const OpcodeInfo& info_of(Opcode op) {
  return table()[static_cast<size_t>(op)];
}
std::string_view name_of(Opcode op) {
  return info_of(op).name;
}

std::optional<Opcode> opcode_from_name(std::string_view name) {
  for (int i = 0; i < kOpcodeCount; ++i)
    if (table()[static_cast<size_t>(i)].name == name) return static_cast<Opcode>(i);
  return std::nullopt;
}

std::optional<Operands> operands_of(const Instruction& instruction) {
  if (static_cast<int>(instruction.op) >= kOpcodeCount) return std::nullopt;
  std::span<const int64_t> rest = instruction.operands;
  Operands out;
  for (const OperandSpec& spec : info_of(instruction.op).operands) {
    if (rest.empty()) return std::nullopt;
    size_t count = 1;
    if (is_list(spec.kind)) {
      if (rest[0] < 0 || static_cast<uint64_t>(rest[0]) > rest.size() - 1) return std::nullopt;
      count = static_cast<size_t>(rest[0]);
      rest = rest.subspan(1);
    }
    out.push_back({&spec, rest.first(count)});
    rest = rest.subspan(count);
  }
  if (!rest.empty()) return std::nullopt;
  return out;
}

void encode(const Instruction& instruction, ByteWriter* out) {
  const auto operands = operands_of(instruction);
  NIMBLE_CHECK(operands, "an instruction that does not fit Opcodes.def");
  out->u8(static_cast<uint8_t>(instruction.op));
  for (const OperandView& operand : *operands) {
    if (is_list(operand.spec->kind)) out->varint(operand.values.size());
    for (int64_t v : operand.values) {
      if (is_signed(operand.spec->kind)) {
        out->svarint(v);
      } else {
        NIMBLE_CHECK(v >= 0 && v <= int64_t{UINT32_MAX}, "operand {} of {} is {}",
                     operand.spec->name, name_of(instruction.op), v);
        out->varint(static_cast<uint64_t>(v));
      }
    }
  }
}

Instruction decode(ByteReader* in) {
  const uint8_t op = in->u8();
  if (op >= kOpcodeCount) in->fail(fmt::format("unknown opcode {}", op));
  Instruction instruction{static_cast<Opcode>(op), {}};
  in->needs_memory(64);  // the operands but for lists, and what the allocator keeps
  for (const OperandSpec& spec : info_of(instruction.op).operands) {
    size_t count = 1;
    if (is_list(spec.kind)) {
      count = in->count("number of operands", 1, sizeof(int64_t));
      instruction.operands.push_back(static_cast<int64_t>(count));
    }
    for (size_t i = 0; i < count; ++i)
      instruction.operands.push_back(is_signed(spec.kind) ? in->svarint()
                                                          : int64_t{in->varint32("operand")});
  }
  return instruction;
}

}  // namespace nimble::exec
