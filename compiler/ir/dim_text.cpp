// Text of Dims (printing and parsing) and their compilation to DimPrograms.
//
// Grammar:  sum     = ["-"] product { ("+" | "-") product }
//           product = factor { "*" factor }
//           factor  = integer | symbol | "?" | function "(" sum {"," sum} ")" | "(" sum ")"
//           symbol  = letter { letter | digit | "." } | "?" digits | "`" any text "`"
// A symbol whose name is no identifier (a dim of an imported model may be called anything) is
// written in backquotes.
#include <algorithm>
#include <cctype>

#include "compiler/ir/dim_functions.h"
#include "compiler/ir/dim_node.h"

namespace nimble::ir {
namespace {

bool letter(char c) {
  return std::isalpha(static_cast<unsigned char>(c)) || c == '_';
}
bool digit(char c) {
  return c >= '0' && c <= '9';
}

bool plain_symbol(const std::string& name) {
  if (name.size() > 1 && name[0] == '?') return std::all_of(name.begin() + 1, name.end(), digit);
  return letter(name[0]) && std::all_of(name.begin(), name.end(),
                                        [](char c) { return letter(c) || digit(c) || c == '.'; });
}

constexpr DimFunction kFunctions[] = {{"floordiv", floordiv, true, Dim::Function::kFloorDiv},
                                      {"mod", mod, true, Dim::Function::kMod},
                                      {"ceildiv", ceildiv, true, std::nullopt},
                                      {"min", min, false, Dim::Function::kMin},
                                      {"max", max, false, Dim::Function::kMax},
                                      {"broadcast", broadcast, false, Dim::Function::kBroadcast}};

std::string_view function_name(Dim::Function function) {
  for (const DimFunction& f : kFunctions)
    if (f.function == function) return f.name;
  NIMBLE_UNREACHABLE();
}

void print(const DimNode* n, std::string& out);

void print_product(int64_t coefficient, const Monomial* m, std::string& out) {
  if (!m) {
    out += std::to_string(coefficient);
    return;
  }
  if (coefficient == -1) out += "-";
  if (coefficient != 1 && coefficient != -1) out += std::to_string(coefficient) + "*";
  for (size_t i = 0; i < m->atoms.size(); ++i) {
    if (i) out += "*";
    print(m->atoms[i], out);
  }
}

void print(const DimNode* n, std::string& out) {
  switch (n->kind) {
    case DimNode::Kind::kAny:
      out += "?";
      return;
    case DimNode::Kind::kConstant:
      out += std::to_string(n->constant);
      return;
    case DimNode::Kind::kSymbol:
      out += plain_symbol(n->name) ? n->name : fmt::format("`{}`", n->name);
      return;
    case DimNode::Kind::kFunction:
      out += function_name(n->function);
      out += "(";
      for (size_t i = 0; i < n->operands.size(); ++i) {
        if (i) out += ", ";
        print(n->operands[i], out);
      }
      out += ")";
      return;
    case DimNode::Kind::kSum:
      for (size_t i = 0; i < n->terms.size(); ++i) {
        int64_t c = n->terms[i].coefficient;
        if (i) {
          const bool negative = c < 0 && c != INT64_MIN;
          out += negative ? " - " : " + ";
          if (negative) c = -c;
        }
        print_product(c, n->terms[i].monomial, out);
      }
      return;
  }
}

std::string function_names() {
  std::string out;
  for (const DimFunction& f : kFunctions)
    out += fmt::format("{}{}", out.empty() ? "" : ", ", f.name);
  return out;
}

struct ParseFault {
  size_t pos;
  std::string problem;
};

class Parser {
 public:
  Parser(std::string_view text, size_t pos) : text_(text), pos_(pos) {}
  size_t pos() const { return pos_; }

  Dim sum() {
    if (++depth_ > 200) fault("dim expression is nested too deeply");
    // The sign of a number is the number's: -2^63 has no positive one.
    const bool negative = peek() == '-' && !digit(peek(1)) && take('-');
    Dim result = product();
    if (negative) result = checked(result) * Dim(-1);
    while (true) {
      if (take('+')) {
        result = checked(result) + checked(product());
      } else if (peek() == '-' && peek(1) != '>') {
        take('-');
        result = checked(result) - checked(product());
      } else {
        break;
      }
    }
    --depth_;
    return result;
  }

