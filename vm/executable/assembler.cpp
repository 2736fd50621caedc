// A recursive-descent parser over a small lexer. References by name and labels are collected as
// fixups and resolved at the end of the function or of the text.
#include "vm/executable/assembler.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstring>
#include <map>

#include "vm/base/half.h"
#include "vm/executable/opcodes.h"

namespace nimble::exec {
namespace {

class Lexer {
 public:
  explicit Lexer(std::string_view text) : text_(text) { skip(); }

  [[noreturn]] void fail(const std::string& problem) const {
    const std::string_view before = text_.substr(0, at_);
    const size_t line = 1 + static_cast<size_t>(std::count(before.begin(), before.end(), '\n'));
    const size_t column =
        at_ - (before.rfind('\n') == before.npos ? 0 : before.rfind('\n') + 1) + 1;
    throw Error(Status::kInvalidArgument, fmt::format("line {}:{}", line, column), problem,
                "see the grammar in vm/executable/disassembler.h");
  }

  bool at_end() const { return at_ == text_.size(); }
  bool peek(std::string_view token) const { return text_.substr(at_).starts_with(token); }
  bool accept(std::string_view token) {
    if (!peek(token)) return false;
    // A word must not end inside a longer one.
    if (is_word(token.back()) && at_ + token.size() < text_.size() &&
        is_word(text_[at_ + token.size()]))
      return false;
    at_ += token.size();
    skip();
    return true;
  }
  void expect(std::string_view token) {
    if (!accept(token)) fail(fmt::format("\"{}\" expected", token));
  }
  bool at_digit() const {
    return !at_end() && std::isdigit(static_cast<unsigned char>(text_[at_]));
  }
  bool at_word() const { return !at_end() && is_word(text_[at_]); }

  std::string word() {
    const size_t begin = at_;
    while (at_ < text_.size() && is_word(text_[at_])) ++at_;
    if (at_ == begin) fail("a word expected");
    const std::string out(text_.substr(begin, at_ - begin));
    skip();
    return out;
  }

  // A run of characters up to white space or one of the delimiters.
  std::string raw(std::string_view delimiters) {
    const size_t begin = at_;
    while (at_ < text_.size() && !std::isspace(static_cast<unsigned char>(text_[at_])) &&
           delimiters.find(text_[at_]) == delimiters.npos)
      ++at_;
    if (at_ == begin) fail("a value expected");
    const std::string out(text_.substr(begin, at_ - begin));
    skip();
    return out;
  }

  int64_t integer() {
    int64_t value = 0;
    const char* begin = text_.data() + at_;
    const char* end = text_.data() + text_.size();
    const auto [p, code] = std::from_chars(begin, end, value);
    if (code != std::errc()) fail("an integer expected");
    at_ += static_cast<size_t>(p - begin);
    skip();
    return value;
  }
  uint32_t index() {
    const int64_t v = integer();
    if (v < 0 || v > int64_t{UINT32_MAX}) fail(fmt::format("{} is out of range", v));
    return static_cast<uint32_t>(v);
  }
  uint64_t hexadecimal() {
    if (!peek("0x")) fail("a hexadecimal number expected");
    uint64_t value = 0;
    const char* begin = text_.data() + at_ + 2;
    const auto [p, code] = std::from_chars(begin, text_.data() + text_.size(), value, 16);
    if (code != std::errc()) fail("a hexadecimal number expected");
    at_ += 2 + static_cast<size_t>(p - begin);
    skip();
    return value;
  }

  std::string string() {
    if (at_end() || text_[at_] != '"') fail("a string expected");
    std::string out;
    for (++at_; at_ < text_.size() && text_[at_] != '"'; ++at_) {
      if (text_[at_] != '\\') {
        out += text_[at_];
        continue;
      }
      if (++at_ == text_.size()) break;
      const char c = text_[at_];
      if (c == 'x') {
        unsigned value = 0;
        const char* begin = text_.data() + at_ + 1;
        const char* end = std::min(begin + 2, text_.data() + text_.size());
        const auto [p, code] = std::from_chars(begin, end, value, 16);
        if (code != std::errc() || p != begin + 2) fail("two hexadecimal digits expected");
        out += static_cast<char>(value);
        at_ += 2;
      } else if (c == '"' || c == '\\') {
        out += c;
      } else if (c == 'n' || c == 't') {
        out += c == 'n' ? '\n' : '\t';
      } else {
        fail("unknown escape");
      }
    }
    if (at_end()) fail("unterminated string");
    ++at_;
    skip();
    return out;
  }

