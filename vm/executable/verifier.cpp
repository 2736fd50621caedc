// The bytecode verifier. Its rules, R1 and on, stand in VerifierRules.def.
//
// Each is checked in time linear in the file, or nearly so, whatever the file says; the data-flow
// rules (R5, R6, R7, R14, R15, R21; verifier_flow.cpp) within a budget of steps.
//
// What remains for run time, because it depends on values: unknown kinds and devices, arity and
// depth of closure calls, extents and offsets of tensors against their storage, ranks of ShapeOf,
// contracts against actual shapes, field indices, element counts of reshapes, fuel, memory.
#include "vm/executable/verifier.h"

#include <algorithm>
#include <bit>
#include <map>
#include <set>

#include "vm/base/checked.h"
#include "vm/base/device_number.h"
#include "vm/executable/control_flow.h"
#include "vm/executable/effects.h"
#include "vm/executable/opcodes.h"
#include "vm/executable/verifier_flow.h"

namespace nimble::exec {
namespace {

constexpr uint32_t kMaxRegisters = 1u << 20;
constexpr int64_t kMaxAlignment = int64_t{1} << 21;
constexpr size_t kDevices = 256;

// Where a fault lies, as text only once there is one: names may be long, and there is a place for
// each instruction.
struct Place {
  std::string_view what, name;  // "kernel ", "dense"
  std::optional<size_t> instruction = std::nullopt;
  std::string str() const {
    return instruction ? fmt::format("{}@{}", name, *instruction) : fmt::format("{}{}", what, name);
  }
};

class Verifier {
 public:
  Verifier(const Executable& e, size_t limit, StepBudget* budget)
      : e_(e), limit_(limit), flow_(e, budget) {}

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
  template <Fault kFault, typename... Args>
  void report(const Place& where, Args&&... args) {
    if (found_.size() < limit_) add(where, finding<kFault>(std::forward<Args>(args)...));
  }
  void add(const Place& where, Finding f) {
    if (found_.size() < limit_) found_.push_back(violation(where.str(), std::move(f)));
  }

  // --- Functions: what one instruction shows by itself ---------------------------------------

  void check_function(const BytecodeFunction& f) {
    const size_t before = found_.size();
    const Place where{"", f.name};
    if (f.registers > kMaxRegisters)
      return report<Fault::kTooManyRegisters>(where, f.registers, kMaxRegisters);
    if (f.parameters > f.registers)
      report<Fault::kTooManyParameters>(where, f.parameters, f.registers);
    for (size_t i = 0; i < f.code.size(); ++i) check_instruction(f, i);
    check_end(f);
    check_notes(f);
    // The flow analysis indexes by registers and targets, so it needs the above to hold: which is
    // not known once there was no room for a report.
    if (found_.size() != before || found_.size() >= limit_) return;
    flow_.check(f, limit_ - found_.size(), &found_);
  }

  void check_instruction(const BytecodeFunction& f, size_t at) {
    const Instruction& in = f.code[at];
    const Place where{"", f.name, at};
    const auto operands = operands_of(in);
    if (!operands)
      return report<Fault::kBadOperands>(where, static_cast<int>(in.op), in.operands.size());
    for (const OperandView& o : *operands)
      for (int64_t v : o.values) check_operand(f, where, *o.spec, v);
    check_call(f, where, *operands, in.op);
    check_static(where, *operands, in.op);
  }

  void check_operand(const BytecodeFunction& f, const Place& where, const OperandSpec& spec,
                     int64_t v) {
    const auto within = [&]<Fault kFault>(size_t count) {  // a negative number is a large one
      if (static_cast<uint64_t>(v) >= count) report<kFault>(where, v, count);
    };
    switch (spec.kind) {
      case OperandKind::kDst:
      case OperandKind::kSrc:
      case OperandKind::kDsts:
      case OperandKind::kSrcs:
        return within.operator()<Fault::kNoSuchRegister>(f.registers);
      case OperandKind::kTarget:
        return within.operator()<Fault::kNoSuchTarget>(f.code.size());
      case OperandKind::kConst:
        return within.operator()<Fault::kNoSuchConstant>(e_.constants.size());
      case OperandKind::kKernel:
        return within.operator()<Fault::kNoSuchKernel>(e_.kernels.size());
      case OperandKind::kText:
        return within.operator()<Fault::kNoSuchText>(e_.texts.size());
      case OperandKind::kFunc:
        return within.operator()<Fault::kNoSuchFunction>(e_.functions.size() +
                                                         e_.scalar_functions.size());
      case OperandKind::kDType:
        return within.operator()<Fault::kNoSuchDType>(kDTypeCount);
      case OperandKind::kDevice:
        return within.operator()<Fault::kNoSuchDevice>(kDevices);
      case OperandKind::kImm:
      case OperandKind::kImms:
        return;
    }
  }

