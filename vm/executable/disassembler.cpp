#include "vm/executable/disassembler.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstring>

#include "vm/base/checked.h"
#include "vm/base/element.h"
#include "vm/base/hash.h"
#include "vm/executable/assembler_lexer.h"
#include "vm/executable/opcodes.h"

namespace nimble::exec {
namespace {

std::string quoted(std::string_view s) {
  std::string out = "\"";
  for (char c : s) {
    const uint8_t u = static_cast<uint8_t>(c);
    if (c == '"' || c == '\\')
      out += {'\\', c};
    else if (c == '\n')
      out += "\\n";
    else if (c == '\t')
      out += "\\t";
    else if (u < 0x20 || u == 0x7f)
      out += fmt::format("\\x{:02x}", u);
    else
      out += c;
  }
  return out + "\"";
}

// A name that a file tells once may stand in a hundred thousand lines: what is longer is not shown
// where it is only referred to.
constexpr size_t kLongestReference = 1000;

// Text inside a comment stays on its line.
std::string one_line(std::string s) {
  std::replace_if(
      s.begin(), s.end(), [](unsigned char c) { return c < 0x20; }, ' ');
  return s;
}

template <typename Range, typename Format>
std::string joined(const Range& range, Format format) {
  std::string out;
  for (const auto& v : range) out += (out.empty() ? "" : ", ") + format(v);
  return out;
}

std::string integers(std::span<const int64_t> values) {
  return "[" + joined(values, [](int64_t v) { return std::to_string(v); }) + "]";
}

// Shortest decimal that reads back as the same bits; what decimals cannot say exactly (NaNs)
// comes as bits.
std::string element_text(DType dtype, const uint8_t* p) {
  return visit_element(dtype, p, [&]<typename T>(T value) {
    if constexpr (std::is_floating_point_v<T>) {
      if (std::isfinite(value)) return fmt::format("{}", value);
      uint64_t bits = 0;
      std::memcpy(&bits, p, size_of(dtype));
      return fmt::format("{:#x}", bits);
    }
    return std::to_string(value);
  });
}

// Nothing for the CPU.
std::string device_text(int32_t device) {
  return device == 0 ? "" : fmt::format(" device d{}", device);
}

std::string constant_text(const Constant& c, size_t index, const DisassembleOptions& options) {
  const std::string head = fmt::format("constant {} {} {}{}", quoted(c.name), name_of(c.dtype),
                                       integers(c.shape), c.hot ? " hot" : "") +
                           device_text(c.device);
  const std::optional<int64_t> size = try_byte_size(c.dtype, c.shape);
  const int64_t width = static_cast<int64_t>(size_of(c.dtype));
  if (!size || static_cast<uint64_t>(*size) != c.bytes.size())
    return fmt::format("; c{} malformed: {}, {} bytes\n", index, head, c.bytes.size());
  if (*size / width > options.max_constant_elements)
    return fmt::format("; c{}: {}, {} bytes, xxh3 {}\n", index, head, *size, hex(hash64(c.bytes)));
  std::string values;
  for (int64_t i = 0; i < *size; i += width)
    values += (i ? ", " : "") + element_text(c.dtype, c.bytes.data() + i);
  return fmt::format("{} {{ {} }}{}\n", head, values,
                     options.comments ? fmt::format("  ; c{}", index) : "");
}

// A symbol's name, in quotes where the bare word would read as something else.
std::string symbol_text(const KernelContract& contract, uint32_t index) {
  if (index >= contract.symbols.size() || contract.symbols[index].size() > kLongestReference)
    return fmt::format("<symbol {}>", index);
  static constexpr std::string_view kFeatures[] = {"ceil", "mod", "threads"};
  const std::string& name = contract.symbols[index];
  const bool bare = !name.empty() && !std::isdigit(static_cast<unsigned char>(name[0])) &&
                    !begins_kernel_statement(name) &&
                    std::ranges::find(kFeatures, name) == std::end(kFeatures) &&
                    std::all_of(name.begin(), name.end(),
                                [](unsigned char c) { return std::isalnum(c) || c == '_'; });
  return bare ? name : quoted(name);
}

std::string feature_text(const DispatchFeature& f, const KernelContract& contract) {
  auto name = [&](uint32_t i) { return symbol_text(contract, i); };
  switch (f.kind) {
    case DispatchFeature::Kind::kSymbol:
      return name(f.a);
    case DispatchFeature::Kind::kCeilDiv:
      return fmt::format("ceil({}, {})", name(f.a), f.t);
    case DispatchFeature::Kind::kMod:
      return fmt::format("mod({}, {})", name(f.a), f.t);
    case DispatchFeature::Kind::kProduct:
      return fmt::format("{} * {}", name(f.a), name(f.b));
    case DispatchFeature::Kind::kThreads:
      return "threads";
  }
  return "<unknown feature>";
}

std::string argument_text(const KernelArgument& a, const KernelContract& contract) {
  if (a.kind == KernelArgument::Kind::kScalar) return "scalar " + symbol_text(contract, a.symbol);
  if (a.kind == KernelArgument::Kind::kData) return "data";
  const char* access = a.access == Access::kIn ? "in" : a.access == Access::kOut ? "out" : "inout";
  return fmt::format("{} {}{} ({})", access, a.collapse_leading ? "rows " : "", name_of(a.dtype),
                     joined(a.dims, postfix));
}

std::string kernel_text(const Kernel& k, size_t index, const DisassembleOptions& options) {
  std::string out = fmt::format("kernel {} {{{}\n", quoted(k.name),
                                options.comments ? fmt::format("  ; k{}", index) : "");
  if (!k.source.empty()) out += fmt::format("  source {}\n", quoted(k.source));
  if (!k.workload.empty()) out += fmt::format("  workload {}\n", quoted(k.workload));
  if (!k.contract.symbols.empty()) {
    out += "  symbols";
    for (uint32_t i = 0; i < k.contract.symbols.size(); ++i)
      out += " " + symbol_text(k.contract, i);
    out += "\n";
  }
  if (k.device != 0) out += fmt::format(" {}\n", device_text(k.device));
  for (const KernelArgument& a : k.contract.arguments)
    out += "  " + argument_text(a, k.contract) + "\n";
  for (const DimProgram& p : k.contract.requirements)
    out += fmt::format("  require {}\n", postfix(p));
  out += fmt::format("  scratch {}\n  dispatch {{\n", postfix(k.contract.scratch_bytes));
  for (size_t i = 0; i < k.dispatch.nodes.size(); ++i) {
    const DispatchNode& n = k.dispatch.nodes[i];
    if (n.test == DispatchNode::Test::kLeaf)
      out += fmt::format("    {}: {}\n", i, n.yes);
    else
      out += fmt::format("    {}: {} {} {} ? {} : {}\n", i, feature_text(n.feature, k.contract),
                         n.test == DispatchNode::Test::kLessEqual ? "<=" : "==", n.threshold, n.yes,
                         n.no);
  }
  out += "  }\n";
  for (const Implementation& i : k.implementations) {
    const char* kind = i.kind == ImplementationKind::kNative   ? "native"
                       : i.kind == ImplementationKind::kVendor ? "vendor"
                       : i.kind == ImplementationKind::kHost   ? "host"
                                                               : "portable";
    out += fmt::format("  {} {}", kind, quoted(i.symbol));
    if (!i.template_name.empty()) out += " template " + quoted(i.template_name);
    if (!i.config.empty()) out += " config " + quoted(i.config);
    if (i.max_threads != 0) out += fmt::format(" threads {}", i.max_threads);
    if (i.divisible) out += " divisible";
    if (i.code_hash != 0) out += fmt::format(" hash {:#x}", i.code_hash);
    if (i.launch) {
      out += fmt::format(" launch ({}) block {} shared {}", joined(i.launch->grid, postfix),
                         i.launch->threads, i.launch->shared_bytes);
      if (i.launch->alignment != Launch::kMaxAlignment)
        out += fmt::format(" aligned {}", i.launch->alignment);
      for (const TensorMap& m : i.launch->maps)
        out += fmt::format(" map {} ({})", m.argument, joined(m.axes, [](const TensorMap::Axis& a) {
                             return fmt::format("{} by {}", postfix(a.extent), a.box);
                           }));
      if (i.launch->steps) out += " steps " + postfix(*i.launch->steps);
    }
    out += "\n";
  }
  return out + "}\n";
}

std::string comment_text(const Executable& e, const Instruction& in) {
  const auto operands = operands_of(in);
  if (!operands) return {};
  for (const OperandView& o : *operands) {
    if (is_list(o.spec->kind)) continue;
    const size_t i = static_cast<size_t>(o.value());
    const size_t functions = e.functions.size();
    switch (o.spec->kind) {
      case OperandKind::kFunc:
        if (i < functions) return e.functions[i].name;
        if (i - functions < e.scalar_functions.size()) {
          const ScalarFunction& f = e.scalar_functions[i - functions];
          return f.name + " = " + f.program.str();
        }
        return "<no such function>";
      case OperandKind::kKernel:
        return i < e.kernels.size() ? e.kernels[i].name : "<no such kernel>";
      case OperandKind::kConst:
        if (i >= e.constants.size()) return "<no such constant>";
        return fmt::format("{} {}{}", e.constants[i].name, name_of(e.constants[i].dtype),
                           integers(e.constants[i].shape));
      case OperandKind::kText:
        return i < e.texts.size() ? e.texts[i] : "<no such text>";
      default:
        break;
    }
  }
  return {};
}

std::string function_text(const Executable& e, const BytecodeFunction& f, size_t index,
                          const DisassembleOptions& options) {
  std::string out = fmt::format("function {} {} {} {{{}\n", quoted(f.name), f.parameters,
                                f.registers, options.comments ? fmt::format("  ; f{}", index) : "");
  if (!f.origin.empty()) out += fmt::format("  .origin {}\n", quoted(f.origin));
  auto note = f.notes.begin();
  auto notes_until = [&](size_t i) {
    for (; note != f.notes.end() && note->instruction <= i; ++note)
      out += fmt::format("  .note {}\n", quoted(note->text));
  };
  for (size_t i = 0; i < f.code.size(); ++i) {
    notes_until(i);
    const std::string text = fmt::format("{:4}: {}", i, disassemble(f.code[i]));
    std::string comment = options.comments ? comment_text(e, f.code[i]) : "";
    if (comment.size() > kLongestReference) comment = comment.substr(0, kLongestReference) + "…";
    comment = one_line(std::move(comment));
    out += comment.empty() ? text + "\n" : fmt::format("{:<48}  ; {}\n", text, comment);
  }
  notes_until(f.code.size());
  return out + "}\n";
}

std::string type_text(const ValueType& t, size_t number) {
  auto fields = [](const ValueType::Constructor& c) {
    return fmt::format("({})", fmt::join(c.fields, ", "));
  };
  std::string out = fmt::format("type {} ", quoted(t.name));
  switch (t.kind) {
    case ValueType::Kind::kTensor:
      out += fmt::format("tensor {} [{}] {}", name_of(t.dtype),
                         joined(t.dims, [](const std::string& s) { return quoted(s); }),
                         integers(t.extents));
      break;
    case ValueType::Kind::kScalar:
      out += fmt::format("scalar {}", name_of(t.dtype));
      break;
    case ValueType::Kind::kTuple:
      out += "tuple " + (t.constructors.empty() ? "()" : fields(t.constructors[0]));
      break;
    case ValueType::Kind::kData:
      out += "data {";
      for (const ValueType::Constructor& c : t.constructors)
        out += fmt::format(" {} {}", quoted(c.name), fields(c));
      out += " }";
      break;
  }
  return out + fmt::format("  ; {}\n", number);
}

std::string port_text(const char* kind, const Port& p) {
  if (p.type >= 0) return fmt::format("  {} {} type {}\n", kind, quoted(p.name), p.type);
  std::string out = fmt::format("  {} {} {} [{}] {}", kind, quoted(p.name), name_of(p.dtype),
                                joined(p.dims, [](const std::string& s) { return quoted(s); }),
                                integers(p.extents));
  if (!p.default_fill.empty()) out += " default " + quoted(p.default_fill);
  return out + "\n";
}

}  // namespace

std::string postfix(const DimProgram& program) {
  std::string code;
  uint32_t arguments = 0, results = program.results == 1 ? 1 : 0;
  for (const DimInstruction& in : program.code) {
    if (!code.empty()) code += ' ';
    if (in.op == DimOp::kConst) {
      code += std::to_string(in.immediate);
    } else if (in.op == DimOp::kArg) {
      code += fmt::format("a{}", in.immediate);
      arguments = std::max(arguments, static_cast<uint32_t>(in.immediate) + 1);
    } else {
      code += static_cast<size_t>(in.op) < kDimOpCount ? info_of(in.op).word : "<unknown>";
    }
  }
  if (arguments == program.arguments && results == 1) return "[" + code + "]";
  return fmt::format("[{}->{}: {}]", program.arguments, program.results, code);
}

std::string disassemble(const Instruction& in) {
  const auto operands = operands_of(in);
  if (!operands) return fmt::format("<malformed instruction {}>", static_cast<int>(in.op));
  std::string out(name_of(in.op));
  bool first = true;
  for (const OperandView& o : *operands) {
    out += first ? " " : ", ";
    first = false;
    auto prefixed = [&](const char* prefix) { return fmt::format("{}{}", prefix, o.value()); };
    switch (o.spec->kind) {
      case OperandKind::kDst:
      case OperandKind::kSrc:
      case OperandKind::kDsts:
        out += prefixed("r");
        break;
      case OperandKind::kSrcs:
        out += "(" + joined(o.values, [](int64_t v) { return fmt::format("r{}", v); }) + ")";
        break;
      case OperandKind::kImm:
        out += prefixed("");
        break;
      case OperandKind::kImms:
        out += integers(o.values);
        break;
      case OperandKind::kConst:
        out += prefixed("c");
        break;
      case OperandKind::kFunc:
        out += prefixed("f");
        break;
      case OperandKind::kKernel:
        out += prefixed("k");
        break;
      case OperandKind::kTarget:
        out += prefixed("@");
        break;
      case OperandKind::kDevice:
        out += prefixed("d");
        break;
      case OperandKind::kText:
        out += prefixed("t");
        break;
      case OperandKind::kDType:
        out += o.value() >= 0 && o.value() < kDTypeCount
                   ? std::string(name_of(static_cast<DType>(o.value())))
                   : fmt::format("<dtype {}>", o.value());
        break;
    }
  }
  return out;
}

std::string disassemble(const Executable& e, const DisassembleOptions& options) {
  std::string out;
  for (const NativeImage& i : e.images)
    out +=
        fmt::format("; image {}{} ({}), {} bytes, xxh3 {}\n", one_line(i.target),
                    device_text(i.device), one_line(fmt::format("{}", fmt::join(i.features, " "))),
                    i.bytes.size(), hex(hash64(i.bytes)));
  for (const auto& [label, value] :
       {std::pair("compiler", e.provenance.compiler),
        std::pair("toolchain", e.provenance.toolchain), std::pair("model", e.provenance.model),
        std::pair("database", e.provenance.database)})
    if (!value.empty()) out += fmt::format("; {}: {}\n", label, one_line(value));
  for (const auto& [option, value] : e.provenance.options)
    out += fmt::format("; option {}: {}\n", one_line(option), one_line(value));
  for (const std::string& t : e.texts) out += "text " + quoted(t) + "\n";
  for (size_t i = 0; i < e.constants.size(); ++i) out += constant_text(e.constants[i], i, options);
  for (size_t i = 0; i < e.scalar_functions.size(); ++i)
    out += fmt::format("scalar {} {}{}\n", quoted(e.scalar_functions[i].name),
                       postfix(e.scalar_functions[i].program),
                       options.comments ? fmt::format("  ; f{}", e.functions.size() + i) : "");
  for (size_t i = 0; i < e.kernels.size(); ++i) out += kernel_text(e.kernels[i], i, options);
  for (size_t i = 0; i < e.functions.size(); ++i)
    out += function_text(e, e.functions[i], i, options);
  for (size_t i = 0; i < e.types.size(); ++i) out += type_text(e.types[i], i);
  for (const EntryPoint& p : e.entries) {
    out += fmt::format("entry {} f{} {{\n", quoted(p.name), p.function);
    for (const Port& port : p.inputs) out += port_text("input", port);
    for (const Port& port : p.outputs) out += port_text("output", port);
    out += "}\n";
  }
  return out;
}

}  // namespace nimble::exec