  DType dtype() {
    const std::string name = word();
    const std::optional<DType> t = dtype_from_name(name);
    if (!t) fail(fmt::format("\"{}\" is not a dtype", name));
    return *t;
  }

  // open ITEM, ITEM, … close
  template <typename Item>
  void list(std::string_view open, std::string_view close, Item item) {
    expect(open);
    if (accept(close)) return;
    do item();
    while (accept(","));
    expect(close);
  }

 private:
  static bool is_word(char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.' || c == '$';
  }
  void skip() {
    while (at_ < text_.size()) {
      if (text_[at_] == ';')
        while (at_ < text_.size() && text_[at_] != '\n') ++at_;
      else if (std::isspace(static_cast<unsigned char>(text_[at_])))
        ++at_;
      else
        return;
    }
  }

  std::string_view text_;
  size_t at_ = 0;
};

DimProgram parse_program(Lexer* in) {
  static const auto kWords = [] {
    std::map<std::string, DimOp> words;
    for (size_t i = 0; i < kDimOpCount; ++i)
      if (kDimOps[i].operands > 0) words.emplace(kDimOps[i].word, static_cast<DimOp>(i));
    return words;
  }();
  auto number = [&](std::string_view text) {
    int64_t value = 0;
    const auto [p, code] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (code != std::errc() || p != text.data() + text.size())
      in->fail(fmt::format("\"{}\" is not a dim instruction", text));
    return value;
  };
  DimProgram program;
  bool counted = false;
  in->expect("[");
  while (!in->accept("]")) {
    const std::string word = in->raw("]");
    if (const size_t arrow = word.find("->"); arrow != word.npos && word.back() == ':') {
      program.arguments = static_cast<uint32_t>(number(word.substr(0, arrow)));
      program.results =
          static_cast<uint32_t>(number(word.substr(arrow + 2, word.size() - arrow - 3)));
      counted = true;
    } else if (auto op = kWords.find(word); op != kWords.end()) {
      program.code.push_back({op->second});
    } else if (word[0] == 'a' && word.size() > 1) {
      const int64_t index = number(word.substr(1));
      program.code.push_back({DimOp::kArg, index});
      if (!counted)
        program.arguments = std::max(program.arguments, static_cast<uint32_t>(index) + 1);
    } else {
      program.code.push_back({DimOp::kConst, number(word)});
    }
  }
  return program;
}

void append_element(Lexer* in, DType dtype, std::vector<uint8_t>* out) {
  const std::string text = in->raw(",}");
  auto put = [&](auto value) {
    const size_t at = out->size();
    out->resize(at + sizeof value);
    std::memcpy(out->data() + at, &value, sizeof value);
  };
  auto put_width = [&](uint64_t bits) {
    const size_t at = out->size();
    out->resize(at + size_of(dtype));
    std::memcpy(out->data() + at, &bits, size_of(dtype));
  };
  const char* end = text.data() + text.size();
  auto parse = [&](auto value, const char* begin, auto... base) {
    const auto [p, code] = std::from_chars(begin, end, value, base...);
    if (code != std::errc() || p != end)
      in->fail(fmt::format("\"{}\" is not a valid {}", text, name_of(dtype)));
    return value;
  };
  if (text.starts_with("0x")) return put_width(parse(uint64_t{}, text.data() + 2, 16));
  if (dtype == DType::kF64) return put(parse(double{}, text.data()));
  if (is_float(dtype)) {
    const float value = parse(float{}, text.data());
    if (dtype == DType::kF32) return put(value);
    return put(dtype == DType::kF16 ? f16_from_f32(value) : bf16_from_f32(value));
  }
  if (dtype == DType::kU64) return put(parse(uint64_t{}, text.data()));
  const int64_t value = parse(int64_t{}, text.data());
  const int bits = 8 * static_cast<int>(size_of(dtype));
  const bool fits = dtype == DType::kBool  ? value == 0 || value == 1
                    : dtype == DType::kI64 ? true
                    : is_unsigned_int(dtype)
                        ? value >= 0 && value >> bits == 0
                        : value >> (bits - 1) == 0 || value >> (bits - 1) == -1;
  if (!fits) in->fail(fmt::format("{} does not fit {}", value, name_of(dtype)));
  put_width(static_cast<uint64_t>(value));
}

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
        kernel();
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
    if (in_.accept("device")) c.device = device();
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

