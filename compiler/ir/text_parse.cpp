// The parser of the text form: recursive descent over tokens taken on demand (dims are read by
// their own parser at the same position). A fault inside a binding is noted, then parsing goes
// on after its `;`, so that one run reports all faults. Variables are resolved at once; functions,
// data types and constructors may be used before they are defined.
#include "compiler/ir/text_parse.h"

#include <algorithm>

#include "compiler/ir/builder.h"
#include "compiler/ir/text.h"
#include "vm/base/edit_distance.h"
#include "vm/base/file.h"

namespace nimble::ir {
namespace {

class Parser : ValueParser {
 public:
  Parser(std::shared_ptr<const std::string> text, const std::string& file,
         const std::string& constants_file)
      : ValueParser(std::move(text), file, constants_file) {}

  Module module() {
    Module m;
    m.text = owner_;
    while (token_.kind != Kind::kEnd) {
      try {
        item(m);
      } catch (const SyntaxFault&) {
        while (token_.kind != Kind::kEnd && !at_item()) advance();
      }
    }
    resolve(m);
    if (m.functions.empty() && diagnostics_.empty()) {
      note(token_, "the text defines no function", "write fn @main(…) { … }");
    }
    return m;
  }

  std::vector<Diagnostic> diagnostics() const { return diagnostics_.sorted(); }

 private:
  bool at_item() const {
    return is_word("fn") || is_word("data") || is_word("source") || is_word("signature");
  }

  // Names whose definition may follow their use.
  void resolve(const Module& m) {
    std::vector<std::string> functions, types, constructors;
    for (const auto& [name, f] : m.functions) functions.push_back(name);
    for (const DataType& d : m.data_types) {
      types.push_back(d.name);
      for (const Constructor& c : d.constructors) constructors.push_back(c.name);
    }
    for (const auto& [name, at] : used_globals_) {
      if (m.find(name)) continue;
      const std::string_view meant = nearest_name(name, functions);
      note(at, fmt::format("there is no function @{}", name),
           meant.empty() ? "define it in this file" : fmt::format("did you mean @{}?", meant));
    }
    for (const UsedName& used : used_types_) {
      const DataType* d = m.find_data(used.name);
      if (!d) {
        const std::string_view meant = nearest_name(used.name, types);
        note(used.at, fmt::format("there is no type {}", used.name),
             !meant.empty()
                 ? fmt::format("did you mean {}?", meant)
                 : fmt::format("define it: data {0} {{ … }}, or bind it as a type variable: fn "
                               "@f[{0}](…)",
                               used.name));
      } else if (d->variables.size() != used.count) {
        note(used.at,
             fmt::format("{} takes {} type argument{}, not {}", used.name, d->variables.size(),
                         d->variables.size() == 1 ? "" : "s", used.count),
             "give one type per type variable");
      }
    }
    for (const UsedName& used : used_constructors_) {
      const auto [d, tag] = m.find_constructor(used.name);
      if (!d) {
        const std::string_view meant = nearest_name(used.name, constructors);
        note(used.at, fmt::format("there is no constructor {}", used.name),
             meant.empty() ? "define it in a data type" : fmt::format("did you mean {}?", meant));
        continue;
      }
      const size_t fields = d->constructors[static_cast<size_t>(tag)].fields.size();
      if (fields != used.count) {
        note(used.at,
             fmt::format("{} has {} field{}, not {}", used.name, fields, fields == 1 ? "" : "s",
                         used.count),
             "give one per field of its definition");
      }
    }
  }

  void item(Module& m) {
    if (take_word("source")) {
      m.source = expect_kind(Kind::kString, "a quoted source");
      expect(";", "after the source");
    } else if (take_word("signature")) {
      signature(m);
    } else if (is_word("data")) {
      data(m);
    } else if (is_word("fn")) {
      const Token start = token_;
      advance();
      const Token name_token = token_;
      const std::string name = expect_kind(Kind::kGlobal, "a function name such as @main");
      scopes_.clear();
      std::vector<std::string> variables = type_variable_list();
      type_variables_ = {variables.begin(), variables.end()};
      FunctionRef f = function(location(start.begin), std::move(variables));
      if (m.find(name)) {
        note(name_token, fmt::format("@{} is defined twice", name), "rename one of them");
      } else {
        m.functions.emplace_back(name, std::move(f));
      }
    } else {
      const Token at = token_;
      advance();
      fail(at, fmt::format("expected a function or a data type but found {}", shown(at)),
           "write fn @main(…) { … } or data Name { … }");
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
        fail(at, fmt::format("`{}` is not a list of names of a signature", key),
             "use inputs, outputs and defaults");
      }
      *to = *names;
    }
    m.signatures[name] = std::move(s);
    expect(";", "after the signature");
  }

