// The parser of the text form: recursive descent over tokens taken on demand (dims are read by
// their own parser at the same position). A fault inside a binding is noted, then parsing goes
// on after its `;`, so that one run reports all faults. Names are resolved at once; functions
// may be used before they are defined.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <set>

#include "compiler/ir/builder.h"
#include "compiler/ir/dim_node.h"
#include "compiler/ir/op.h"
#include "compiler/ir/safetensors.h"
#include "compiler/ir/text.h"
#include "compiler/ir/text_lexer.h"
#include "vm/base/file.h"
#include "vm/base/edit_distance.h"

namespace nimble::ir {
namespace {

using Kind = Token::Kind;

struct SyntaxFault {};  // thrown after the diagnostic is noted

constexpr size_t kMaxDiagnostics = 50;
constexpr int kMaxDepth = 200;

class Parser {
 public:
  Parser(std::string_view text, const std::string& file, const std::string& constants_file)
      : text_(text), file_(file), constants_file_(constants_file) {
    for (size_t i = 0; i < text.size(); ++i) {
      if (text[i] == '\n') line_starts_.push_back(i + 1);
    }
    advance();
  }

  Module module() {
    Module m;
    while (token_.kind != Kind::kEnd) {
      try {
        item(m);
      } catch (const SyntaxFault&) {
        while (token_.kind != Kind::kEnd && !at_item()) advance();
      }
    }
    for (const auto& [name, at] : used_globals_) {
      if (!m.find(name)) {
        note(at, fmt::format("there is no function @{}", name), "define it in this file");
      }
    }
    if (m.functions.empty() && diagnostics_.empty()) {
      note(token_, "the text defines no function", "write fn @main(…) { … }");
    }
    return m;
  }

  const std::vector<Diagnostic>& diagnostics() const { return diagnostics_; }

 private:
  // ----------------------------------------------------------------- tokens and faults

  void advance() {
    token_ = lex(text_, pos_);
    pos_ = std::max(token_.end, pos_);
  }

  Location location(size_t at) const {
    auto it = std::upper_bound(line_starts_.begin(), line_starts_.end(), at);
    const auto line = static_cast<size_t>(it - line_starts_.begin());
    return {file_, static_cast<int>(line), static_cast<int>(at - line_starts_[line - 1]) + 1, {}};
  }

  void note(const Location& at, const std::string& problem, const std::string& remedy) {
    if (diagnostics_.size() >= kMaxDiagnostics) return;
    const size_t begin = line_starts_[static_cast<size_t>(at.line) - 1];
    const size_t end = std::min(text_.find('\n', begin), text_.size());
    diagnostics_.push_back({at, problem, remedy, std::string(text_.substr(begin, end - begin))});
  }
  void note(const Token& t, const std::string& problem, const std::string& remedy) {
    note(location(t.begin), problem, remedy);
  }
  [[noreturn]] void fail(const Token& t, const std::string& problem, const std::string& remedy) {
    if (t.kind == Kind::kFault) {
      note(t, t.text, "remove or correct it");
    } else {
      note(t, problem, remedy);
    }
    throw SyntaxFault{};
  }

  std::string shown(const Token& t) const {
    if (t.kind == Kind::kEnd) return "the end of the text";
    return fmt::format("`{}`", text_.substr(t.begin, t.end - t.begin));
  }
  bool is(std::string_view punctuation) const {
    return token_.kind == Kind::kPunctuation && token_.text == punctuation;
  }
  bool is_word(std::string_view word) const {
    return token_.kind == Kind::kIdentifier && token_.text == word;
  }
  bool take(std::string_view punctuation) {
    if (!is(punctuation)) return false;
    advance();
    return true;
  }
  bool take_word(std::string_view word) {
    if (!is_word(word)) return false;
    advance();
    return true;
  }
  void expect(std::string_view punctuation, const char* where) {
    if (take(punctuation)) return;
    fail(token_, fmt::format("expected `{}` {} but found {}", punctuation, where, shown(token_)),
         fmt::format("write `{}`", punctuation));
  }
  std::string expect_kind(Kind kind, const char* what) {
    if (token_.kind != kind) {
      fail(token_, fmt::format("expected {} but found {}", what, shown(token_)), "");
    }
    std::string text = token_.text;
    advance();
    return text;
  }
  bool at_item() const { return is_word("fn") || is_word("source") || is_word("signature"); }

