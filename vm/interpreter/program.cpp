#include "vm/interpreter/program.h"

#include <algorithm>

#include "vm/base/error.h"
#include "vm/runtime/work_meter.h"

namespace nimble::rt {
namespace {

using exec::Opcode;
using exec::OperandKind;

constexpr int64_t kPoolAlignment = 64;

// Where control arrives from each instruction by jumps alone; at some Goto if they go round for
// ever. Each is looked at once, however long the chains.
std::vector<uint32_t> arrivals(const std::vector<DecodedInstruction>& code) {
  constexpr uint32_t kUnknown = UINT32_MAX;
  std::vector<uint32_t> to(code.size(), kUnknown), path;
  for (uint32_t i = 0; i < code.size(); ++i) {
    path.clear();
    uint32_t at = i;
    for (; to[at] == kUnknown; at = code[at].Goto.to) {
      to[at] = at;  // so that a path back to here ends
      if (code[at].op != Opcode::kGoto) break;
      path.push_back(at);
    }
    for (uint32_t p : path) to[p] = to[at];
  }
  return to;
}

// Takes an instruction's operands one after the other, as Opcodes.def orders them.
class OperandReader {
 public:
  OperandReader(const exec::Instruction& from, DecodedFunction* to)
      : next_(from.operands.data()), to_(to) {}

  template <OperandKind kKind>
  typename decoded::FieldOf<kKind>::Type take() {
    using Type = typename decoded::FieldOf<kKind>::Type;
    if constexpr (kKind == OperandKind::kSrcs) {
      const auto list = take_list<decoded::RegisterList>(&to_->register_lists);
      to_->longest_list = std::max(to_->longest_list, list.count);
      return list;
    } else if constexpr (kKind == OperandKind::kImms) {
      return take_list<decoded::ImmediateList>(&to_->immediates);
    } else {
      return static_cast<Type>(*next_++);
    }
  }

 private:
  template <typename List, typename T>
  List take_list(std::vector<T>* all) {
    const List list{static_cast<uint32_t>(all->size()), static_cast<uint32_t>(*next_++)};
    for (uint32_t i = 0; i < list.count; ++i) all->push_back(static_cast<T>(*next_++));
    return list;
  }

  const int64_t* next_;
  DecodedFunction* to_;
};

// Steps beyond its own of an instruction that goes through many small things.
uint32_t work_of(const exec::Executable& e, const DecodedInstruction& in) {
  const auto steps = [](uint64_t items) {
    return static_cast<uint32_t>(items / WorkMeter::kItemsPerStep);
  };
  switch (in.op) {
    case Opcode::kAllocADT:
      return steps(in.AllocADT.fields.count);
    case Opcode::kAllocClosure:
      return steps(in.AllocClosure.captured.count);
    case Opcode::kInvoke: {
      const size_t i = in.Invoke.function, functions = e.functions.size();
      const uint64_t count = in.Invoke.arguments.count;
      return steps(count + (i < functions ? e.functions[i].registers
                                          : e.scalar_functions[i - functions].program.code.size()));
    }
    default:
      return 0;
  }
}

}  // namespace

std::string_view DecodedFunction::note_of(size_t instruction) const {
  std::string_view note = "";
  for (const exec::SourceNote& n : source->notes)
    if (n.instruction <= instruction) note = n.text;
  return note;
}

std::string DecodedFunction::place_of(size_t instruction) const {
  std::string out = fmt::format("function \"{}\"", source->name);
  if (!source->origin.empty()) out += fmt::format(" ({})", source->origin);
  if (const std::string_view note = note_of(instruction); !note.empty())
    out += fmt::format(", {}", note);
  return out + fmt::format(", instruction {}", instruction);
}

DecodedFunction decode_function(const exec::Executable& executable,
                                const exec::BytecodeFunction& function) {
  DecodedFunction out;
  out.source = &function;
  out.registers = function.registers;
  out.code.reserve(function.code.size());
  for (const exec::Instruction& from : function.code) {
    OperandReader o(from, &out);
    DecodedInstruction in{from.op};
    switch (from.op) {
#define ARG(kind, name) o.take<exec::OperandKind::k##kind>(),
#define NIMBLE_OPCODE(name, source, operands, effect, sentence) \
  case Opcode::k##name:                                         \
    in.name = {operands};                                       \
    break;
#include "vm/executable/Opcodes.def"
#undef NIMBLE_OPCODE
#undef ARG
    }
    in.work = work_of(executable, in);
    if (from.op == Opcode::kAllocStorage && in.AllocStorage.alignment > kPoolAlignment)
      throw Error(Status::kUnsupported, out.place_of(out.code.size()),
                  fmt::format("a storage aligned to {} bytes", in.AllocStorage.alignment),
                  fmt::format("this runtime aligns to {}: compile the model anew", kPoolAlignment));
    out.code.push_back(in);
  }
  const std::vector<uint32_t> arrives = arrivals(out.code);
  for (size_t at = 0; at + 1 < out.code.size(); ++at) {
    DecodedInstruction& in = out.code[at];
    if (in.op != Opcode::kInvoke && in.op != Opcode::kInvokeClosure) continue;
    const uint32_t result = in.op == Opcode::kInvoke ? in.Invoke.results : in.InvokeClosure.result;
    const DecodedInstruction& next = out.code[arrives[at + 1]];
    in.tail = next.op == Opcode::kRet && next.Ret.value == result;
  }
  return out;
}

}  // namespace nimble::rt