  // data List[A] { Nil; Cons(A, List[A]) }
  void data(Module& m) {
    DataType d;
    advance();
    const Token name = token_;
    d.location = location(name.begin);
    d.name = capitalised("the name of a data type");
    if (d.name == "Tensor" || d.name == "Storage") {
      fail(name, fmt::format("{} is a type of the language", d.name), "choose another name");
    }
    d.variables = type_variable_list();
    type_variables_ = {d.variables.begin(), d.variables.end()};
    expect("{", "before the constructors");
    const bool any = !is("}");
    while (!is("}")) {
      Constructor c;
      c.location = location(token_.begin);
      c.name = capitalised("the name of a constructor");
      if (is("(")) c.fields = type_list();
      const auto same = [&](const Constructor& other) { return other.name == c.name; };
      if (m.find_constructor(c.name).first ||
          std::any_of(d.constructors.begin(), d.constructors.end(), same)) {
        note(c.location, fmt::format("the constructor {} is defined twice", c.name),
             "rename one of them: constructors are unique in a module");
      } else {
        d.constructors.push_back(std::move(c));
      }
      if (!take(";")) break;
    }
    expect("}", "after the constructors");
    if (!any) {
      note(name, fmt::format("the data type {} has no constructor", d.name),
           "give it at least one");
    }
    if (m.find_data(d.name)) {
      note(name, fmt::format("the data type {} is defined twice", d.name), "rename one of them");
    } else {
      m.data_types.push_back(std::move(d));
    }
  }

  std::string capitalised(const char* what) {
    const Token t = token_;
    if (t.kind != Kind::kIdentifier || !is_capitalised(t.text)) {
      fail(t, fmt::format("expected {} but found {}", what, shown(t)),
           "begin the name with a capital letter");
    }
    advance();
    return t.text;
  }