  struct Nesting {
    explicit Nesting(Parser& p) : parser(p) {
      if (++p.depth_ > kMaxDepth) p.fail(p.token_, "the text is nested too deeply", "split it");
    }
    ~Nesting() { --parser.depth_; }
    Parser& parser;
  };

  // ----------------------------------------------------------------------------- items

  void item(Module& m) {
    if (take_word("source")) {
      m.source = expect_kind(Kind::kString, "a quoted source");
      expect(";", "after the source");
    } else if (take_word("signature")) {
      signature(m);
    } else if (is_word("fn")) {
      const Token start = token_;
      advance();
      const Token name_token = token_;
      const std::string name = expect_kind(Kind::kGlobal, "a function name such as @main");
      scopes_.clear();
      FunctionRef f = function(location(start.begin));
      if (m.find(name)) {
        note(name_token, fmt::format("@{} is defined twice", name), "rename one of them");
      } else {
        m.functions.emplace_back(name, std::move(f));
      }
    } else {
      const Token at = token_;
      advance();
      fail(at, fmt::format("expected a function but found {}", shown(at)),
           "write fn @main(…) { … }");
    }
  }

  void signature(Module& m) {
    const std::string name = expect_kind(Kind::kGlobal, "a function name");
    Module::Signature s;
    const Token at = token_;
    for (auto& [key, value] : attributes(nullptr)) {
      auto* names = std::get_if<std::vector<std::string>>(&value);
      std::vector<std::string> none;
      if (const auto* empty = std::get_if<std::vector<int64_t>>(&value); empty && empty->empty()) {
        names = &none;
      }
      auto* to = key == "inputs"     ? &s.input_names
                 : key == "outputs"  ? &s.output_names
                 : key == "defaults" ? &s.input_defaults
                                     : nullptr;
      if (!to || !names) {
        fail(at, fmt::format("`{}` is no list of names of a signature", key),
             "use inputs, outputs and defaults");
      }
      *to = *names;
    }
    m.signatures[name] = std::move(s);
    expect(";", "after the signature");
  }

  // The part of a function after its name.
  FunctionRef function(const Location& at) {
    Nesting nesting(*this);
    scopes_.emplace_back();
    expect("(", "before the parameters");
    std::vector<VarRef> parameters;
    while (!is(")")) {
      const Token name = token_;
      expect_kind(Kind::kVariable, "a parameter such as %x");
      Type t;
      if (take(":")) t = type();
      parameters.push_back(define(name, t));
      if (!take(",")) break;
    }
    expect(")", "after the parameters");
    Type result;
    if (take("->")) result = type();
    Attrs attrs;
    if (take_word("attrs")) attrs = attributes(nullptr);
    BlockRef body = block();
    scopes_.pop_back();
    return make_function_of(std::move(parameters), std::move(body), std::move(result),
                            std::move(attrs), at);
  }

  VarRef define(const Token& name, Type t) {
    for (const auto& scope : scopes_) {
      auto it = scope.find(name.text);
      if (it == scope.end()) continue;
      note(name,
           fmt::format("%{} is already defined on line {}", name.text, it->second->location.line),
           "choose another name");
      break;
    }
    VarRef v = make_var(name.text, std::move(t), location(name.begin));
    scopes_.back()[name.text] = v;
    return v;
  }

  // ---------------------------------------------------------------------------- blocks

  BlockRef block() {
    Nesting nesting(*this);
    expect("{", "before a block");
    scopes_.emplace_back();
    BlockBuilder builder;
    while (is_word("let")) {
      try {
        binding(builder);
      } catch (const SyntaxFault&) {
        recover();
      }
    }
    Atom result;
    const Token at = token_;
    try {
      if (is("}")) {
        fail(token_, "the block has no result", "end it with the value it gives, such as %x");
      }
      result = atom();
    } catch (const SyntaxFault&) {
      recover();
    }
    scopes_.pop_back();
    if (take("}")) return builder.finish(std::move(result));
    if (token_.kind == Kind::kEnd || at.kind == Kind::kEnd) {
      fail(token_, "the block does not end", "write `}`");
    }
    fail(token_, fmt::format("expected `}}` after the block's result but found {}", shown(token_)),
         "a block is a list of `let`s and one result atom");
  }

  // Skips the rest of a faulty binding: behind its `;`, or to the `}` that ends the block.
  void recover() {
    int nested = 0;
    while (token_.kind != Kind::kEnd) {
      if (nested == 0 && (is("}") || is_word("let"))) return;
      if (nested == 0 && take(";")) return;
      if (is("{")) ++nested;
      if (is("}")) --nested;
      advance();
    }
  }