  std::string symbol_name() { return in_.peek("\"") ? in_.string() : in_.word(); }

  uint32_t symbol(const KernelContract& contract) {
    const std::string name = symbol_name();
    const auto at = std::find(contract.symbols.begin(), contract.symbols.end(), name);
    if (at == contract.symbols.end()) in_.fail(fmt::format("no symbol \"{}\"", name));
    return static_cast<uint32_t>(at - contract.symbols.begin());
  }

  DispatchFeature feature(const KernelContract& contract) {
    using Kind = DispatchFeature::Kind;
    DispatchFeature f;
    const bool ceil = in_.accept("ceil");
    if (ceil || in_.accept("mod")) {
      f.kind = ceil ? Kind::kCeilDiv : Kind::kMod;
      in_.expect("(");
      f.a = symbol(contract);
      in_.expect(",");
      f.t = in_.integer();
      in_.expect(")");
    } else if (in_.accept("threads")) {
      f.kind = Kind::kThreads;
    } else {
      f.a = symbol(contract);
      if (in_.accept("*")) {
        f.kind = Kind::kProduct;
        f.b = symbol(contract);
      }
    }
    return f;
  }

  void dispatch(Kernel* k) {
    in_.expect("{");
    while (!in_.accept("}")) {
      if (in_.index() != k->dispatch.nodes.size()) in_.fail("nodes come in order from 0");
      in_.expect(":");
      DispatchNode n;
      if (in_.at_digit()) {
        n.yes = in_.index();
      } else {
        n.feature = feature(k->contract);
        n.test = in_.accept("<=") ? DispatchNode::Test::kLessEqual : DispatchNode::Test::kEqual;
        if (n.test == DispatchNode::Test::kEqual) in_.expect("==");
        n.threshold = in_.integer();
        in_.expect("?");
        n.yes = in_.index();
        in_.expect(":");
        n.no = in_.index();
      }
      k->dispatch.nodes.push_back(n);
    }
  }

  Launch launch() {
    Launch l;
    in_.expect("(");
    for (size_t axis = 0; axis < l.grid.size(); ++axis) {
      if (axis > 0) in_.expect(",");
      l.grid[axis] = parse_program(&in_);
    }
    in_.expect(")");
    in_.expect("block");
    l.threads = in_.index();
    in_.expect("shared");
    l.shared_bytes = in_.index();
    if (in_.accept("aligned")) l.alignment = in_.index();
    while (in_.accept("map")) {
      TensorMap& m = l.maps.emplace_back();
      m.argument = in_.index();
      in_.list("(", ")", [&] {
        TensorMap::Axis& a = m.axes.emplace_back();
        a.extent = parse_program(&in_);
        in_.expect("by");
        a.box = in_.index();
      });
    }
    if (in_.accept("steps")) l.steps = parse_program(&in_);
    return l;
  }

  void implementation(ImplementationKind kind, Kernel* k) {
    Implementation i;
    i.kind = kind;
    i.symbol = in_.string();
    if (in_.accept("template")) i.template_name = in_.string();
    if (in_.accept("config")) i.config = in_.string();
    if (in_.accept("threads")) i.max_threads = static_cast<int32_t>(in_.integer());
    i.divisible = in_.accept("divisible");
    if (in_.accept("hash")) i.code_hash = in_.hexadecimal();
    if (in_.accept("launch")) i.launch = launch();
    k->implementations.push_back(std::move(i));
  }