  void check_call(const BytecodeFunction& f, const Place& where, const Operands& o, Opcode op) {
    if (op == Opcode::kInvoke) {
      const std::optional<Callee> callee = callee_of(e_, o[1].value());
      if (!callee) return;  // R8 has spoken
      if (o[2].values.size() != callee->parameters)
        report<Fault::kCallArguments>(where, o[2].values.size(), *callee->name, callee->parameters);
      check_run(f, where, o[0].value(), callee->results);
    } else if (op == Opcode::kAllocClosure) {
      const int64_t index = o[1].value();
      if (static_cast<uint64_t>(index) >= e_.functions.size())
        return report<Fault::kClosureOfNoBytecode>(where, index);
      const BytecodeFunction& g = e_.functions[static_cast<size_t>(index)];
      if (o[2].values.size() > g.parameters)
        report<Fault::kClosureCaptures>(where, o[2].values.size(), g.name, g.parameters);
    } else if (op == Opcode::kShapeOf) {
      const auto rank = static_cast<uint64_t>(o[1].value());
      if (rank <= kMaxRank) check_run(f, where, o[0].value(), rank);
    }
  }

  // Consecutive registers that an instruction writes.
  void check_run(const BytecodeFunction& f, const Place& where, int64_t first, uint64_t count) {
    if (first >= 0 && count > 0 && static_cast<uint64_t>(first) + count > f.registers)
      report<Fault::kResultsBeyondRegisters>(where, count, first, f.registers);
  }

  void check_static(const Place& where, const Operands& o, Opcode op) {
    const auto fits = [](int64_t v) { return v >= 0 && v <= int64_t{INT32_MAX}; };
    switch (op) {
      case Opcode::kAllocStorage: {
        const int64_t alignment = o[2].value();
        if (!is_power_of_two(alignment) || alignment > kMaxAlignment)
          report<Fault::kBadAlignment>(where, alignment);
        return;
      }
      case Opcode::kAllocTensor: {
        const int64_t dtype = o[3].value();
        if (dtype < 0 || dtype >= kDTypeCount) return;
        if (o[4].values.size() > kMaxRank || !try_byte_size(static_cast<DType>(dtype), o[4].values))
          report<Fault::kBadShape>(where, fmt::join(o[4].values, ", "));
        return;
      }
      case Opcode::kAllocTensorReg:
        if (o[4].values.size() > kMaxRank) report<Fault::kBadTensorRank>(where, o[4].values.size());
        return;
      case Opcode::kReshapeTensor:
        if (o[2].values.size() > kMaxRank)
          report<Fault::kBadReshapeRank>(where, o[2].values.size());
        return;
      case Opcode::kShapeOf:
        if (o[1].value() < 0 || o[1].value() > kMaxRank)
          report<Fault::kBadShapeOfRank>(where, o[1].value());
        return;
      case Opcode::kAllocADT:
        if (!fits(o[1].value())) report<Fault::kBadTag>(where, o[1].value());
        return;
      case Opcode::kGetField:
        if (!fits(o[2].value())) report<Fault::kBadField>(where, o[2].value());
        return;
      case Opcode::kGetElement:
        if (!fits(o[2].value())) report<Fault::kBadElement>(where, o[2].value());
        return;
      default:
        return;
    }
  }

  void check_end(const BytecodeFunction& f) {
    if (f.code.empty()) return report<Fault::kNoInstructions>({"", f.name});
    const Instruction& last = f.code.back();
    if (static_cast<int>(last.op) >= kOpcodeCount) return;
    if (info_of(last.op).effect != Effect::kControl)
      report<Fault::kRunsOffTheEnd>({"", f.name, f.code.size() - 1}, name_of(last.op));
  }

  void check_notes(const BytecodeFunction& f) {
    for (size_t i = 0; i < f.notes.size(); ++i)
      if (f.notes[i].instruction >= f.code.size() ||
          (i > 0 && f.notes[i].instruction < f.notes[i - 1].instruction))
        return report<Fault::kNotePlace>({"", f.name}, i, f.notes[i].instruction);
  }