  void binding(BlockBuilder& builder) {
    advance();  // let
    const Token name = token_;
    const size_t level = scopes_.size();
    expect_kind(Kind::kVariable, "a variable such as %x");
    Type t;
    // Defined even if its value is faulty, so that later uses add no errors of their own.
    try {
      if (take(":")) t = type();
      expect("=", "before the value");
      ExprRef value = expression();
      if (take_word("from")) {
        auto named = std::make_shared<Expr>(*value);
        named->location.source_name = expect_kind(Kind::kString, "a quoted name");
        value = std::move(named);
      }
      if (!is(";")) {
        fail(token_, fmt::format("expected `;` after the binding but found {}", shown(token_)),
             "end each binding with `;`");
      }
      advance();
      builder.append({define(name, std::move(t)), std::move(value)});
    } catch (const SyntaxFault&) {
      scopes_.resize(level);  // of blocks that the fault left
      define(name, nullptr);
      throw;
    }
  }

  ExprRef expression() {
    const Location at = location(token_.begin);
    if (take_word("if")) {
      expect("(", "before the condition");
      Atom condition = atom();
      expect(")", "after the condition");
      BlockRef then_block = block();
      if (!take_word("else")) fail(token_, "an `if` without `else`", "write else { … }");
      BlockRef else_block = block();
      return make_if(std::move(condition), std::move(then_block), std::move(else_block), at);
    }
    if (take_word("fn")) return make_function(function(at), at);
    if (take_word("group")) {
      if (!take_word("fn"))
        fail(token_, "expected `fn` after `group`", "write group fn(…) { … } (…)");
      FunctionRef f = function(at);
      return make_call_primitive(std::move(f), arguments(), at);
    }
    if (take("(")) {
      std::vector<Atom> fields;
      bool comma = true;
      while (!is(")") && comma) {
        fields.push_back(atom());
        comma = take(",");
      }
      expect(")", "after the fields of a tuple");
      if (fields.size() == 1 && !comma) {
        fail(token_, "a tuple of one element needs a comma", "write (%x,)");
      }
      return make_tuple(std::move(fields), at);
    }
    if (token_.kind == Kind::kIdentifier && !starts_constant()) return operator_call(at);
    Atom a = atom();
    if (is("(")) {
      if (a.is_constant()) fail(token_, "a constant cannot be called", "");
      return make_call_function(std::move(a), arguments(), at);
    }
    if (take("[")) {
      const std::string index = expect_kind(Kind::kNumber, "the index of a field");
      expect("]", "after the index of a field");
      return make_get_field(std::move(a), integer(index), at);
    }
    return make_atom(std::move(a), at);
  }

  std::vector<Atom> arguments() {
    expect("(", "before the arguments");
    std::vector<Atom> args;
    while (!is(")")) {
      args.push_back(atom());
      if (!take(",")) break;
    }
    expect(")", "after the arguments");
    return args;
  }

  ExprRef operator_call(const Location& at) {
    const Token name = token_;
    advance();
    const OpInfo* op = find_op(name.text);
    if (!op) {
      const OpInfo* nearest = nullptr;
      size_t best = 3;
      for (const OpInfo& o : all_ops()) {
        const size_t d = edit_distance(o.name, name.text);
        if (d < best) best = d, nearest = &o;
      }
      note(
          name, fmt::format("there is no operator {}", name.text),
          nearest ? fmt::format("did you mean {}?", nearest->name) : "Ops.def lists all operators");
    }
    FunctionRef primitive;  // memory.invoke_mut group fn(…) { … } (…)
    if (take_word("group")) {
      if (!take_word("fn"))
        fail(token_, "expected `fn` after `group`", "write group fn(…) { … } (…)");
      primitive = function(at);
    }
    std::vector<Atom> args = arguments();
    Attrs attrs;
    if (is("{")) attrs = attributes(op);
    auto call =
        std::make_shared<Expr>(*make_call(name.text, std::move(args), std::move(attrs), at));
    call->primitive = std::move(primitive);
    if (op) {
      if (std::string fault = check_call(*op, *call); !fault.empty()) {
        note(name, fault, op->summary);
      }
    }
    return call;
  }

  // ----------------------------------------------------------------------------- atoms

  bool starts_constant() const {
    const std::string& t = token_.text;
    return t == "true" || t == "false" || t == "const" || dtype_from_name(t).has_value();
  }

