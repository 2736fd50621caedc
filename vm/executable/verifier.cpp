// The bytecode verifier. Rules:
//
//  R1  Every instruction fits Opcodes.def: a known opcode with exactly its operands.
//  R2  Every register operand is below the function's number of registers; parameters are
//      registers; a function has at most 2^20 registers, and registers times jump targets stay
//      below 2^26 (so that verification itself is bounded).
//  R3  Every target is an instruction of the function.
//  R4  No path runs off the end: the last instruction is Ret, Goto, If or Fatal.
//  R5  Every register is written on all paths before it is read.
//  R6  No register is read after FreeTensor or FreeStorage dropped it on some path.
//  R7  Registers hold what instructions need: by abstract interpretation over {scalar, tensor,
//      constant tensor, storage, data-type value, closure}, joined at merges. Where paths
//      disagree, and for parameters, fields and results of bytecode calls, the kind is unknown
//      and the interpreter looks.
//  R8  Indices of constants, functions, kernels and texts exist; a closure's function is bytecode.
//  R9  A call passes as many arguments as its function has parameters; a closure captures at
//      most as many.
//  R10 Static operands make sense: dtypes exist, alignments are powers of two up to 2^21, shapes
//      are not negative and have a size that fits 63 bits, ranks are at most 64, tags, field
//      indices and devices are not negative.
//  R11 Dim programs are well formed: operands exist, stacks are balanced, one result where one is
//      used.
//  R12 Contracts are well formed: symbols exist, each is bound by a scalar argument or a bare dim
//      of an input before anything reads it, and all are bound in the end.
//  R13 Dispatch trees are total: non-empty, nodes lead only to later nodes, leaves to
//      implementations that exist, features to symbols that exist.
//  R14 InvokePacked passes what the contract counts and needs: tensors, scalars and data-type
//      values in their places.
//  R15 InvokePacked never writes to a constant, nor to a tensor that AllocTensor placed in one.
//  R16 A constant has exactly the bytes of its dtype and shape, bools only 0 and 1.
//  R17 Entry points have unique names, exist, and their ports match the function: as many inputs
//      as parameters, an output, one extent per dim, known fills.
//  R18 Kernels have unique names and their implementations a symbol and a sensible thread limit.
//      One that takes a data-type value is the runtime's own: it has host implementations only.
//  R19 Images have unique targets and contents.
//  R20 Source notes are in order and within the function.
//  R21 Kernels and constants lie on devices below 256. Where the flow shows a tensor's device: a
//      kernel gets tensors of its own device only, and elements are read as scalars on the CPU
//      only.
//  R22 Portable kernels follow rules of their own, P1 … P12 (portable_verifier.cpp), and a kernel
//      whose implementation is its portable form has one.
//  R23 Value types are well formed: fields refer to types, a tensor has one extent per dim and at
//      most 64 of them, a scalar is i64 or bool without dims, a tuple has one constructor and a
//      data type at least one, all named; a port's type exists, and such a port has neither dims
//      nor a default.
//
// The data-flow rules (R5, R6, R7, R14, R15, R21) run over basic blocks to a fixed point. Every
// lattice value only climbs (join is a least upper bound on a lattice of height 5), so it ends.
//
// What remains for run time, because it depends on values: unknown kinds and devices, arity and
// depth of closure calls, extents and offsets of tensors against their storage, ranks of ShapeOf,
// contracts against actual shapes, field indices, element counts of reshapes, fuel, memory.
#include "vm/executable/verifier.h"

#include <algorithm>
#include <set>

#include "vm/base/checked.h"
#include "vm/executable/opcodes.h"
#include "vm/executable/verifier_flow.h"

namespace nimble::exec {
namespace {

constexpr std::string_view kSentences[kRuleCount + 1] = {
    "",
    "an instruction fits its opcode",
    "register operands are within the function",
    "jump targets are within the function",
    "no path runs off the end",
    "registers are written before they are read",
    "registers are not read after they were freed",
    "registers hold what instructions need",
    "indices of constants, functions, kernels and texts exist",
    "calls pass as many arguments as there are parameters",
    "static operands make sense",
    "dim programs are well formed",
    "contracts bind each symbol before it is read",
    "dispatch trees are total",
    "InvokePacked passes what its contract needs",
    "constants are never written",
    "constants have the bytes of their shape",
    "entry points match their functions",
    "kernels are named and implemented",
    "images have targets and contents",
    "source notes are in order",
    "tensors lie where they are read and written",
    "portable kernels are sound",
    "value types are well formed",
};

constexpr uint32_t kMaxRegisters = 1u << 20;
constexpr int64_t kMaxAlignment = int64_t{1} << 21;

class Verifier {
 public:
  Verifier(const Executable& e, size_t limit) : e_(e), limit_(limit) {}