  // --- Dim programs, kernels, constants -------------------------------------------------------

  void check_scalar_functions() {
    for (const ScalarFunction& f : e_.scalar_functions)
      is_well_formed({"scalar function ", f.name}, f.program);
  }

  bool is_well_formed(const Place& where, const DimProgram& p) {
    std::optional<Finding> bad = p.find_fault();
    if (bad) add(where, std::move(*bad));
    return !bad;
  }

  // Whether it is a program of one result over at most so many values.
  bool is_program(const Place& where, const DimProgram& p, size_t available) {
    if (!is_well_formed(where, p)) return false;
    if (p.results != 1) {
      report<Fault::kDimResultsUsed>(where, p.results);
      return false;
    }
    if (p.arguments > available) {
      report<Fault::kProgramArguments>(where, p.arguments, available);
      return false;
    }
    return true;
  }

  // The same, and what it reads is bound.
  void check_program(const Place& where, const DimProgram& p, const std::vector<bool>& bound) {
    if (!is_program(where, p, bound.size())) return;
    for (const DimInstruction& in : p.code)
      if (in.op == DimOp::kArg && !bound[static_cast<size_t>(in.immediate)])
        return report<Fault::kReadBeforeBound>(where, in.immediate);
  }

  void check_contract(const Place& where, const KernelContract& c, bool host) {
    std::vector<bool> bound(c.symbols.size());
    for (const KernelArgument& a : c.arguments) {
      if (a.kind == KernelArgument::Kind::kScalar) {
        if (a.symbol >= bound.size()) {
          report<Fault::kScalarBindsNoSymbol>(where, a.symbol, bound.size());
          continue;
        }
        bound[a.symbol] = true;
        continue;
      }
      if (a.kind == KernelArgument::Kind::kData) continue;
      if (a.kind != KernelArgument::Kind::kTensor || a.access > Access::kInOut ||
          static_cast<int>(a.dtype) >= kDTypeCount || a.dims.size() > kMaxRank) {
        report<Fault::kUnknownArgument>(where);
        continue;
      }
      if (a.collapse_leading && a.dims.empty()) report<Fault::kRowsWithoutDims>(where);
      if (a.collapse_leading && host) report<Fault::kRowsOfHost>(where);
      for (const DimProgram& dim : a.dims) {
        uint32_t symbol = 0;
        if (a.access != Access::kOut && dim.is_argument(&symbol)) {
          if (is_program(where, dim, bound.size())) bound[symbol] = true;
        } else {
          check_program(where, dim, bound);
        }
      }
    }
    for (size_t i = 0; i < bound.size(); ++i)
      if (!bound[i]) report<Fault::kUnbound>(where, i, c.symbols[i]);
    for (const DimProgram& p : c.requirements) check_program(where, p, bound);
    std::vector<bool> with_threads(c.symbols.size() + 1, true);
    check_program(where, c.scratch_bytes, with_threads);
  }

  void check_kernels() {
    std::set<std::string_view> names;
    for (const Kernel& k : e_.kernels) {
      const Place where{"kernel ", k.name};
      const size_t before = found_.size();
      if (k.name.empty()) report<Fault::kKernelNoName>(where);
      if (!names.insert(k.name).second) report<Fault::kKernelNameTwice>(where);
      const bool host =
          std::any_of(k.implementations.begin(), k.implementations.end(),
                      [](const Implementation& i) { return i.kind == ImplementationKind::kHost; });
      check_contract(where, k.contract, host);
      if (auto bad = k.dispatch.find_fault(static_cast<uint32_t>(k.contract.symbols.size()),
                                           static_cast<uint32_t>(k.implementations.size())))
        add(where, std::move(*bad));
      check_device(where, k.device);
      for (const Implementation& i : k.implementations)
        if (i.symbol.empty() || i.max_threads < 0 || i.kind > ImplementationKind::kPortable)
          report<Fault::kBadImplementation>(where, i.symbol, static_cast<int>(i.kind),
                                            i.max_threads);
      for (const Implementation& i : k.implementations) check_launch(where, k, i);
      check_data_arguments(where, k);
      check_portable(where, k, found_.size() == before);
    }
  }

