#include "vm/interpreter/program.h"

#include "vm/base/error.h"

namespace nimble::rt {
namespace {

using exec::Opcode;

constexpr int64_t kPoolAlignment = 64;

// Where control arrives from each instruction by jumps alone; at some Goto if they go round for
// ever. Each is looked at once, however long the chains.
std::vector<uint32_t> arrivals(const std::vector<DecodedInstruction>& code) {
  constexpr uint32_t kUnknown = UINT32_MAX;
  std::vector<uint32_t> to(code.size(), kUnknown), path;
  for (uint32_t i = 0; i < code.size(); ++i) {
    path.clear();
    uint32_t at = i;
    for (; to[at] == kUnknown; at = code[at].b) {
      to[at] = at;  // so that a path back to here ends
      if (code[at].op != Opcode::kGoto) break;
      path.push_back(at);
    }
    for (uint32_t p : path) to[p] = to[at];
  }
  return to;
}

}  // namespace

std::string_view DecodedFunction::note_of(size_t instruction) const {
  std::string_view note = "";
  for (const exec::SourceNote& n : source->notes)
    if (n.instruction <= instruction) note = n.text;
  return note;
}

std::string DecodedFunction::place_of(size_t instruction) const {
  const std::string_view note = note_of(instruction);
  if (note.empty()) return fmt::format("{}@{}", source->name, instruction);
  return fmt::format("{}@{} ({})", source->name, instruction, note);
}

DecodedFunction decode_function(const exec::BytecodeFunction& function) {
  DecodedFunction out;
  out.source = &function;
  out.registers = function.registers;
  out.code.reserve(function.code.size());
  for (size_t at = 0; at < function.code.size(); ++at) {
    const exec::Instruction& from = function.code[at];
    const std::vector<int64_t>& o = from.operands;
    DecodedInstruction in{from.op};
    auto reg = [&](size_t i) { return static_cast<uint32_t>(o[i]); };
    auto register_list = [&](size_t count_at) {
      in.list = static_cast<uint32_t>(out.register_lists.size());
      in.count = reg(count_at);
      for (uint32_t i = 0; i < in.count; ++i) out.register_lists.push_back(reg(count_at + 1 + i));
    };
    auto immediate_list = [&](size_t count_at) {
      in.list = static_cast<uint32_t>(out.immediates.size());
      in.count = reg(count_at);
      for (uint32_t i = 0; i < in.count; ++i) out.immediates.push_back(o[count_at + 1 + i]);
    };
    switch (from.op) {
      case Opcode::kMove:
      case Opcode::kLoadConst:
      case Opcode::kGetTag:
        in.a = reg(0);
        in.b = reg(1);
        break;
      case Opcode::kRet:
      case Opcode::kFreeStorage:
      case Opcode::kFreeTensor:
        in.a = reg(0);
        break;
      case Opcode::kIf:
      case Opcode::kDeviceCopy:
        in.a = reg(0);
        in.b = reg(1);
        in.c = reg(2);
        break;
      case Opcode::kGoto:
        in.b = reg(0);
        break;
      case Opcode::kLoadConsti:
        in.a = reg(0);
        in.imm = o[1];
        break;
      case Opcode::kAllocStorage:
        in.a = reg(0);
        in.b = reg(1);
        in.imm = o[2];
        in.c = reg(3);
        if (in.imm > kPoolAlignment)
          throw Error(
              Status::kUnsupported, fmt::format("{}@{}", function.name, at),
              fmt::format("a storage aligned to {} bytes", in.imm),
              fmt::format("this runtime aligns to {}: compile the model anew", kPoolAlignment));
        break;
      case Opcode::kAllocTensor:
      case Opcode::kAllocTensorReg:
        in.a = reg(0);
        in.b = reg(1);
        in.c = reg(2);
        in.dtype = static_cast<DType>(o[3]);
        if (from.op == Opcode::kAllocTensor)
          immediate_list(4);
        else
          register_list(4);
        break;
      case Opcode::kAllocADT:
        in.a = reg(0);
        in.imm = o[1];
        register_list(2);
        break;
      case Opcode::kAllocClosure:
      case Opcode::kInvoke:
      case Opcode::kInvokeClosure:
      case Opcode::kReshapeTensor:
        in.a = reg(0);
        in.b = reg(1);
        register_list(2);
        break;
      case Opcode::kInvokePacked:
      case Opcode::kFatal:
        in.b = reg(0);
        register_list(1);
        break;
      case Opcode::kGetField:
        in.a = reg(0);
        in.b = reg(1);
        in.imm = o[2];
        break;
      case Opcode::kShapeOf:
        in.a = reg(0);
        in.imm = o[1];
        in.b = reg(2);
        break;
    }
    out.code.push_back(in);
  }
  const std::vector<uint32_t> arrives = arrivals(out.code);
  for (size_t at = 0; at + 1 < out.code.size(); ++at) {
    DecodedInstruction& in = out.code[at];
    if (in.op != Opcode::kInvoke && in.op != Opcode::kInvokeClosure) continue;
    const DecodedInstruction& next = out.code[arrives[at + 1]];
    in.tail = next.op == Opcode::kRet && next.a == in.a;
  }
  return out;
}

}  // namespace nimble::rt
