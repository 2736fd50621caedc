// A recursive-descent parser over a small lexer. References by name and labels are collected as
// fixups and resolved at the end of the function or of the text.
#include "vm/executable/assembler.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <map>

#include "vm/executable/assembler_lexer.h"
#include "vm/executable/opcodes.h"

namespace nimble::exec {
namespace {

class Assembler {
 public:
  explicit Assembler(std::string_view text) : in_(text) {}

  Executable run() {
    while (!in_.at_end()) {
      if (in_.accept("text"))
        e_.texts.push_back(in_.string());
      else if (in_.accept("constant"))
        constant();
      else if (in_.accept("scalar"))
        scalar();
      else if (in_.accept("kernel"))
        e_.kernels.push_back(parse_kernel(&in_));
      else if (in_.accept("function"))
        function();
      else if (in_.accept("type"))
        type();
      else if (in_.accept("entry"))
        entry();
      else
        in_.fail("text, constant, scalar, kernel, function, type or entry expected");
    }
    resolve_names();
    return std::move(e_);
  }

 private:
  std::vector<int64_t> integers() {
    std::vector<int64_t> out;
    in_.list("[", "]", [&] { out.push_back(in_.integer()); });
    return out;
  }

  void constant() {
    Constant c;
    c.name = in_.string();
    c.dtype = in_.dtype();
    c.shape = integers();
    c.hot = in_.accept("hot");
    if (in_.accept("device")) c.device = in_.device();
    auto bytes = std::make_shared<std::vector<uint8_t>>();
    in_.list("{", "}", [&] { append_element(&in_, c.dtype, bytes.get()); });
    c.bytes = *bytes;
    c.owner = bytes;
    e_.constants.push_back(std::move(c));
  }

  void scalar() {
    ScalarFunction f;
    f.name = in_.string();
    f.program = parse_program(&in_);
    e_.scalar_functions.push_back(std::move(f));
  }

  // A reference by index (f0) or by name (f"main"), resolved at the end. `store` gets the index.
  struct NameFixup {
    char table;
    std::string name;
    AssemblerLexer where;
    size_t function, instruction, operand;
  };
  struct LabelFixup {
    std::string name;
    AssemblerLexer where;
    size_t instruction, operand;
  };

  void reference(const char* prefix, Instruction* i) {
    if (in_.peek(std::string(prefix) + "\"")) {
      const AssemblerLexer where = in_;
      in_.raw("\"");
      names_.push_back(
          {prefix[0], in_.string(), where, e_.functions.size(), code_->size(), i->operands.size()});
      i->operands.push_back(0);
      return;
    }
    i->operands.push_back(in_.numbered(prefix));
  }

  void operand(OperandKind kind, Instruction* i) {
    auto counted = [&](std::string_view open, std::string_view close, auto item) {
      const size_t at = i->operands.size();
      i->operands.push_back(0);
      in_.list(open, close, [&] { i->operands.push_back(item()); });
      i->operands[at] = static_cast<int64_t>(i->operands.size() - at - 1);
    };
    switch (kind) {
      case OperandKind::kDst:
      case OperandKind::kSrc:
      case OperandKind::kDsts:
        i->operands.push_back(in_.numbered("r"));
        break;
      case OperandKind::kSrcs:
        counted("(", ")", [&] { return in_.numbered("r"); });
        break;
      case OperandKind::kImm:
        i->operands.push_back(in_.integer());
        break;
      case OperandKind::kImms:
        counted("[", "]", [&] { return in_.integer(); });
        break;
      case OperandKind::kConst:
        reference("c", i);
        break;
      case OperandKind::kFunc:
        reference("f", i);
        break;
      case OperandKind::kKernel:
        reference("k", i);
        break;
      case OperandKind::kText:
        i->operands.push_back(in_.numbered("t"));
        break;
      case OperandKind::kDevice:
        i->operands.push_back(in_.numbered("d"));
        break;
      case OperandKind::kDType:
        i->operands.push_back(static_cast<int64_t>(in_.dtype()));
        break;
      case OperandKind::kTarget: {
        in_.expect("@");
        const AssemblerLexer where = in_;
        labels_used_.push_back({in_.word(), where, code_->size(), i->operands.size()});
        i->operands.push_back(0);
        break;
      }
    }
  }