 private:
  [[noreturn]] void fault(std::string problem) { throw ParseFault{pos_, std::move(problem)}; }
  Dim checked(const Dim& d) {
    if (d.is_any()) fault("the wildcard ? cannot be part of an expression");
    return d;
  }
  void skip_space() {
    while (pos_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[pos_]))) ++pos_;
  }
  char peek(size_t ahead = 0) {
    skip_space();
    return pos_ + ahead < text_.size() ? text_[pos_ + ahead] : '\0';
  }
  bool take(char c) {
    if (peek() != c) return false;
    ++pos_;
    return true;
  }
  Dim product() {
    Dim result = factor();
    while (take('*')) result = checked(result) * checked(factor());
    return result;
  }
  Dim factor() {
    const char c = peek();
    if (digit(c)) return Dim(integer(1));
    if (c == '-' && digit(peek(1))) {
      take('-');
      return Dim(integer(-1));
    }
    if (c == '(') {
      take('(');
      const Dim d = sum();
      if (!take(')')) fault("expected `)` in a dim");
      return d;
    }
    if (c == '?') {
      const size_t start = pos_++;
      while (pos_ < text_.size() && digit(text_[pos_])) ++pos_;
      if (pos_ - start == 1) return Dim::any();
      if (pos_ - start > 18) fault("number of a fresh symbol is too large");
      const std::string name(text_.substr(start, pos_ - start));
      reserve_fresh_symbols(std::stoull(name.substr(1)));
      return Dim::symbol(name);
    }
    if (c == '`') {
      const size_t end = text_.find('`', pos_ + 1);
      if (end == std::string_view::npos || end == pos_ + 1) fault("unterminated symbol name");
      const Dim d = Dim::symbol(text_.substr(pos_ + 1, end - pos_ - 1));
      pos_ = end + 1;
      return d;
    }
    if (!letter(c)) fault("expected a dim: an integer, a symbol or `?`");
    const size_t start = pos_;
    while (pos_ < text_.size() &&
           (letter(text_[pos_]) || digit(text_[pos_]) || text_[pos_] == '.')) {
      ++pos_;
    }
    const std::string_view name = text_.substr(start, pos_ - start);
    if (peek() != '(') return Dim::symbol(name);
    return call(name, start);
  }
  Dim call(std::string_view name, size_t start) {
    take('(');
    std::vector<Dim> operands;
    do operands.push_back(checked(sum()));
    while (take(','));
    if (!take(')')) fault("expected `)` in a dim");
    const DimFunction* f = find_dim_function(name);
    if (!f || operands.size() < 2 || (f->binary && operands.size() != 2)) {
      pos_ = start;
      fault(f ? fmt::format("{} takes {}two operands", name, f->binary ? "" : "at least ")
              : fmt::format("{} is not a function of dims ({})", name, function_names()));
    }
    Dim result = operands[0];
    for (size_t i = 1; i < operands.size(); ++i) result = f->apply(result, operands[i]);
    return result;
  }
  int64_t integer(int sign) {
    int64_t v = 0;
    while (pos_ < text_.size() && digit(text_[pos_])) {
      const int64_t digit_value = sign * (text_[pos_] - '0');
      if (__builtin_mul_overflow(v, 10, &v) || __builtin_add_overflow(v, digit_value, &v)) {
        fault("integer exceeds 64 bits");
      }
      ++pos_;
    }
    return v;
  }

  std::string_view text_;
  size_t pos_;
  int depth_ = 0;
};

using exec::DimOp;

void emit(const DimNode* n, const std::vector<std::string>& order, exec::DimProgram& p);

void emit_term(int64_t coefficient, const Monomial* m, const std::vector<std::string>& order,
               exec::DimProgram& p) {
  bool first = true;
  if (!m || coefficient != 1) {
    p.code.push_back({DimOp::kConst, coefficient});
    first = false;
  }
  if (!m) return;
  for (const DimNode* a : m->atoms) {
    emit(a, order, p);
    if (!first) p.code.push_back({DimOp::kMul});
    first = false;
  }
}

void emit(const DimNode* n, const std::vector<std::string>& order, exec::DimProgram& p) {
  switch (n->kind) {
    case DimNode::Kind::kAny:
      NIMBLE_UNREACHABLE("the wildcard ? has no program");
    case DimNode::Kind::kConstant:
      p.code.push_back({DimOp::kConst, n->constant});
      return;
    case DimNode::Kind::kSymbol: {
      auto it = std::find(order.begin(), order.end(), n->name);
      NIMBLE_CHECK(it != order.end(), "symbol {} is not among the program's arguments", n->name);
      p.code.push_back({DimOp::kArg, it - order.begin()});
      return;
    }
    case DimNode::Kind::kFunction: {
      static constexpr DimOp kOps[] = {DimOp::kFloorDiv, DimOp::kMod, DimOp::kMin, DimOp::kMax,
                                       DimOp::kBroadcast};
      for (size_t i = 0; i < n->operands.size(); ++i) {
        emit(n->operands[i], order, p);
        if (i) p.code.push_back({kOps[static_cast<int>(n->function)]});
      }
      return;
    }
    case DimNode::Kind::kSum:
      for (size_t i = 0; i < n->terms.size(); ++i) {
        const int64_t c = n->terms[i].coefficient;
        const bool subtract = i > 0 && c < 0 && c != INT64_MIN;
        emit_term(subtract ? -c : c, n->terms[i].monomial, order, p);
        if (i) p.code.push_back({subtract ? DimOp::kSub : DimOp::kAdd});
      }
      return;
  }
}

}  // namespace

std::span<const DimFunction> dim_functions() {
  return kFunctions;
}

const DimFunction* find_dim_function(std::string_view name) {
  for (const DimFunction& f : kFunctions)
    if (f.name == name) return &f;
  return nullptr;
}

std::string Dim::str() const {
  std::string out;
  print(node_, out);
  return out;
}

std::optional<Dim> parse_dim_prefix(std::string_view text, size_t* pos, std::string* problem) {
  Parser parser(text, *pos);
  try {
    const Dim d = parser.sum();
    *pos = parser.pos();
    return d;
  } catch (const ParseFault& f) {
    *pos = f.pos;
    *problem = f.problem;
  } catch (const Error& e) {  // division by zero, overflow, impossible broadcast
    *pos = parser.pos();
    *problem = e.problem();
  }
  return std::nullopt;
}

Dim parse_dim(std::string_view text, const std::string& place) {
  size_t pos = 0;
  std::string problem;
  auto d = parse_dim_prefix(text, &pos, &problem);
  while (d && pos < text.size() && std::isspace(static_cast<unsigned char>(text[pos]))) ++pos;
  if (d && pos == text.size()) return *d;
  throw Error(Status::kInvalidArgument, place,
              fmt::format("`{}` is not a dim: {} at character {}", text,
                          d ? "unexpected text" : problem, pos + 1),
              "write an integer, a symbol or an expression such as 2*n + 1");
}

exec::DimProgram Dim::to_program(const std::vector<std::string>& order) const {
  exec::DimProgram p;
  p.arguments = static_cast<uint32_t>(order.size());
  emit(node_, order, p);
  return p;
}

}  // namespace nimble::ir
