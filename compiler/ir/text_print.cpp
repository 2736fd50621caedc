// The printer of the text form. Names of variables are made unique per function and reduced to
// identifier characters; everything else prints as it is, so that parsing gives the same text.
#include <cmath>
#include <set>
#include <unordered_map>

#include "compiler/ir/op.h"
#include "compiler/ir/safetensors.h"
#include "compiler/ir/text.h"
#include "compiler/ir/text_lexer.h"
#include "vm/base/file.h"

namespace nimble::ir {
namespace {

std::string float_literal(double v) {  // of attributes: never looks like an integer
  std::string s = shortest_text(v);
  if (s.find_first_of(".en") == std::string::npos) s += ".0";
  return s;
}

class Printer {
 public:
  Printer(const PrintOptions& options, SideFile* side) : options_(options), side_(side) {}

  void module(const Module& m) {
    if (!m.source.empty()) line("source " + quote(m.source) + ";");
    for (const auto& [name, s] : m.signatures) {
      std::string text = "signature " + global(name) + " {inputs = " + list(s.input_names) +
                         ", outputs = " + list(s.output_names);
      if (!s.input_defaults.empty()) text += ", defaults = " + list(s.input_defaults);
      line(text + "};");
    }
    for (const DataType& d : m.data_types) {
      if (!out_.empty()) out_ += "\n";
      data(d);
    }
    for (const auto& [name, f] : m.functions) {
      if (!out_.empty()) out_ += "\n";
      function(*f, name);
    }
  }

  void data(const DataType& d) {
    line("data " + d.name + type_variables(d.variables) + " {");
    for (size_t i = 0; i < d.constructors.size(); ++i) {
      const Constructor& c = d.constructors[i];
      std::string fields;
      for (const Type& t : c.fields) fields += (fields.empty() ? "" : ", ") + str(t);
      line("  " + c.name + (fields.empty() ? "" : "(" + fields + ")") +
           (i + 1 < d.constructors.size() ? ";" : ""));
    }
    line("}");
  }

  void function(const Function& f, const std::string& name) {
    names_.clear();
    unique_ = {};
    out_ += "fn " + global(name) + type_variables(f.type_variables) + head(f) + " ";
    block(*f.body);
    out_ += "\n";
  }

  std::string take() { return std::move(out_); }

 private:
  void line(const std::string& text) { out_ += std::string(indent_, ' ') + text + "\n"; }

  static std::string global(const std::string& name) {
    return "@" + (is_identifier(name) ? name : quote(name));
  }

  static std::string type_variables(const std::vector<std::string>& names) {
    std::string s;
    for (const std::string& n : names) s += (s.empty() ? "" : ", ") + n;
    return s.empty() ? s : "[" + s + "]";
  }

  static std::string list(const std::vector<std::string>& v) {
    std::string s;
    for (const auto& x : v) s += (s.empty() ? "" : ", ") + quote(x);
    return "[" + s + "]";
  }

  std::string variable(const VarRef& v) {
    auto [it, added] = names_.try_emplace(v.get());
    if (added) {
      std::string base;
      for (char c : v->name) base += is_identifier_char(c) ? c : '_';
      if (base.empty()) base = "t";
      it->second = "%" + unique_.take(base);
    }
    return it->second;
  }

  std::string constant(const TensorRef& t) {
    if (t->elements() <= options_.inline_constant_elements) return print(*t);
    return "const(" + quote(side_->name_of(t)) + ")";
  }

  std::string atom(const Atom& a) {
    if (a.is_var()) return variable(a.var);
    if (a.is_global()) return global(a.global);
    return constant(a.constant);
  }

  std::string atoms(const std::vector<Atom>& list) {
    std::string s;
    for (const Atom& a : list) s += (s.empty() ? "" : ", ") + atom(a);
    return s;
  }

