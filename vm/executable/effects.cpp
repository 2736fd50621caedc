#include "vm/executable/effects.h"

#include "vm/executable/opcodes.h"

namespace nimble::exec {

const char* name_of(Content content) {
  constexpr const char* kNames[kContentCount] = {
      "a scalar",  "a tensor", "a constant", "a storage", "a data-type value",
      "a closure", "unknown",  "unknown",    "freed",     "unwritten"};
  return kNames[static_cast<size_t>(content)];
}

Content join(Content a, Content b) {
  if (a == b) return a;
  if (a == Content::kUnwritten || b == Content::kUnwritten) return Content::kUnwritten;
  if (a == Content::kFreed || b == Content::kFreed) return Content::kFreed;
  if (is_tensor(a) && is_tensor(b)) return Content::kConstant;
  const auto perhaps = [](Content c) {
    return c == Content::kConstant || c == Content::kPerhapsConstant;
  };
  return perhaps(a) || perhaps(b) ? Content::kPerhapsConstant : Content::kUnknown;
}

const char* name_of(Need need) {
  constexpr const char* kNames[] = {"anything",
                                    "a scalar",
                                    "a tensor",
                                    "a storage",
                                    "a data-type value",
                                    "a closure",
                                    "a scalar or a bool tensor",
                                    "a tensor or another object",
                                    "a storage or a tensor"};
  return kNames[static_cast<size_t>(need)];
}

bool fits(Need need, Content c) {
  switch (need) {
    case Need::kAnything:
      return true;
    case Need::kScalar:
      return c == Content::kScalar;
    case Need::kTensor:
      return is_tensor(c);
    case Need::kStorage:
      return c == Content::kStorage;
    case Need::kAdt:
      return c == Content::kAdt;
    case Need::kClosure:
      return c == Content::kClosure;
    case Need::kCondition:
      return c == Content::kScalar || is_tensor(c);
    case Need::kObject:
      return c != Content::kScalar;
    case Need::kMemory:
      return c == Content::kStorage || is_tensor(c);
  }
  return false;
}

std::optional<Callee> callee_of(const Executable& e, int64_t index) {
  const size_t i = static_cast<size_t>(index), functions = e.functions.size();  // large if negative
  if (i < functions) return Callee{&e.functions[i].name, e.functions[i].parameters, 1, false};
  if (i - functions >= e.scalar_functions.size()) return std::nullopt;
  const ScalarFunction& f = e.scalar_functions[i - functions];
  return Callee{&f.name, f.program.arguments, f.program.results, true};
}

void find_effects(const Executable& e, const Instruction& in, Effects* out) {
  using From = Write::From;
  out->reads.clear();
  out->writes.clear();
  const Operands o = *operands_of(in);
  const auto reg = [&](size_t operand) { return static_cast<uint32_t>(o[operand].value()); };
  const auto read = [&](size_t operand, Need need) { out->reads.push_back({reg(operand), need}); };
  const auto read_all = [&](size_t operand, Need need) {
    for (int64_t r : o[operand].values) out->reads.push_back({static_cast<uint32_t>(r), need});
  };
  const auto leave = [&](Slot slot) { out->writes.push_back({reg(0), From::kNothing, slot}); };
  const auto leave_from = [&](From from) { out->writes.push_back({reg(0), from}); };
  switch (in.op) {
    case Opcode::kMove:
      read(1, Need::kAnything);
      return leave_from(From::kCopy);
    case Opcode::kRet:
      return read(0, Need::kAnything);
    case Opcode::kIf:
      out->reads.push_back({reg(0), Need::kCondition, false, false, 0});
      return;
    case Opcode::kGoto:
      return;
    case Opcode::kFatal:
      return read_all(1, Need::kScalar);
    case Opcode::kLoadConst:
      return leave({Content::kConstant, static_cast<uint8_t>(e.constants[reg(1)].device)});
    case Opcode::kLoadConsti:
      return leave({Content::kScalar});
    case Opcode::kAllocStorage:
      read(1, Need::kScalar);
      return leave({Content::kStorage, static_cast<uint8_t>(o[3].value())});
    case Opcode::kAllocTensor:
    case Opcode::kAllocTensorReg:
      read(1, Need::kMemory);
      read(2, Need::kScalar);
      if (in.op == Opcode::kAllocTensorReg) read_all(4, Need::kScalar);
      return leave_from(From::kTensor);
    case Opcode::kAllocADT:
      read_all(2, Need::kAnything);
      return leave({Content::kAdt});
    case Opcode::kAllocClosure:
      read_all(2, Need::kAnything);
      return leave({Content::kClosure});
    case Opcode::kFreeStorage:
      read(0, Need::kStorage);
      return leave({Content::kFreed});
    case Opcode::kFreeTensor:
      read(0, Need::kObject);
      return leave({Content::kFreed});
    case Opcode::kInvoke: {
      const Callee callee = *callee_of(e, o[1].value());
      read_all(2, callee.is_scalar ? Need::kScalar : Need::kAnything);
      const Slot result{callee.is_scalar ? Content::kScalar : Content::kUnknown};
      for (uint64_t i = 0; i < callee.results; ++i)
        out->writes.push_back({reg(0) + static_cast<uint32_t>(i), From::kNothing, result});
      return;
    }
    case Opcode::kInvokeClosure:
      read(1, Need::kClosure);
      read_all(2, Need::kAnything);
      return leave({Content::kUnknown});
    case Opcode::kInvokePacked: {
      const Kernel& kernel = e.kernels[reg(0)];
      const std::vector<KernelArgument>& wanted = kernel.contract.arguments;
      if (wanted.size() != o[1].values.size()) return;
      for (size_t i = 0; i < wanted.size(); ++i) {
        Read r{static_cast<uint32_t>(o[1].values[i]), Need::kScalar, true};
        if (wanted[i].kind == KernelArgument::Kind::kData) r.need = Need::kAdt;
        if (wanted[i].kind == KernelArgument::Kind::kTensor) {
          r.need = Need::kTensor;
          r.written = wanted[i].access != Access::kIn;
          r.device = static_cast<int16_t>(kernel.device);
        }
        out->reads.push_back(r);
      }
      return;
    }
    case Opcode::kGetField:
      read(1, Need::kAdt);
      return leave({Content::kUnknown});
    case Opcode::kGetElement:
      out->reads.push_back({reg(1), Need::kTensor, false, false, 0});
      return leave({Content::kScalar});
    case Opcode::kGetStorage:
      read(1, Need::kTensor);
      return leave({Content::kStorage});
    case Opcode::kGetCapacity:
      read(1, Need::kStorage);
      return leave({Content::kScalar});
    case Opcode::kGetTag:
      read(1, Need::kAdt);
      return leave({Content::kScalar});
    case Opcode::kDeviceCopy:
      read(1, Need::kTensor);
      return leave({Content::kTensor, static_cast<uint8_t>(o[2].value())});
    case Opcode::kShapeOf:
      read(2, Need::kTensor);
      for (uint32_t i = 0; i < static_cast<uint32_t>(o[1].value()); ++i)
        out->writes.push_back({reg(0) + i, From::kNothing, {Content::kScalar}});
      return;
    case Opcode::kReshapeTensor:
      // It shares the data, so a reshaped constant is a constant.
      read(1, Need::kTensor);
      read_all(2, Need::kScalar);
      return leave_from(From::kCopy);
  }
}

Slot written(const Write& write, Slot first) {
  switch (write.from) {
    case Write::From::kNothing:
      return write.slot;
    case Write::From::kCopy:
      return first;
    case Write::From::kTensor:
      return {first.content == Content::kConstant || first.content == Content::kPerhapsConstant
                  ? Content::kConstant
                  : Content::kTensor,
              first.device};
  }
  return {};
}

}  // namespace nimble::exec