  void kernel() {
    static constexpr const char* kStatements[] = {"in",     "out",     "inout",    "scalar",
                                                  "data",   "scratch", "dispatch", "native",
                                                  "vendor", "host",    "device",   "require"};
    Kernel k;
    k.name = in_.string();
    in_.expect("{");
    while (!in_.accept("}")) {
      auto tensor = [&](Access access) {
        KernelArgument a;
        a.access = access;
        a.collapse_leading = in_.accept("rows");
        a.dtype = in_.dtype();
        in_.list("(", ")", [&] { a.dims.push_back(parse_program(&in_)); });
        k.contract.arguments.push_back(std::move(a));
      };
      if (in_.accept("source")) {
        k.source = in_.string();
      } else if (in_.accept("workload")) {
        k.workload = in_.string();
      } else if (in_.accept("symbols")) {
        auto at_statement = [&] {
          return std::any_of(std::begin(kStatements), std::end(kStatements), [&](const char* s) {
            Lexer copy = in_;
            return copy.accept(s);
          });
        };
        while ((in_.at_word() && !at_statement()) || in_.peek("\""))
          k.contract.symbols.push_back(symbol_name());
      } else if (in_.accept("in")) {
        tensor(Access::kIn);
      } else if (in_.accept("out")) {
        tensor(Access::kOut);
      } else if (in_.accept("inout")) {
        tensor(Access::kInOut);
      } else if (in_.accept("scalar")) {
        KernelArgument a;
        a.kind = KernelArgument::Kind::kScalar;
        a.symbol = symbol(k.contract);
        k.contract.arguments.push_back(std::move(a));
      } else if (in_.accept("data")) {
        KernelArgument a;
        a.kind = KernelArgument::Kind::kData;
        k.contract.arguments.push_back(std::move(a));
      } else if (in_.accept("require")) {
        k.contract.requirements.push_back(parse_program(&in_));
      } else if (in_.accept("scratch")) {
        k.contract.scratch_bytes = parse_program(&in_);
      } else if (in_.accept("device")) {
        k.device = device();
      } else if (in_.accept("dispatch")) {
        dispatch(&k);
      } else if (in_.accept("native")) {
        implementation(ImplementationKind::kNative, &k);
      } else if (in_.accept("vendor")) {
        implementation(ImplementationKind::kVendor, &k);
      } else if (in_.accept("host")) {
        implementation(ImplementationKind::kHost, &k);
      } else if (in_.accept("portable")) {
        implementation(ImplementationKind::kPortable, &k);
      } else {
        in_.fail("a statement of a kernel expected");
      }
    }
    e_.kernels.push_back(std::move(k));
  }

  // A reference by index (f0) or by name (f"main"), resolved at the end. `store` gets the index.
  struct NameFixup {
    char table;
    std::string name;
    Lexer where;
    size_t function, instruction, operand;
  };
  struct LabelFixup {
    std::string name;
    Lexer where;
    size_t instruction, operand;
  };

  void reference(const char* prefix, Instruction* i) {
    if (in_.peek(std::string(prefix) + "\"")) {
      const Lexer where = in_;
      in_.raw("\"");
      names_.push_back(
          {prefix[0], in_.string(), where, e_.functions.size(), code_->size(), i->operands.size()});
      i->operands.push_back(0);
      return;
    }
    i->operands.push_back(numbered(prefix));
  }

  int32_t device() {
    const Lexer where = in_;
    const int64_t number = numbered("d");
    if (number > 255) where.fail("devices are numbered up to 255");
    return static_cast<int32_t>(number);
  }

  int64_t numbered(std::string_view prefix) {
    const Lexer where = in_;
    const std::string word = in_.word();
    int64_t value = 0;
    const char* end = word.data() + word.size();
    const auto [p, code] =
        std::from_chars(word.data() + std::min(prefix.size(), word.size()), end, value);
    if (!word.starts_with(prefix) || code != std::errc() || p != end || value < 0 ||
        value > int64_t{UINT32_MAX})
      where.fail(fmt::format("{}N expected", prefix));
    return value;
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
        i->operands.push_back(numbered("r"));
        break;
      case OperandKind::kSrcs:
        counted("(", ")", [&] { return numbered("r"); });
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
        i->operands.push_back(numbered("t"));
        break;
      case OperandKind::kDevice:
        i->operands.push_back(numbered("d"));
        break;
      case OperandKind::kDType:
        i->operands.push_back(static_cast<int64_t>(in_.dtype()));
        break;
      case OperandKind::kTarget: {
        in_.expect("@");
        const Lexer where = in_;
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
      const Lexer where = in_;
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
    p.function = static_cast<uint32_t>(numbered("f"));
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

  Lexer in_;
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
  Lexer in(text);
  DimProgram program = parse_program(&in);
  if (!in.at_end()) in.fail("one program expected");
  return program;
}

}  // namespace nimble::exec