  // `plain`: dtypes and dims need no keyword, since the operator's row says what is expected.
  static std::string value(const AttrValue& v, bool plain) {
    struct Visitor {
      bool plain;
      std::string operator()(bool b) const { return b ? "true" : "false"; }
      std::string operator()(int64_t i) const { return std::to_string(i); }
      std::string operator()(double d) const { return float_literal(d); }
      std::string operator()(const std::string& s) const { return quote(s); }
      std::string operator()(DType t) const {
        return (plain ? "" : "dtype ") + std::string(name_of(t));
      }
      std::string operator()(const Dim& d) const { return (plain ? "" : "dim ") + d.str(); }
      std::string operator()(const std::vector<Dim>& v) const {
        std::string s;
        for (const Dim& d : v) s += (s.empty() ? "" : ", ") + d.str();
        return "(" + s + ")";
      }
      std::string operator()(const std::vector<int64_t>& v) const {
        std::string s;
        for (int64_t i : v) s += (s.empty() ? "" : ", ") + std::to_string(i);
        return "[" + s + "]";
      }
      std::string operator()(const std::vector<double>& v) const {
        std::string s;
        for (double d : v) s += (s.empty() ? "" : ", ") + float_literal(d);
        return (plain || !v.empty() ? "[" : "floats [") + s + "]";
      }
      std::string operator()(const std::vector<std::string>& v) const {
        return (plain || !v.empty() ? "" : "strings ") + list(v);
      }
    };
    return std::visit(Visitor{plain}, v);
  }

  static std::string attributes(const Attrs& attrs, const OpInfo* op) {
    std::string s;
    for (const auto& [name, v] : attrs) {
      bool known = false;
      if (op) {
        for (const AttrSpec& spec : op->attrs) known |= spec.name == name;
      }
      s += (s.empty() ? "" : ", ") + (is_identifier(name) ? name : quote(name)) + " = " +
           value(v, known);
    }
    return "{" + s + "}";
  }

  // (parameters) -> result attrs {…}
  std::string head(const Function& f) {
    std::string s = "(";
    for (size_t i = 0; i < f.parameters.size(); ++i) {
      if (i) s += ", ";
      s += variable(f.parameters[i]);
      if (f.parameters[i]->type) s += ": " + str(f.parameters[i]->type);
    }
    s += ")";
    if (f.result_type) s += " -> " + str(f.result_type);
    if (!f.attrs.empty()) s += " attrs " + attributes(f.attrs, nullptr);
    return s;
  }

  void block(const Block& b) {
    out_ += "{\n";
    indent_ += 2;
    for (const Binding& binding : b.bindings) {
      // The value is printed first so that a name is used only where it is bound.
      const size_t mark = out_.size();
      expression(*binding.value);
      const std::string text = out_.substr(mark);
      out_.resize(mark);
      out_ += std::string(indent_, ' ') + "let " + variable(binding.var);
      if (options_.types && binding.var->type) out_ += ": " + str(binding.var->type);
      out_ += " = " + text;
      const std::string& source = binding.value->location.source_name;
      if (!source.empty()) out_ += " from " + quote(source);
      out_ += ";\n";
    }
    line(atom(b.result));
    indent_ -= 2;
    out_ += std::string(indent_, ' ') + "}";
  }

  void expression(const Expr& e) {
    switch (e.kind) {
      case ExprKind::kAtom:
        out_ += atom(e.args[0]);
        return;
      case ExprKind::kCall:
        if (e.primitive) {
          out_ += (e.op.empty() ? "" : e.op + " ") + "group fn" + head(*e.primitive) + " ";
          block(*e.primitive->body);
          out_ += " (" + atoms(e.args) + ")";
          if (!e.attrs.empty()) out_ += " " + attributes(e.attrs, find_op(e.op));
        } else if (e.callee) {
          out_ += atom(*e.callee) + "(" + atoms(e.args) + ")";
        } else {
          out_ += e.op + "(" + atoms(e.args) + ")";
          if (!e.attrs.empty()) out_ += " " + attributes(e.attrs, find_op(e.op));
        }
        return;
      case ExprKind::kTuple:
        out_ += "(" + atoms(e.args) + (e.args.size() == 1 ? ",)" : ")");
        return;
      case ExprKind::kGetField:
        out_ += fmt::format("{}[{}]", atom(e.args[0]), e.index);
        return;
      case ExprKind::kIf:
        out_ += "if (" + atom(e.args[0]) + ") ";
        block(*e.then_block);
        out_ += " else ";
        block(*e.else_block);
        return;
      case ExprKind::kFunction:
        out_ += "fn" + head(*e.primitive) + " ";
        block(*e.primitive->body);
        return;
      case ExprKind::kConstruct:
        out_ += e.constructor + "(" + atoms(e.args) + ")";
        return;
      case ExprKind::kClosure:
        out_ += "closure " + atom(*e.callee) + "(" + atoms(e.args) + ")";
        return;
      case ExprKind::kMatch:
        out_ += "match (" + atom(e.args[0]) + ") {\n";
        indent_ += 2;
        for (const MatchCase& c : e.cases) {
          out_ += std::string(indent_, ' ') + pattern(c.pattern) + " => ";
          block(*c.body);
          out_ += "\n";
        }
        indent_ -= 2;
        out_ += std::string(indent_, ' ') + "}";
        return;
    }
  }