  void function() {
    BytecodeFunction f;
    f.name = in_.string();
    f.parameters = in_.index();
    f.registers = in_.index();
    code_ = &f.code;
    labels_used_.clear();
    std::map<std::string, size_t> labels;
    in_.expect("{");
    while (!in_.accept("}")) {
      if (in_.accept(".origin")) {
        f.origin = in_.string();
        continue;
      }
      if (in_.accept(".note")) {
        f.notes.push_back({static_cast<uint32_t>(f.code.size()), in_.string()});
        continue;
      }
      const AssemblerLexer where = in_;
      const std::string word = in_.word();
      if (in_.accept(":")) {
        const bool number =
            std::all_of(word.begin(), word.end(), [](unsigned char c) { return std::isdigit(c); });
        if (number && word != std::to_string(f.code.size()))
          where.fail(fmt::format("this is instruction {}", f.code.size()));
        if (!number && !labels.emplace(word, f.code.size()).second)
          where.fail(fmt::format("label \"{}\" stands twice", word));
        continue;
      }
      const std::optional<Opcode> op = opcode_from_name(word);
      if (!op) where.fail(fmt::format("\"{}\" is not an opcode", word));
      Instruction i{*op, {}};
      bool first = true;
      for (const OperandSpec& spec : info_of(*op).operands) {
        if (!first) in_.expect(",");
        first = false;
        operand(spec.kind, &i);
      }
      f.code.push_back(std::move(i));
    }
    for (const LabelFixup& use : labels_used_) {
      int64_t target = 0;
      const char* end = use.name.data() + use.name.size();
      const auto [p, code] = std::from_chars(use.name.data(), end, target);
      if (code != std::errc() || p != end || target > int64_t{UINT32_MAX}) {
        const auto label = labels.find(use.name);
        if (label == labels.end()) use.where.fail(fmt::format("no label \"{}\"", use.name));
        target = static_cast<int64_t>(label->second);
      }
      f.code[use.instruction].operands[use.operand] = target;
    }
    e_.functions.push_back(std::move(f));
  }

  Port port() {
    Port p;
    p.name = in_.string();
    if (in_.accept("type")) {
      p.type = in_.integer();
      return p;
    }
    p.dtype = in_.dtype();
    in_.list("[", "]", [&] { p.dims.push_back(in_.string()); });
    p.extents = integers();
    if (in_.accept("default")) p.default_fill = in_.string();
    return p;
  }

  ValueType::Constructor constructor(std::string name) {
    ValueType::Constructor c{std::move(name), {}};
    in_.list("(", ")", [&] { c.fields.push_back(static_cast<uint32_t>(in_.integer())); });
    return c;
  }

  void type() {
    ValueType t;
    t.name = in_.string();
    if (in_.accept("tensor")) {
      t.dtype = in_.dtype();
      in_.list("[", "]", [&] { t.dims.push_back(in_.string()); });
      t.extents = integers();
    } else if (in_.accept("scalar")) {
      t.kind = ValueType::Kind::kScalar;
      t.dtype = in_.dtype();
    } else if (in_.accept("tuple")) {
      t.kind = ValueType::Kind::kTuple;
      t.constructors.push_back(constructor({}));
    } else if (in_.accept("data")) {
      t.kind = ValueType::Kind::kData;
      in_.expect("{");
      while (!in_.accept("}")) t.constructors.push_back(constructor(in_.string()));
    } else {
      in_.fail("tensor, scalar, tuple or data expected");
    }
    e_.types.push_back(std::move(t));
  }

  void entry() {
    EntryPoint p;
    p.name = in_.string();
    p.function = static_cast<uint32_t>(in_.numbered("f"));
    in_.expect("{");
    while (!in_.accept("}")) {
      if (in_.accept("input"))
        p.inputs.push_back(port());
      else if (in_.accept("output"))
        p.outputs.push_back(port());
      else
        in_.fail("input or output expected");
    }
    e_.entries.push_back(std::move(p));
  }

  void resolve_names() {
    for (const NameFixup& use : names_) {
      std::vector<std::string> table;
      if (use.table == 'f') {
        for (const BytecodeFunction& f : e_.functions) table.push_back(f.name);
        for (const ScalarFunction& f : e_.scalar_functions) table.push_back(f.name);
      } else if (use.table == 'k') {
        for (const Kernel& k : e_.kernels) table.push_back(k.name);
      } else {
        for (const Constant& c : e_.constants) table.push_back(c.name);
      }
      const auto at = std::find(table.begin(), table.end(), use.name);
      if (at == table.end()) use.where.fail(fmt::format("nothing is named \"{}\"", use.name));
      e_.functions[use.function].code[use.instruction].operands[use.operand] = at - table.begin();
    }
  }

  AssemblerLexer in_;
  Executable e_;
  std::vector<Instruction>* code_ = nullptr;  // of the function being read
  std::vector<NameFixup> names_;
  std::vector<LabelFixup> labels_used_;
};

}  // namespace

Executable assemble(std::string_view text) {
  return Assembler(text).run();
}

DimProgram assemble_program(std::string_view text) {
  AssemblerLexer in(text);
  DimProgram program = parse_program(&in);
  if (!in.at_end()) in.fail("one program expected");
  return program;
}

}  // namespace nimble::exec