  void check_data_arguments(const Place& where, const Kernel& k) {
    const bool takes_data =
        std::any_of(k.contract.arguments.begin(), k.contract.arguments.end(),
                    [](const KernelArgument& a) { return a.kind == KernelArgument::Kind::kData; });
    if (!takes_data) return;
    bool host = !k.portable;
    for (const Implementation& i : k.implementations) host &= i.kind == ImplementationKind::kHost;
    if (!host) report<Fault::kDataOffHost>(where);
  }

  void check_launch(const Place& where, const Kernel& k, const Implementation& i) {
    const bool gpu = is_gpu(k.device), native = i.kind == ImplementationKind::kNative;
    // A vendor's routine gets addresses of the device's, and what it is told is checked where it is
    // prepared and called (vm/library/device_routine.h).
    if (gpu && !native && i.kind != ImplementationKind::kVendor)
      return report<Fault::kGpuImplementation>(where, i.symbol, static_cast<int>(i.kind));
    if (!i.launch) {
      if (gpu && native) report<Fault::kLaunchMissing>(where, i.symbol);
      return;
    }
    if (!gpu || !native) return report<Fault::kLaunchElsewhere>(where, i.symbol);
    for (const DimProgram& p : i.launch->grid) is_program(where, p, k.contract.symbols.size());
    if (i.launch->steps) is_program(where, *i.launch->steps, k.contract.symbols.size());
    const uint32_t threads = i.launch->threads;
    if (threads == 0 || threads % Launch::kWarp != 0 || threads > Launch::kMaxThreads)
      report<Fault::kLaunchThreads>(where, i.symbol, threads);
    if (i.launch->shared_bytes > Launch::kMaxSharedBytes)
      report<Fault::kLaunchShared>(where, i.symbol, i.launch->shared_bytes,
                                   Launch::kMaxSharedBytes);
    if (!std::has_single_bit(i.launch->alignment) || i.launch->alignment > Launch::kMaxAlignment)
      report<Fault::kLaunchAlignment>(where, i.symbol, i.launch->alignment, Launch::kMaxAlignment);
    check_maps(where, k, i);
  }

  void check_maps(const Place& where, const Kernel& k, const Implementation& i) {
    const Launch& l = *i.launch;
    if (l.maps.empty()) return;
    if (l.maps.size() > Launch::kMaxMaps)
      report<Fault::kMapsMany>(where, i.symbol, l.maps.size(), Launch::kMaxMaps);
    if (l.alignment != Launch::kMaxAlignment)
      report<Fault::kMapsAlignment>(where, i.symbol, l.alignment, Launch::kMaxAlignment);
    std::vector<const KernelArgument*> tensors;
    for (const KernelArgument& a : k.contract.arguments)
      if (a.kind == KernelArgument::Kind::kTensor) tensors.push_back(&a);
    for (const TensorMap& m : l.maps) {
      if (m.argument >= tensors.size() || tensors[m.argument]->access != Access::kIn) {
        report<Fault::kMapArgument>(where, i.symbol, m.argument, tensors.size());
        continue;
      }
      if (m.axes.empty() || m.axes.size() > TensorMap::kMaxRank) {
        report<Fault::kMapRank>(where, i.symbol, m.axes.size(), TensorMap::kMaxRank);
        continue;
      }
      for (const TensorMap::Axis& a : m.axes) {
        is_program(where, a.extent, k.contract.symbols.size());
        if (a.box == 0 || a.box > TensorMap::kMaxBox)
          report<Fault::kMapBox>(where, i.symbol, a.box, TensorMap::kMaxBox);
      }
      const DType t = tensors[m.argument]->dtype;
      const uint64_t size = static_cast<int>(t) < kDTypeCount ? size_of(t) : 0;
      const uint64_t line = size * m.axes[0].box;
      if (line != 32 && line != 64 && line != 128) report<Fault::kMapLine>(where, i.symbol, line);
    }
  }

  void check_device(const Place& where, int32_t device) {
    if (device < 0 || device >= static_cast<int32_t>(kDevices))
      report<Fault::kBadDevice>(where, device);
  }

  void check_portable(const Place& where, const Kernel& k, bool contract_is_sound) {
    if (!k.portable) {
      for (const Implementation& i : k.implementations)
        if (i.kind == ImplementationKind::kPortable) return report<Fault::kPortableMissing>(where);
      return;
    }
    if (!contract_is_sound) return;
    if (const auto fault = verify_portable(*k.portable, k.contract))
      report<Fault::kPortableUnsound>(where, fault->instruction, fault->rule,
                                      portable_rule_sentence(fault->rule), fault->message);
  }