  // The part of a function after its name and type variables.
  FunctionRef function(const Location& at, std::vector<std::string> type_variables = {}) {
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
    auto f = make_function_of(std::move(parameters), std::move(body), std::move(result),
                              std::move(attrs), at);
    if (type_variables.empty()) return f;
    auto polymorphic = std::make_shared<Function>(*f);
    polymorphic->type_variables = std::move(type_variables);
    return polymorphic;
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
    const int level = braces_;
    while (is_word("let")) {
      try {
        binding(builder);
      } catch (const SyntaxFault&) {
        recover(level);
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
      recover(level);
    }
    scopes_.pop_back();
    if (take("}")) return builder.finish(std::move(result), location(at.begin));
    if (token_.kind == Kind::kEnd || at.kind == Kind::kEnd) {
      fail(token_, "the block does not end", "write `}`");
    }
    fail(token_, fmt::format("expected `}}` after the block's result but found {}", shown(token_)),
         "a block is a list of `let`s and one result atom");
  }

  // Skips the rest of a faulty binding of a block with `level` open braces: behind its `;`, or to
  // the `}` that ends the block. A `let` after a fault in attributes begins the next binding.
  void recover(int level) {
    const bool in_braces = braces_ > level;
    while (token_.kind != Kind::kEnd) {
      if (is_word("let") && (in_braces || braces_ == level)) {
        braces_ = level;
        return;
      }
      if (braces_ == level && is("}")) return;
      if (braces_ == level && take(";")) return;
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
      if (!take(";")) {
        const std::string problem =
            fmt::format("expected `;` after the binding but found {}", shown(token_));
        if (token_.kind == Kind::kFault || !(is_word("let") || token_.kind == Kind::kVariable)) {
          fail(token_, problem, "end each binding with `;`");
        }
        note(token_, problem, "end each binding with `;`");  // and go on as if it stood there
      }
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
    if (take_word("match")) return match(at);
    if (take_word("closure")) {
      const Token name = token_;
      std::string target = expect_kind(Kind::kGlobal, "a function such as @f");
      used_globals_.emplace_back(target, location(name.begin));
      return make_closure(std::move(target), arguments(), at);
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
      if (a.is_constant())
        fail(token_, "a constant cannot be called", "call a function: @f(…) or %f(…)");
      return make_call_function(std::move(a), arguments(), at);
    }
    if (take("[")) {
      const Token index = token_;
      expect_kind(Kind::kNumber, "the index of a field");
      expect("]", "after the index of a field");
      return make_get_field(std::move(a), integer(index), at);
    }
    return make_atom(std::move(a), at);
  }

  // match (%t) { Leaf(%x) => { … } _ => { … } }
  ExprRef match(const Location& at) {
    Nesting nesting(*this);
    expect("(", "before the value to match");
    Atom value = atom();
    expect(")", "after the value to match");
    expect("{", "before the cases");
    std::vector<MatchCase> cases;
    const size_t level = scopes_.size();
    try {
      while (!is("}")) {
        scopes_.emplace_back();
        MatchCase c;
        c.pattern = pattern();
        expect("=>", "after a pattern");
        c.body = block();
        scopes_.pop_back();
        cases.push_back(std::move(c));
      }
    } catch (const SyntaxFault&) {
      scopes_.resize(level);
      skip_to_closing_brace();
      throw;
    }
    advance();  // }
    if (cases.empty()) {
      note(at, "the match has no case", "write one case per constructor, as in Leaf(%x) => { … }");
    }
    return make_match(std::move(value), std::move(cases), at);
  }

  Pattern pattern() {
    Nesting nesting(*this);
    Pattern p;
    const Token t = token_;
    p.location = location(t.begin);
    if (take_word("_")) return p;
    if (t.kind == Kind::kVariable) {
      advance();
      Type annotation;
      if (take(":")) annotation = type();
      p.kind = Pattern::Kind::kVar;
      p.var = define(t, std::move(annotation));
      return p;
    }
    if (is("(")) {
      p.kind = Pattern::Kind::kTuple;
      p.fields = patterns();
      return p;
    }
    if (t.kind == Kind::kIdentifier && is_capitalised(t.text)) {
      advance();
      p.kind = Pattern::Kind::kConstructor;
      p.constructor = t.text;
      if (is("(")) p.fields = patterns();
      used_constructors_.push_back({t.text, p.fields.size(), p.location});
      return p;
    }
    fail(t, fmt::format("expected a pattern but found {}", shown(t)),
         "write a constructor such as Leaf(%x), a tuple, a variable or _");
  }

  std::vector<Pattern> patterns() {
    std::vector<Pattern> out;
    expect("(", "before patterns");
    while (!is(")")) {
      out.push_back(pattern());
      if (!take(",")) break;
    }
    expect(")", "after patterns");
    return out;
  }

  void skip_to_closing_brace() {
    for (int nested = 0; token_.kind != Kind::kEnd; advance()) {
      if (is("{")) ++nested;
      if (is("}") && nested-- == 0) break;
    }
    take("}");
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
    if (is_capitalised(name.text)) {
      std::vector<Atom> fields = arguments();
      used_constructors_.push_back({name.text, fields.size(), at});
      return make_construct(name.text, std::move(fields), at);
    }
    const OpInfo* op = find_op(name.text);
    if (!op) {
      std::vector<std::string> names;
      for (const OpInfo& o : all_ops()) names.push_back(o.name);
      const std::string_view meant = nearest_name(name.text, names);
      note(name, fmt::format("there is no operator {}", name.text),
           meant.empty() ? "Ops.def lists all operators" : fmt::format("did you mean {}?", meant));
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
        note(name, fault, form_of(*op));
      }
    }
    return call;
  }

  // ----------------------------------------------------------------------------- atoms

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
      case Kind::kNumber:
        return number();
      case Kind::kIdentifier:
        if (starts_constant()) return constant();
        fail(t, fmt::format("expected a variable or a constant but found `{}`", t.text),
             "bind the expression to a variable first");
      default:
        if (starts_constant()) return constant();  // -inff32
        fail(t, fmt::format("expected a variable or a constant but found {}", shown(t)),
             "write %x, @f or a constant such as 1.5f32");
    }
  }

  std::vector<std::map<std::string, VarRef>> scopes_;
  std::vector<std::pair<std::string, Location>> used_globals_;
  std::vector<UsedName> used_constructors_;
};

}  // namespace

ParseResult parse_text(std::string_view text, const std::string& file,
                       const std::string& constants_file) {
  Parser parser(std::make_shared<const std::string>(text), file, constants_file);
  ParseResult r;
  r.module = parser.module();
  r.diagnostics = parser.diagnostics();
  return r;
}

Module parse_module(std::string_view text, const std::string& file,
                    const std::string& constants_file) {
  ParseResult r = parse_text(text, file, constants_file);
  if (!r.diagnostics.empty()) raise(r.diagnostics);
  return std::move(r.module);
}

Module read_module(const std::string& path) {
  return parse_module(read_text_file(path), path, side_file_of(path));
}

}  // namespace nimble::ir