  std::string pattern(const Pattern& p) {
    std::string fields;
    switch (p.kind) {
      case Pattern::Kind::kWildcard:
        return "_";
      case Pattern::Kind::kVar:
        return variable(p.var) +
               (options_.types && p.var->type ? ": " + str(p.var->type) : std::string());
      case Pattern::Kind::kConstructor:
      case Pattern::Kind::kTuple:
        for (const Pattern& f : p.fields) fields += (fields.empty() ? "" : ", ") + pattern(f);
        if (p.kind == Pattern::Kind::kTuple) return "(" + fields + ")";
        return p.constructor + (fields.empty() ? "" : "(" + fields + ")");
    }
    NIMBLE_UNREACHABLE("pattern kind");
  }

  PrintOptions options_;
  SideFile* side_;
  std::string out_;
  size_t indent_ = 0;
  std::unordered_map<const Var*, std::string> names_;
  UniqueNames unique_;
};

}  // namespace

std::string UniqueNames::take(const std::string& wanted) {
  if (used_.insert(wanted).second) return wanted;
  std::string stem = wanted;
  const size_t digits = wanted.find_last_not_of("0123456789") + 1;
  if (digits > 1 && digits < wanted.size() && wanted[digits - 1] == '.')
    stem = wanted.substr(0, digits - 1);
  int& next = next_.try_emplace(stem, 1).first->second;
  std::string name;
  do name = fmt::format("{}.{}", stem, next++);
  while (!used_.insert(name).second);
  return name;
}

std::string SideFile::name_of(const TensorRef& t) {
  auto it = names_.find(t.get());
  if (it != names_.end()) return it->second;
  const std::string name = unique_.take(t->name.empty() ? "const" : t->name);
  names_[t.get()] = name;
  tensors.emplace_back(name, t);
  return name;
}

std::string print(const Module& m, PrintOptions options) {
  SideFile side;
  Printer p(options, &side);
  p.module(m);
  return p.take();
}

std::string print(const Tensor& t) {
  const std::string type(name_of(t.dtype));
  if (t.shape.empty()) {
    if (t.dtype == DType::kBool) return element_text(t, 0);
    // The bits of a NaN and a type behind them could not be told apart.
    const std::string text = element_text(t, 0);
    if (!text.starts_with("nan.")) return text + type;
  }
  std::string shape, values;
  for (int64_t d : t.shape) shape += (shape.empty() ? "" : ", ") + std::to_string(d);
  for (int64_t i = 0; i < t.elements(); ++i) {
    values += (values.empty() ? "" : ", ") + element_text(t, i);
  }
  return type + "[" + shape + "]{" + values + "}";
}

std::string print(const Function& f, const std::string& name, PrintOptions options) {
  SideFile side;
  Printer p(options, &side);
  p.function(f, name);
  return p.take();
}

std::string side_file_of(const std::string& path) {
  return path + ".safetensors";
}

void write_module(const Module& m, const std::string& path) {
  SideFile side;
  Printer p({}, &side);
  p.module(m);
  // The side file first: a text that refers to constants never stands without them.
  if (!side.tensors.empty()) write_safetensors(side_file_of(path), {side.tensors, {}});
  write_file_atomically(path, std::string_view(p.take()));
}

}  // namespace nimble::ir