  std::vector<Violation> run() {
    check_scalar_functions();
    for (const Constant& c : e_.constants) check_constant(c);
    check_kernels();
    for (const BytecodeFunction& f : e_.functions) check_function(f);
    for (const ValueType& t : e_.types) check_type(t);
    check_entries();
    check_images();
    return std::move(found_);
  }

 private:
  template <typename... Args>
  void report(const std::string& where, int rule, fmt::format_string<Args...> text,
              Args&&... args) {
    if (found_.size() < limit_)
      found_.push_back({where, rule, fmt::format(text, std::forward<Args>(args)...)});
  }

  // --- Functions: what one instruction shows by itself ---------------------------------------

  void check_function(const BytecodeFunction& f) {
    const size_t before = found_.size();
    if (f.registers > kMaxRegisters)
      return report(f.name, 2, "{} registers, at most {} are allowed", f.registers, kMaxRegisters);
    if (f.parameters > f.registers)
      report(f.name, 2, "{} parameters in {} registers", f.parameters, f.registers);
    for (size_t i = 0; i < f.code.size(); ++i) check_instruction(f, i);
    check_end(f);
    check_notes(f);
    // The flow analysis indexes by registers and targets, so it needs the above to hold: which is
    // not known once there was no room for a report.
    if (found_.size() != before || found_.size() >= limit_) return;
    check_flow(e_, f, limit_ - std::min(limit_, found_.size()), &found_);
  }

  void check_instruction(const BytecodeFunction& f, size_t at) {
    const Instruction& in = f.code[at];
    const std::string where = fmt::format("{}@{}", f.name, at);
    const auto operands = operands_of(in);
    if (!operands)
      return report(where, 1, "opcode {} with {} operand values", static_cast<int>(in.op),
                    in.operands.size());
    for (const OperandView& o : *operands)
      for (int64_t v : o.values) check_operand(f, where, *o.spec, v);
    check_call(f, where, *operands, in.op);
    check_static(where, *operands, in.op);
  }

  void check_operand(const BytecodeFunction& f, const std::string& where, const OperandSpec& spec,
                     int64_t v) {
    auto within = [&](int rule, const char* what, size_t count) {
      if (v < 0 || static_cast<uint64_t>(v) >= count)
        report(where, rule, "{} {} of {}", what, v, count);
    };
    switch (spec.kind) {
      case OperandKind::kDst:
      case OperandKind::kSrc:
      case OperandKind::kDsts:
      case OperandKind::kSrcs:
        return within(2, "register", f.registers);
      case OperandKind::kTarget:
        return within(3, "jump to instruction", f.code.size());
      case OperandKind::kConst:
        return within(8, "constant", e_.constants.size());
      case OperandKind::kKernel:
        return within(8, "kernel", e_.kernels.size());
      case OperandKind::kText:
        return within(8, "text", e_.texts.size());
      case OperandKind::kFunc:
        return within(8, "function", e_.functions.size() + e_.scalar_functions.size());
      case OperandKind::kDType:
        return within(10, "dtype", kDTypeCount);
      case OperandKind::kDevice:
        return within(10, "device", 256);
      case OperandKind::kImm:
      case OperandKind::kImms:
        return;
    }
  }

  void check_call(const BytecodeFunction& f, const std::string& where,
                  const std::vector<OperandView>& o, Opcode op) {
    if (op == Opcode::kInvoke) {
      const std::optional<Callee> callee = callee_of(e_, o[1].value());
      if (!callee) return;  // R8 has spoken
      if (o[2].values.size() != callee->parameters)
        report(where, 9, "{} arguments to {}, which has {} parameters", o[2].values.size(),
               *callee->name, callee->parameters);
      check_run(f, where, o[0].value(), callee->results);
    } else if (op == Opcode::kAllocClosure) {
      const int64_t index = o[1].value();
      if (index < 0 || static_cast<uint64_t>(index) >= e_.functions.size())
        return report(where, 8, "closure of function {}, which is no bytecode function", index);
      const BytecodeFunction& g = e_.functions[static_cast<size_t>(index)];
      if (o[2].values.size() > g.parameters)
        report(where, 9, "captures {} values for {}, which has {} parameters", o[2].values.size(),
               g.name, g.parameters);
    } else if (op == Opcode::kShapeOf) {
      const int64_t rank = o[1].value();
      if (rank >= 0 && rank <= kMaxRank)
        check_run(f, where, o[0].value(), static_cast<uint64_t>(rank));
    }
  }