  Atom atom() {
    const Token t = token_;
    switch (t.kind) {
      case Kind::kVariable: {
        advance();
        for (auto it = scopes_.rbegin(); it != scopes_.rend(); ++it) {
          if (auto found = it->find(t.text); found != it->end()) return Atom(found->second);
        }
        note(t, fmt::format("%{} is not defined here", t.text), "bind it before its use");
        return Atom(make_var(t.text, nullptr, location(t.begin)));
      }
      case Kind::kGlobal:
        advance();
        used_globals_.emplace_back(t.text, location(t.begin));
        return Atom::of_global(t.text);
      case Kind::kNumber: {
        advance();
        auto dtype = token_.kind == Kind::kIdentifier && token_.begin == t.end
                         ? dtype_from_name(token_.text)
                         : std::nullopt;
        if (!dtype) {
          fail(t, fmt::format("the constant {} has no element type", t.text),
               fmt::format("write {}i64 or {}f32", t.text, t.text));
        }
        advance();
        uint8_t* data = nullptr;
        auto tensor = Tensor::make(*dtype, {}, &data);
        element(t, *dtype, data);
        return Atom::of(std::move(tensor));
      }
      case Kind::kIdentifier:
        if (starts_constant()) return constant();
        fail(t, fmt::format("expected a variable or a constant but found `{}`", t.text),
             "bind the expression to a variable first");
      default:
        fail(t, fmt::format("expected a variable or a constant but found {}", shown(t)), "");
    }
  }

  Atom constant() {
    const Token t = token_;
    advance();
    if (t.text == "true" || t.text == "false") {
      return Atom::of(Tensor::of<uint8_t>(DType::kBool, {}, {t.text == "true"}));
    }
    if (t.text == "const") {
      expect("(", "before the constant's name");
      const Token name = token_;
      expect_kind(Kind::kString, "a quoted name");
      expect(")", "after the constant's name");
      return Atom::of(side_constant(name));
    }
    const DType dtype = *dtype_from_name(t.text);
    expect("[", "before the extents of a constant");
    std::vector<int64_t> shape;
    int64_t elements = 1;
    while (!is("]")) {
      const Token extent = token_;
      shape.push_back(integer(expect_kind(Kind::kNumber, "an extent")));
      if (shape.back() < 0 || __builtin_mul_overflow(elements, shape.back(), &elements)) {
        fail(extent, "the extents of the constant have no meaning", "use non-negative extents");
      }
      if (!take(",")) break;
    }
    expect("]", "after the extents of a constant");
    expect("{", "before the values of a constant");
    // Bounded by the text's own length before memory is allocated.
    std::vector<uint8_t> bytes;
    int64_t count = 0;
    while (!is("}")) {
      Token value = token_;
      const bool negative = take("-");
      if (token_.kind != Kind::kNumber && token_.kind != Kind::kIdentifier) {
        fail(token_, fmt::format("expected a value but found {}", shown(token_)), "");
      }
      value.text = (negative ? "-" : "") + token_.text;
      advance();
      bytes.resize(bytes.size() + size_of(dtype));
      element(value, dtype, bytes.data() + bytes.size() - size_of(dtype));
      ++count;
      if (!take(",")) break;
    }
    expect("}", "after the values of a constant");
    if (count != elements) {
      fail(t, fmt::format("the constant has {} values for {} elements", count, elements),
           "give one value per element");
    }
    uint8_t* data = nullptr;
    auto tensor = Tensor::make(dtype, std::move(shape), &data);
    std::copy(bytes.begin(), bytes.end(), data);
    return Atom::of(std::move(tensor));
  }

  TensorRef side_constant(const Token& name) {
    if (!side_file_) {
      if (constants_file_.empty()) {
        fail(name, fmt::format("const({}) needs a side file", quote(name.text)),
             "read the module from a file next to its .safetensors");
      }
      try {
        side_file_ = read_safetensors(constants_file_);
      } catch (const Error& e) {
        fail(name, e.what(), "");
      }
    }
    auto [it, added] = side_tensors_.try_emplace(name.text);
    if (added) it->second = side_file_->find(name.text);
    if (!it->second) {
      fail(name, fmt::format("{} has no tensor {}", constants_file_, quote(name.text)),
           "write text and side file together");
    }
    return it->second;
  }

  void element(const Token& t, DType dtype, uint8_t* to) {
    if (!parse_element(t.text, dtype, to)) {
      fail(t, fmt::format("`{}` is no value of type {}", t.text, name_of(dtype)), "");
    }
  }