  void check_constant(const Constant& c) {
    const Place where{"constant ", c.name};
    check_device(where, c.device);
    if (static_cast<int>(c.dtype) >= kDTypeCount)
      return report<Fault::kConstantDType>(where, static_cast<int>(c.dtype));
    const std::optional<int64_t> size = try_byte_size(c.dtype, c.shape);
    if (!size || c.shape.size() > kMaxRank)
      return report<Fault::kConstantShape>(where, fmt::join(c.shape, ", "));
    if (static_cast<uint64_t>(*size) != c.bytes.size())
      return report<Fault::kConstantBytes>(where, c.bytes.size(), name_of(c.dtype),
                                           fmt::join(c.shape, ", "));
    if (c.dtype == DType::kBool &&
        std::any_of(c.bytes.begin(), c.bytes.end(), [](uint8_t b) { return b > 1; }))
      report<Fault::kConstantBool>(where);
  }

  // --- What the outside sees ------------------------------------------------------------------

  void check_type(const ValueType& t) {
    const Place where{"type ", t.name};
    const bool composite = t.kind == ValueType::Kind::kTuple || t.kind == ValueType::Kind::kData;
    if (t.kind > ValueType::Kind::kData || static_cast<int>(t.dtype) >= kDTypeCount)
      return report<Fault::kTypeKind>(where, static_cast<int>(t.kind), static_cast<int>(t.dtype));
    if (t.dims.size() != t.extents.size() || t.dims.size() > kMaxRank ||
        (t.kind != ValueType::Kind::kTensor && !t.dims.empty()) ||
        std::any_of(t.extents.begin(), t.extents.end(), [](int64_t x) { return x < -1; }))
      report<Fault::kTypeDims>(where, t.dims.size(), fmt::join(t.extents, ", "));
    if (t.kind == ValueType::Kind::kScalar && t.dtype != DType::kI64 && t.dtype != DType::kBool)
      report<Fault::kTypeScalar>(where, name_of(t.dtype));
    if (composite ? t.constructors.empty() : !t.constructors.empty())
      report<Fault::kTypeConstructors>(where, t.constructors.size());
    if (t.kind == ValueType::Kind::kTuple && t.constructors.size() > 1)
      report<Fault::kTypeTuple>(where, t.constructors.size());
    for (const ValueType::Constructor& c : t.constructors) {
      if (t.kind == ValueType::Kind::kData && c.name.empty())
        report<Fault::kTypeConstructorName>(where);
      for (uint32_t field : c.fields)
        if (field >= e_.types.size())
          report<Fault::kTypeField>(where, field, e_.types.size(), c.name);
    }
  }

  void check_ports(const Place& where, const std::vector<Port>& ports) {
    std::set<std::string_view> names;
    for (const Port& p : ports) {
      if (p.name.empty() || !names.insert(p.name).second) report<Fault::kPortName>(where, p.name);
      if (p.type < -1 || p.type >= static_cast<int64_t>(e_.types.size()))
        report<Fault::kPortType>(where, p.name, p.type, e_.types.size());
      if (p.type >= 0 && (!p.dims.empty() || !p.default_fill.empty()))
        report<Fault::kPortTyped>(where, p.name);
      if (static_cast<int>(p.dtype) >= kDTypeCount || p.dims.size() != p.extents.size() ||
          p.dims.size() > kMaxRank)
        report<Fault::kPortDims>(where, p.name, p.dims.size(), p.extents.size());
      if (std::any_of(p.extents.begin(), p.extents.end(), [](int64_t x) { return x < -1; }))
        report<Fault::kPortExtent>(where, p.name);
      if (p.default_fill != "" && p.default_fill != "zeros" && p.default_fill != "ones")
        report<Fault::kPortDefault>(where, p.name, p.default_fill);
    }
  }

  void check_entries() {
    std::set<std::string_view> names;
    for (const EntryPoint& p : e_.entries) {
      const Place where{"entry ", p.name};
      if (p.name.empty() || !names.insert(p.name).second) report<Fault::kEntryName>(where);
      check_ports(where, p.inputs);
      check_ports(where, p.outputs);
      if (p.function >= e_.functions.size()) {
        report<Fault::kEntryFunction>(where, p.function, e_.functions.size());
        continue;
      }
      if (p.inputs.size() != e_.functions[p.function].parameters)
        report<Fault::kEntryInputs>(where, p.inputs.size(), e_.functions[p.function].parameters);
      if (p.outputs.empty()) report<Fault::kEntryOutputs>(where);
    }
  }