  // Consecutive registers that an instruction writes.
  void check_run(const BytecodeFunction& f, const std::string& where, int64_t first,
                 uint64_t count) {
    if (first >= 0 && count > 0 && static_cast<uint64_t>(first) + count > f.registers)
      report(where, 2, "writes {} registers from {} of {}", count, first, f.registers);
  }

  void check_static(const std::string& where, const std::vector<OperandView>& o, Opcode op) {
    auto not_negative = [&](const char* what, int64_t v) {
      if (v < 0 || v > int64_t{INT32_MAX}) report(where, 10, "{} {}", what, v);
    };
    switch (op) {
      case Opcode::kAllocStorage: {
        const int64_t alignment = o[2].value();
        if (!is_power_of_two(alignment) || alignment > kMaxAlignment)
          report(where, 10, "alignment {}", alignment);
        return;
      }
      case Opcode::kAllocTensor: {
        const int64_t dtype = o[3].value();
        if (dtype < 0 || dtype >= kDTypeCount) return;
        if (o[4].values.size() > kMaxRank || !try_byte_size(static_cast<DType>(dtype), o[4].values))
          report(where, 10, "shape [{}]", fmt::join(o[4].values, ", "));
        return;
      }
      case Opcode::kAllocTensorReg:
        if (o[4].values.size() > kMaxRank) report(where, 10, "rank {}", o[4].values.size());
        return;
      case Opcode::kReshapeTensor:
        if (o[2].values.size() > kMaxRank) report(where, 10, "rank {}", o[2].values.size());
        return;
      case Opcode::kShapeOf:
        if (o[1].value() < 0 || o[1].value() > kMaxRank) report(where, 10, "rank {}", o[1].value());
        return;
      case Opcode::kAllocADT:
        return not_negative("tag", o[1].value());
      case Opcode::kGetField:
        if (o[2].value() == kStorageField) return;
        return not_negative("field", o[2].value());
      default:
        return;
    }
  }

  void check_end(const BytecodeFunction& f) {
    if (f.code.empty()) return report(f.name, 4, "has no instructions");
    const Instruction& last = f.code.back();
    if (static_cast<int>(last.op) >= kOpcodeCount) return;
    if (info_of(last.op).effect != Effect::kControl)
      report(fmt::format("{}@{}", f.name, f.code.size() - 1), 4, "ends with {}", name_of(last.op));
  }

  void check_notes(const BytecodeFunction& f) {
    for (size_t i = 0; i < f.notes.size(); ++i)
      if (f.notes[i].instruction >= f.code.size() ||
          (i > 0 && f.notes[i].instruction < f.notes[i - 1].instruction))
        return report(f.name, 20, "note {} is at instruction {}", i, f.notes[i].instruction);
  }

  // --- Dim programs, kernels, constants -------------------------------------------------------

  void check_scalar_functions() {
    for (const ScalarFunction& f : e_.scalar_functions)
      if (const std::string bad = f.program.verify(); !bad.empty())
        report("scalar function " + f.name, 11, "{}", bad);
  }

  // A program of one result over at most `available` values, of which the flagged are bound.
  void check_program(const std::string& where, const DimProgram& p,
                     const std::vector<bool>& bound) {
    if (const std::string bad = p.verify(); !bad.empty()) return report(where, 11, "{}", bad);
    if (p.results != 1) return report(where, 11, "{} results where one is used", p.results);
    if (p.arguments > bound.size())
      return report(where, 12, "a program takes {} values, there are {}", p.arguments,
                    bound.size());
    for (const DimInstruction& in : p.code)
      if (in.op == DimOp::kArg && !bound[static_cast<size_t>(in.immediate)])
        return report(where, 12, "symbol {} is read before it is bound", in.immediate);
  }