  int64_t integer(const std::string& s) {
    int64_t v = 0;
    const auto r = std::from_chars(s.data(), s.data() + s.size(), v);
    if (r.ec != std::errc() || r.ptr != s.data() + s.size()) {
      fail(token_, fmt::format("`{}` is no integer of 64 bits", s), "");
    }
    return v;
  }

  // ----------------------------------------------------------------------------- types

  Dim dim() {
    if (token_.kind == Kind::kFault || token_.kind == Kind::kEnd)
      fail(token_, "expected a dim", "");
    size_t at = token_.begin;
    std::string problem;
    auto d = parse_dim_prefix(text_, &at, &problem);
    if (!d) {
      Token fault = token_;
      fault.begin = std::min(at, text_.size());
      note(fault, problem, "write an integer, a symbol or an expression such as 2*n + 1");
      throw SyntaxFault{};
    }
    pos_ = at;
    token_.end = at;
    advance();
    return *d;
  }

  std::vector<Dim> dim_list() {
    expect("(", "before a list of dims");
    std::vector<Dim> dims;
    while (!is(")")) {
      dims.push_back(dim());
      if (!take(",")) break;
    }
    expect(")", "after a list of dims");
    return dims;
  }

  DType dtype() {
    const Token t = token_;
    auto d = token_.kind == Kind::kIdentifier ? dtype_from_name(token_.text) : std::nullopt;
    if (!d) {
      fail(t, fmt::format("{} is no element type", shown(t)),
           "use f32, f64, f16, bf16, i8 … i64, u8 … u64 or bool");
    }
    advance();
    return *d;
  }

  Type type() {
    Nesting nesting(*this);
    const Token t = token_;
    if (take_word("Tensor")) {
      expect("[", "before the extents of a tensor type");
      std::vector<Dim> dims = dim_list();
      for (const Dim& d : dims) {
        if (auto c = d.as_constant(); c && *c < 0) {
          fail(t, fmt::format("the extent {} is negative", *c), "extents are 0 or more");
        }
      }
      expect(",", "before the element type");
      const DType d = dtype();
      expect("]", "after the element type");
      return tensor_type(std::move(dims), d);
    }
    if (take_word("i64")) return scalar_type();
    if (take_word("Storage")) return storage_type();
    if (take_word("fn")) {
      auto parameters = type_list();
      expect("->", "before the result of a function type");
      return function_type(std::move(parameters), type());
    }
    if (is("(")) return tuple_type(type_list());
    fail(t, fmt::format("{} is no type", shown(t)),
         "write Tensor[(n, 4), f32], a tuple or fn(…) -> …");
  }

  std::vector<Type> type_list() {
    expect("(", "before a list of types");
    std::vector<Type> types;
    while (!is(")")) {
      types.push_back(type());
      if (!take(",")) break;
    }
    expect(")", "after a list of types");
    return types;
  }

  // ------------------------------------------------------------------------ attributes

  Attrs attributes(const OpInfo* op) {
    expect("{", "before attributes");
    Attrs attrs;
    while (!is("}")) {
      const Token name = token_;
      if (name.kind != Kind::kIdentifier && name.kind != Kind::kString) {
        fail(name, fmt::format("expected the name of an attribute but found {}", shown(name)), "");
      }
      advance();
      expect("=", "after the name of an attribute");
      const AttrSpec* spec = nullptr;
      if (op) {
        for (const AttrSpec& s : op->attrs) {
          if (s.name == name.text) spec = &s;
        }
      }
      AttrValue value = spec ? value_of(*spec) : any_value();
      if (!attrs.emplace(name.text, std::move(value)).second) {
        fail(name, fmt::format("the attribute {} is given twice", name.text), "give it once");
      }
      if (!take(",")) break;
    }
    expect("}", "after attributes");
    return attrs;
  }

  bool boolean() {
    if (take_word("true")) return true;
    if (take_word("false")) return false;
    fail(token_, fmt::format("expected true or false but found {}", shown(token_)), "");
  }

  double floating() {
    const Token t = token_;
    const bool negative = take("-");
    double v = 0;
    if (take_word("inf")) {
      v = INFINITY;
    } else if (take_word("nan")) {
      v = NAN;
    } else {
      const std::string s = expect_kind(Kind::kNumber, "a number");
      const auto r = std::from_chars(s.data(), s.data() + s.size(), v);
      if (r.ec != std::errc()) fail(t, fmt::format("`{}` is no number of 64 bits", s), "");
    }
    return negative ? -v : v;
  }