  // Native symbols of GPUs by device, and a kernel that is made of each.
  using Symbols = std::map<std::pair<int32_t, std::string_view>, std::string_view>;

  Symbols gpu_symbols() const {
    Symbols out;
    for (const Kernel& k : e_.kernels)
      for (const Implementation& i : k.implementations)
        if (is_gpu(k.device) && i.kind == ImplementationKind::kNative)
          out.try_emplace({k.device, i.symbol}, k.name);
    return out;
  }

  void check_images() {
    const Symbols needed = gpu_symbols();
    std::set<std::pair<int32_t, std::string_view>> targets;
    for (const NativeImage& i : e_.images) {
      const Place where{"image ", i.target};
      if (i.target.empty() || !targets.emplace(i.device, i.target).second)
        report<Fault::kImageTarget>(where);
      if (i.device != kCpuDevice && !is_gpu(i.device)) report<Fault::kImageDevice>(where, i.device);
      if (i.bytes.empty()) report<Fault::kImageEmpty>(where);
      if (!i.modules.empty()) check_modules(i, needed, where);
    }
  }

  // Of a GPU's image in several: they are the image, and they have every kernel.
  void check_modules(const NativeImage& image, const Symbols& needed, const Place& where) {
    if (!is_gpu(image.device)) report<Fault::kModulesElsewhere>(where);
    std::set<std::string_view> symbols;
    uint64_t left = image.bytes.size();
    for (const NativeImage::Module& m : image.modules) {
      if (m.symbol.empty() || !symbols.insert(m.symbol).second)
        report<Fault::kModuleSymbol>(where, m.symbol);
      if (m.bytes == 0 || m.bytes > left) {
        report<Fault::kModuleBytes>(where, m.symbol, m.bytes, left);
        return;
      }
      left -= m.bytes;
    }
    if (left > 0) report<Fault::kModulesEnd>(where, left);
    // The first that is missing is told: so an image costs what its modules do, however many
    // kernels the file has.
    for (auto n = needed.lower_bound({image.device, ""}); n != needed.end(); ++n) {
      if (n->first.first != image.device) return;
      if (!symbols.contains(n->first.second))
        return report<Fault::kModuleMissing>(where, n->first.second, n->second);
    }
  }

  const Executable& e_;
  const size_t limit_;
  FlowVerifier flow_;
  std::vector<Violation> found_;
};

// Of small files: what they may take does not matter.
constexpr uint64_t kLeastSteps = 1 << 16;
// A node of the flow takes some of them, and nodes are numbered by 31 bits.
constexpr uint64_t kMostSteps = uint64_t{1} << 32;

// The least that the bytecode can take in a file.
uint64_t bytecode_bytes(const Executable& e) {
  uint64_t bytes = 0;
  for (const BytecodeFunction& f : e.functions)
    for (const Instruction& in : f.code) bytes += 1 + in.operands.size();
  return bytes;
}

}  // namespace

std::vector<Violation> find_violations(const Executable& executable, size_t limit, uint64_t steps,
                                       VerificationEffort* effort) {
  if (steps == 0)
    steps =
        std::clamp(kVerificationStepsPerByte * bytecode_bytes(executable), kLeastSteps, kMostSteps);
  StepBudget budget(steps);
  std::vector<Violation> found = Verifier(executable, limit, &budget).run();
  if (effort) *effort = {budget.spent(), budget.total()};
  return found;
}

void verify(const Executable& executable, const std::string& place, uint64_t steps) {
  const std::vector<Violation> found = find_violations(executable, 1, steps);
  if (found.empty()) return;
  const Violation& v = found.front();
  const bool exhausted = v.fault == Fault::kTooManySteps;
  throw Error(
      exhausted ? Status::kExhausted : Status::kCorrupt, place + ": " + v.where,
      fmt::format("breaks rule R{} ({}): {}", v.rule, rule_sentence(v.rule), v.message),
      exhausted ? "raise verification_limit in the load options (nimble: --load-steps) if it is an "
                  "honest file"
                : "compile the model anew");
}

}  // namespace nimble::exec