  void check_contract(const std::string& where, const KernelContract& c) {
    std::vector<bool> bound(c.symbols.size());
    for (const KernelArgument& a : c.arguments) {
      if (a.kind == KernelArgument::Kind::kScalar) {
        if (a.symbol >= bound.size()) {
          report(where, 12, "a scalar argument binds symbol {} of {}", a.symbol, bound.size());
          continue;
        }
        bound[a.symbol] = true;
        continue;
      }
      if (a.kind == KernelArgument::Kind::kData) continue;
      if (a.kind != KernelArgument::Kind::kTensor || a.access > Access::kInOut ||
          static_cast<int>(a.dtype) >= kDTypeCount || a.dims.size() > kMaxRank) {
        report(where, 12, "an argument of unknown kind, access, dtype or rank");
        continue;
      }
      for (const DimProgram& dim : a.dims) {
        uint32_t symbol = 0;
        if (a.access != Access::kOut && dim.results == 1 && dim.is_argument(&symbol) &&
            symbol < dim.arguments && dim.arguments <= bound.size() && !bound[symbol]) {
          if (const std::string bad = dim.verify(); !bad.empty()) report(where, 11, "{}", bad);
          bound[symbol] = true;
          continue;
        }
        check_program(where, dim, bound);
      }
    }
    for (size_t i = 0; i < bound.size(); ++i)
      if (!bound[i]) report(where, 12, "nothing binds symbol {} ({})", i, c.symbols[i]);
    for (const DimProgram& p : c.requirements) check_program(where, p, bound);
    std::vector<bool> with_threads(c.symbols.size() + 1, true);
    check_program(where, c.scratch_bytes, with_threads);
  }

  void check_kernels() {
    std::set<std::string> names;
    for (const Kernel& k : e_.kernels) {
      const std::string where = "kernel " + k.name;
      const size_t before = found_.size();
      if (k.name.empty()) report(where, 18, "has no name");
      if (!names.insert(k.name).second) report(where, 18, "the name occurs twice");
      check_contract(where, k.contract);
      if (const std::string bad =
              k.dispatch.verify(static_cast<uint32_t>(k.contract.symbols.size()),
                                static_cast<uint32_t>(k.implementations.size()));
          !bad.empty())
        report(where, 13, "{}", bad);
      check_device(where, k.device);
      for (const Implementation& i : k.implementations)
        if (i.symbol.empty() || i.max_threads < 0 || i.kind > ImplementationKind::kPortable)
          report(where, 18, "implementation \"{}\" with kind {} and {} threads", i.symbol,
                 static_cast<int>(i.kind), i.max_threads);
      check_data_arguments(where, k);
      check_portable(where, k, found_.size() == before);
    }
  }

  void check_data_arguments(const std::string& where, const Kernel& k) {
    const bool takes_data =
        std::any_of(k.contract.arguments.begin(), k.contract.arguments.end(),
                    [](const KernelArgument& a) { return a.kind == KernelArgument::Kind::kData; });
    if (!takes_data) return;
    bool host = !k.portable;
    for (const Implementation& i : k.implementations) host &= i.kind == ImplementationKind::kHost;
    if (!host) report(where, 18, "only a host operator can read a data-type value");
  }

  void check_device(const std::string& where, int32_t device) {
    if (device < 0 || device > 255) report(where, 21, "device {}", device);
  }

  void check_portable(const std::string& where, const Kernel& k, bool contract_is_sound) {
    if (!k.portable) {
      for (const Implementation& i : k.implementations)
        if (i.kind == ImplementationKind::kPortable)
          return report(where, 22, "its portable form is missing");
      return;
    }
    if (!contract_is_sound) return;
    if (const auto fault = verify_portable(*k.portable, k.contract))
      report(where, 22, "portable instruction {} breaks rule P{} ({}): {}", fault->instruction,
             fault->rule, portable_rule_sentence(fault->rule), fault->message);
  }

  void check_constant(const Constant& c) {
    const std::string where = "constant " + c.name;
    check_device(where, c.device);
    if (static_cast<int>(c.dtype) >= kDTypeCount)
      return report(where, 16, "dtype {}", static_cast<int>(c.dtype));
    const std::optional<int64_t> size = try_byte_size(c.dtype, c.shape);
    if (!size || c.shape.size() > kMaxRank)
      return report(where, 16, "shape [{}]", fmt::join(c.shape, ", "));
    if (static_cast<uint64_t>(*size) != c.bytes.size())
      return report(where, 16, "{} bytes for a {} of shape [{}]", c.bytes.size(), name_of(c.dtype),
                    fmt::join(c.shape, ", "));
    if (c.dtype == DType::kBool &&
        std::any_of(c.bytes.begin(), c.bytes.end(), [](uint8_t b) { return b > 1; }))
      report(where, 16, "a bool is neither 0 nor 1");
  }

  // --- What the outside sees ------------------------------------------------------------------