  template <class F>
  auto list(F element) {
    std::vector<decltype(element())> out;
    expect("[", "before a list");
    while (!is("]")) {
      out.push_back(element());
      if (!take(",")) break;
    }
    expect("]", "after a list");
    return out;
  }

  int64_t integer_token() { return integer(expect_kind(Kind::kNumber, "an integer")); }
  std::string string_token() { return expect_kind(Kind::kString, "a quoted string"); }

  AttrValue value_of(const AttrSpec& spec) {
    using K = AttrSpec::Kind;
    switch (spec.kind) {
      case K::kBool:
        return boolean();
      case K::kInt:
        return integer_token();
      case K::kFloat:
        return floating();
      case K::kString:
        return string_token();
      case K::kInts:
        return list([&] { return integer_token(); });
      case K::kFloats:
        return list([&] { return floating(); });
      case K::kStrings:
        return list([&] { return string_token(); });
      case K::kDType:
        return dtype();
      case K::kDim:
        return dim();
      case K::kDims:
        return dim_list();
    }
    NIMBLE_UNREACHABLE("attribute kind");
  }

  // A value whose kind shows in its text.
  AttrValue any_value() {
    if (is_word("true") || is_word("false")) return boolean();
    if (take_word("dtype")) return dtype();
    if (take_word("dim")) return dim();
    if (take_word("floats")) return list([&] { return floating(); });
    if (take_word("strings")) return list([&] { return string_token(); });
    if (token_.kind == Kind::kString) return string_token();
    if (is("(")) return dim_list();
    if (is("[")) {
      const Token first = lex(text_, pos_);
      if (first.kind == Kind::kString) return list([&] { return string_token(); });
      if (looks_float(first)) return list([&] { return floating(); });
      return list([&] { return integer_token(); });
    }
    if (looks_float(token_)) return floating();
    if (token_.kind == Kind::kNumber) return integer_token();
    fail(token_, fmt::format("{} is no value of an attribute", shown(token_)), "");
  }

  static bool looks_float(const Token& t) {
    if (t.kind == Kind::kNumber) return t.text.find_first_of(".eE") != std::string::npos;
    return (t.kind == Kind::kIdentifier && (t.text == "inf" || t.text == "nan")) ||
           (t.kind == Kind::kPunctuation && t.text == "-");
  }

  std::string_view text_;
  std::string file_, constants_file_;
  std::vector<size_t> line_starts_ = {0};
  size_t pos_ = 0;
  Token token_;
  int depth_ = 0;
  std::vector<Diagnostic> diagnostics_;
  std::vector<std::map<std::string, VarRef>> scopes_;
  std::vector<std::pair<std::string, Location>> used_globals_;
  std::optional<SafeTensors> side_file_;
  std::map<std::string, TensorRef> side_tensors_;
};

}  // namespace

std::string Diagnostic::str() const {
  std::string s = fmt::format("{}: {}", location.str(), problem);
  if (!remedy.empty()) s += "; " + remedy;
  if (!source_line.empty()) {
    std::string pad;
    for (size_t i = 0; i + 1 < static_cast<size_t>(location.column) && i < source_line.size();
         ++i) {
      pad += source_line[i] == '\t' ? '\t' : ' ';
    }
    s += "\n  " + source_line + "\n  " + pad + "^";
  }
  return s;
}

ParseResult parse_text(std::string_view text, const std::string& file,
                       const std::string& constants_file) {
  Parser parser(text, file, constants_file);
  ParseResult r;
  r.module = parser.module();
  r.diagnostics = parser.diagnostics();
  std::stable_sort(r.diagnostics.begin(), r.diagnostics.end(),
                   [](const Diagnostic& a, const Diagnostic& b) {
                     return std::pair(a.location.line, a.location.column) <
                            std::pair(b.location.line, b.location.column);
                   });
  return r;
}

Module parse_module(std::string_view text, const std::string& file,
                    const std::string& constants_file) {
  ParseResult r = parse_text(text, file, constants_file);
  if (r.diagnostics.empty()) return std::move(r.module);
  std::string all;
  for (const Diagnostic& d : r.diagnostics) all += (all.empty() ? "" : "\n") + d.str();
  throw Error(Status::kInvalidArgument, "", all);
}

Module read_module(const std::string& path) {
  return parse_module(read_text_file(path), path, side_file_of(path));
}

}  // namespace nimble::ir