  void check_type(const ValueType& t) {
    const std::string where = "type " + t.name;
    const bool composite = t.kind == ValueType::Kind::kTuple || t.kind == ValueType::Kind::kData;
    if (t.kind > ValueType::Kind::kData || static_cast<int>(t.dtype) >= kDTypeCount)
      return report(where, 23, "kind {}, dtype {}", static_cast<int>(t.kind),
                    static_cast<int>(t.dtype));
    if (t.dims.size() != t.extents.size() || t.dims.size() > kMaxRank ||
        (t.kind != ValueType::Kind::kTensor && !t.dims.empty()) ||
        std::any_of(t.extents.begin(), t.extents.end(), [](int64_t x) { return x < -1; }))
      report(where, 23, "{} dims, extents [{}]", t.dims.size(), fmt::join(t.extents, ", "));
    if (t.kind == ValueType::Kind::kScalar && t.dtype != DType::kI64 && t.dtype != DType::kBool)
      report(where, 23, "a scalar of dtype {}", name_of(t.dtype));
    if (composite ? t.constructors.empty() : !t.constructors.empty())
      report(where, 23, "{} constructors", t.constructors.size());
    if (t.kind == ValueType::Kind::kTuple && t.constructors.size() > 1)
      report(where, 23, "a tuple of {} constructors", t.constructors.size());
    for (const ValueType::Constructor& c : t.constructors) {
      if (t.kind == ValueType::Kind::kData && c.name.empty())
        report(where, 23, "a constructor has no name");
      for (uint32_t field : c.fields)
        if (field >= e_.types.size())
          report(where, 23, "type {} of {} in {}", field, e_.types.size(), c.name);
    }
  }

  void check_ports(const std::string& where, const std::vector<Port>& ports) {
    std::set<std::string> names;
    for (const Port& p : ports) {
      if (p.name.empty() || !names.insert(p.name).second)
        report(where, 17, "port name \"{}\" is empty or occurs twice", p.name);
      if (p.type < -1 || p.type >= static_cast<int64_t>(e_.types.size()))
        report(where, 23, "port {} has type {} of {}", p.name, p.type, e_.types.size());
      if (p.type >= 0 && (!p.dims.empty() || !p.default_fill.empty()))
        report(where, 23, "port {} has a type, and dims or a default", p.name);
      if (static_cast<int>(p.dtype) >= kDTypeCount || p.dims.size() != p.extents.size() ||
          p.dims.size() > kMaxRank)
        report(where, 17, "port {} has {} dims and {} extents", p.name, p.dims.size(),
               p.extents.size());
      if (std::any_of(p.extents.begin(), p.extents.end(), [](int64_t x) { return x < -1; }))
        report(where, 17, "port {} has a negative extent", p.name);
      if (p.default_fill != "" && p.default_fill != "zeros" && p.default_fill != "ones")
        report(where, 17, "port {} has unknown default \"{}\"", p.name, p.default_fill);
    }
  }

  void check_entries() {
    std::set<std::string> names;
    for (const EntryPoint& p : e_.entries) {
      const std::string where = "entry " + p.name;
      if (p.name.empty() || !names.insert(p.name).second)
        report(where, 17, "the name is empty or occurs twice");
      check_ports(where, p.inputs);
      check_ports(where, p.outputs);
      if (p.function >= e_.functions.size()) {
        report(where, 17, "function {} of {}", p.function, e_.functions.size());
        continue;
      }
      if (p.inputs.size() != e_.functions[p.function].parameters)
        report(where, 17, "{} inputs for {} parameters", p.inputs.size(),
               e_.functions[p.function].parameters);
      if (p.outputs.empty()) report(where, 17, "has no output");
    }
  }

  void check_images() {
    std::set<std::string> targets;
    for (const NativeImage& i : e_.images) {
      const std::string where = "image " + i.target;
      if (i.target.empty() || !targets.insert(i.target).second)
        report(where, 19, "the target is empty or occurs twice");
      if (i.bytes.empty()) report(where, 19, "is empty");
    }
  }

  const Executable& e_;
  const size_t limit_;
  std::vector<Violation> found_;
};

}  // namespace

std::string_view rule_sentence(int number) {
  return number >= 1 && number <= kRuleCount ? kSentences[number] : std::string_view();
}

std::vector<Violation> find_violations(const Executable& executable, size_t limit) {
  return Verifier(executable, limit).run();
}

void verify(const Executable& executable, const std::string& place) {
  const std::vector<Violation> found = find_violations(executable, 1);
  if (found.empty()) return;
  const Violation& v = found.front();
  throw Error(Status::kCorrupt, place + ": " + v.where,
              fmt::format("breaks rule R{} ({}): {}", v.rule, rule_sentence(v.rule), v.message),
              "compile the model anew");
}

}  // namespace nimble::exec
